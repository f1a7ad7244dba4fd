package azblob

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// format is the stored form: the upgrades from each schema to the next, the first one from schema 1. A vault reads all
// schemas. It writes the last one with an upgrade, or a later one if the document has what that schema is for.
//
// A new member of a document needs no new schema if older code may ignore it, because older code keeps it. Any
// other change does, with an upgrade. See docs/upgrade.md.
type format []upgrade

// upgrade turns the data of a document into that of the next schema.
type upgrade func(docType string, data []byte) ([]byte, error)

// form is the stored form of this code. Schemas 2 and 3 are schema 1, and say that older code must leave a document alone.
// Schema 2 is that of a plan that sleeps, must not begin yet, or has a Deadline, and of an action whose plugin is called later:
// older code would run it at once, or for too long. Schema 3 is that of an open plan that an engine of another kind places,
// or that takes turns: older code would run it, too.
var form = format{nil, nil}

// schema is the newest schema.
func (f format) schema() int { return len(f) + 1 }

// plain is the schema of documents that need no newer one.
func (f format) plain() int {
	n := len(f)
	for n > 0 && f[n-1] == nil {
		n--
	}
	return n + 1
}

// schemaOf is the schema that a document of an object gets.
func (f format) schemaOf(docType string, o workflow.Object) int {
	return min(f.schema(), max(f.plain(), leastSchema(docType, o)))
}

// leastSchema is the oldest schema whose code may work with what a document has.
func leastSchema(docType string, o workflow.Object) int {
	switch o := o.(type) {
	case *workflow.Action:
		if o.Later() != nil {
			return 2
		}
	case *workflow.Plan:
		switch {
		case (o.External.Name != "" || len(o.Keys) > 0 || o.Unique != "") && !o.State.Status.Final():
			return 3
		case !o.WakeAt.IsZero(), !o.Deadline.IsZero(), o.State.Status == workflow.NotStarted && !o.NotBefore.IsZero():
			return 2
		case docType != typeObject || o.State.Status != workflow.Running:
			return 1
		}
		for part := range workflow.Walk(o) {
			if a, ok := part.(*workflow.Action); ok && a.Later() != nil {
				return 2
			}
		}
	}
	return 1
}

// The types of the documents about a plan, and of records. All other types are kinds of objects.
const (
	typeEntry  = "entry"
	typeObject = "object"
	typeMember = "member"
	typeStop   = "stop"
	typeNote   = "note"
	typeKey    = "key"
	typeAudit  = "deed"
)

// encodeEntry returns the document with a plan's own fields and the IDs of its children.
func (f format) encodeEntry(p *workflow.Plan) ([]byte, error) {
	return f.encode(typeEntry, planKind.withoutChildren(p))
}

// encodePart returns the document with a sub-object's own fields and the IDs of its children.
func (f format) encodePart(o workflow.Object) ([]byte, error) {
	return f.encode(o.Kind().String(), kindOf(o).withoutChildren(o))
}

// encodeOwn returns the document with an object's own fields. For a plan it is the entry.
func (f format) encodeOwn(o workflow.Object) ([]byte, error) {
	if plan, ok := o.(*workflow.Plan); ok {
		return f.encodeEntry(plan)
	}
	return f.encodePart(o)
}

// encodeObject returns the document with the whole plan.
func (f format) encodeObject(p *workflow.Plan) ([]byte, error) {
	whole := *p
	whole.State.ETag = "" // it is the entry's
	return f.encode(typeObject, &whole)
}

// encode returns a document such as {"schema":1,"type":"entry","data":{…}}, the form of every blob that has
// content. Own fields are written without an ETag, which is not known yet.
func (f format) encode(docType string, o workflow.Object) ([]byte, error) {
	if docType != typeObject {
		o.Header().State.ETag = "" // o is a copy
	}
	size := typicalSize
	if plan, ok := o.(*workflow.Plan); ok && docType == typeObject {
		for range workflow.Walk(plan) {
			size += typicalSize
		}
	}
	body, err := workflow.AppendJSON(f.appendHead(make([]byte, 0, size), f.schemaOf(docType, o), docType), o)
	return append(body, '}'), err
}

// typicalSize is about what an object takes in a document, in bytes. A longer one takes more memory while it is
// encoded.
const typicalSize = 512

// head is the beginning of a document. Its data and a brace follow.
func (f format) head(schema int, docType string) []byte { return f.appendHead(nil, schema, docType) }

func (f format) appendHead(b []byte, schema int, docType string) []byte {
	b = strconv.AppendInt(append(b, `{"schema":`...), int64(schema), 10)
	b = strconv.AppendQuote(append(b, `,"type":`...), docType)
	return append(b, `,"data":`...)
}

// checkSchema returns an error unless this code knows a schema.
func (f format) checkSchema(version int) error {
	switch {
	case version > f.schema():
		return fmt.Errorf("%w: it has schema %d, but this program knows only %d: update the program", storage.ErrSchema, version, f.schema())
	case version < 1:
		return fmt.Errorf("%w: there is no schema %d", storage.ErrCorrupt, version)
	}
	return nil
}

// decode decodes a document into o, which must have the given ID and plan.
func (f format) decode(body []byte, docType string, o workflow.Object, plan, id uuid.UUID) error {
	read := func(data []byte) error { return workflow.Unmarshal(data, o) }
	if err := f.decodeDocument(body, docType, read); err != nil {
		return err
	}
	if h := o.Header(); *h.ID != id || *h.PlanID != plan {
		return fmt.Errorf("%w: it is %s of plan %s, not %s of plan %s", storage.ErrCorrupt, *h.ID, *h.PlanID, id, plan)
	}
	if docType == typeObject {
		return validated(workflow.Validate(o, driver.HasIDs))
	}
	return nil
}

// decodeDocument decodes a document whose data read decodes. It may call read twice.
func (f format) decodeDocument(body []byte, docType string, read func(data []byte) error) error {
	if data, ok := bytes.CutPrefix(body, f.head(f.plain(), docType)); ok && len(data) > 0 && read(data[:len(data)-1]) == nil && data[len(data)-1] == '}' {
		return nil
	}
	// It has an older schema, or a newer one, or another spelling, or it is damaged.
	var d struct {
		Schema int
		Type   string
		Data   json.RawMessage
	}
	if err := json.Unmarshal(body, &d); err != nil {
		if isForeignDocument(body) {
			return storage.ErrForeign
		}
		var v struct{ Schema int } // the one field whose form is the same in every schema
		if json.Unmarshal(body, &v) == nil && v.Schema > f.schema() {
			return f.checkSchema(v.Schema)
		}
		return fmt.Errorf("%w: %w", storage.ErrCorrupt, err)
	}
	if err := f.checkSchema(d.Schema); err != nil {
		return err
	}
	if d.Type != docType {
		return fmt.Errorf("%w: it has type %q, not %q", storage.ErrCorrupt, d.Type, docType)
	}
	data, err := []byte(d.Data), error(nil)
	for _, next := range f[d.Schema-1:] {
		if next == nil {
			continue
		}
		if data, err = next(docType, data); err != nil {
			return fmt.Errorf("%w: %w", storage.ErrCorrupt, err)
		}
	}
	if err := read(data); err != nil {
		return fmt.Errorf("%w: %w", storage.ErrCorrupt, err)
	}
	return nil
}

// validated returns the error for a plan that was read, from that of its validation.
func validated(err error) error {
	if err != nil {
		return fmt.Errorf("%w: %w", storage.ErrCorrupt, err)
	}
	return nil
}

func (f format) decodeEntry(body []byte, id uuid.UUID) (*workflow.Plan, error) {
	p := new(workflow.Plan)
	return p, f.decode(body, typeEntry, p, id, id)
}

func (f format) decodeObject(body []byte, id uuid.UUID) (*workflow.Plan, error) {
	p := new(workflow.Plan)
	return p, f.decode(body, typeObject, p, id, id)
}

func (f format) decodePart(body []byte, k kind, plan, id uuid.UUID) (workflow.Object, error) {
	o := k.empty()
	return o, f.decode(body, k.of.String(), o, plan, id)
}

// isForeignDocument reports whether another program wrote a document: it has no schema, and its type is a number.
func isForeignDocument(body []byte) bool {
	var d struct{ Schema, Type json.RawMessage }
	return json.Unmarshal(body, &d) == nil && d.Schema == nil && isNumber(d.Type)
}

// isNumber reports whether a value of valid JSON is a number.
func isNumber(value json.RawMessage) bool {
	return len(value) > 0 && (value[0] == '-' || value[0] >= '0' && value[0] <= '9')
}
