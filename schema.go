package azblob

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"mime"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// format is the stored form: the upgrades from each schema to the next, the first one from schema 1. A vault
// writes the last schema, and reads all of them.
//
// A new member of a document needs no new schema if older code may ignore it, because older code keeps it. Any
// other change does, with an upgrade. See docs/upgrade.md.
type format []upgrade

// upgrade turns the data of a document into that of the next schema.
type upgrade func(docType string, data []byte) ([]byte, error)

// schema is the version of the form that is written.
func (f format) schema() int { return len(f) + 1 }

// The types of the documents about a plan, and of records. All other types are kinds of objects.
const (
	typeEntry  = "entry"
	typeObject = "object"
	typeMember = "member"
	typeStop   = "stop"
	typeNote   = "note"
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
	body, err := workflow.AppendJSON(f.appendHead(make([]byte, 0, size), docType), o)
	return append(body, '}'), err
}

// typicalSize is about what an object takes in a document, in bytes. A longer one takes more memory while it is
// encoded.
const typicalSize = 512

// head is the beginning of a document. Its data and a brace follow.
func (f format) head(docType string) []byte { return f.appendHead(nil, docType) }

func (f format) appendHead(b []byte, docType string) []byte {
	b = strconv.AppendInt(append(b, `{"schema":`...), int64(f.schema()), 10)
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
func (f format) decode(body []byte, docType string, o workflow.Object, types workflow.Types, plan, id uuid.UUID) error {
	read := func(data []byte) error { return workflow.UnmarshalTyped(data, o, types) }
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
	if data, ok := bytes.CutPrefix(body, f.head(docType)); ok && len(data) > 0 && read(data[:len(data)-1]) == nil && data[len(data)-1] == '}' {
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
	return p, f.decode(body, typeEntry, p, nil, id, id)
}

func (f format) decodeObject(body []byte, types workflow.Types, id uuid.UUID) (*workflow.Plan, error) {
	p := new(workflow.Plan)
	return p, f.decode(body, typeObject, p, types, id, id)
}

func (f format) decodePart(body []byte, k kind, types workflow.Types, plan, id uuid.UUID) (workflow.Object, error) {
	o := k.empty()
	return o, f.decode(body, k.of.String(), o, types, plan, id)
}

// record is a document in the control container.
type record struct {
	docType  string
	data     any
	metadata map[string]string // besides the schema and the writeid
}

// memberData is the data of a member's record.
type memberData struct {
	ID      uuid.UUID `json:"id"`
	Name    string    `json:"name,omitempty"`
	Started time.Time `json:"started"`
	TTL     string    `json:"ttl,omitempty"` // such as 30s

	Former  uuid.UUID     `json:"former,omitzero"`
	Phase   storage.Phase `json:"phase,omitempty"`
	LetGo   []uuid.UUID   `json:"letgo,omitempty"`
	Trouble string        `json:"trouble,omitempty"`
	Excused bool          `json:"excused,omitempty"`
}

// stopData is the data of a stop request.
type stopData struct {
	Plan uuid.UUID `json:"plan"`
	By   string    `json:"by,omitempty"`
	Why  string    `json:"why,omitempty"`
}

// noteData is the data of a note. It keeps the text as it is; json.Marshal would rewrite it.
type noteData struct {
	Name string          `json:"name"`
	Text json.RawMessage `json:"text"`
}

func (d noteData) encode() []byte {
	return slices.Concat([]byte(`{"name":`), strconv.AppendQuote(nil, d.Name), []byte(`,"text":`), d.Text, []byte("}"))
}

func memberRecord(m storage.Member) record {
	metadata := map[string]string{metaStarted: m.Started.UTC().Format(time.RFC3339Nano)}
	data := memberData{ID: m.ID, Name: m.Name, Started: m.Started.UTC(), Former: m.Former, Phase: m.Phase, LetGo: m.LetGo, Trouble: m.Trouble, Excused: m.Excused}
	for name, text := range map[string]string{
		metaName: encodeText(m.Name), metaPhase: string(m.Phase), metaLetGo: idsText(m.LetGo), metaTrouble: encodeText(m.Trouble),
	} {
		if text != "" {
			metadata[name] = text
		}
	}
	if m.Excused {
		metadata[metaExcused] = "true"
	}
	if m.Former != uuid.Nil {
		metadata[metaFormer] = m.Former.String()
	}
	if m.TTL > 0 {
		data.TTL = m.TTL.String()
		metadata[metaTTL] = data.TTL
	}
	return record{typeMember, data, metadata}
}

func stopRecord(r storage.StopRequest) record {
	return record{typeStop, stopData{r.Plan, r.By, r.Why}, textMetadata(map[string]string{metaBy: r.By, metaWhy: r.Why})}
}

// auditData is the data of an audit entry.
type auditData struct {
	ID     uuid.UUID   `json:"id"`
	What   string      `json:"what"`
	By     string      `json:"by,omitempty"`
	Why    string      `json:"why,omitempty"`
	Plans  []uuid.UUID `json:"plans,omitempty"`
	From   string      `json:"from,omitempty"` // such as 2006-01-02
	To     string      `json:"to,omitempty"`
	Detail string      `json:"detail,omitempty"`
	Result string      `json:"result,omitempty"`
}

// auditRecord returns the record of an audit entry. Its metadata has all of it, so that a listing shows it.
func auditRecord(d storage.AuditEntry) (record, error) {
	data := auditData{ID: d.ID, What: d.What, By: d.By, Why: d.Why, Plans: d.Plans, Detail: d.Detail, Result: d.Result}
	if !d.From.IsZero() {
		data.From, data.To = d.From.UTC().Format(time.DateOnly), d.To.UTC().Format(time.DateOnly)
	}
	var text strings.Builder
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	err := e.Encode(data)
	return record{typeAudit, data, textMetadata(map[string]string{typeAudit: strings.TrimSpace(text.String())})}, err
}

// auditEntryOf returns the audit entry with an ID whose blob has these properties.
func (f format) auditEntryOf(id uuid.UUID, p blob.Properties) (d storage.AuditEntry, err error) {
	bad := func(err error) error { return fmt.Errorf("%w: metadata %s: %w", storage.ErrCorrupt, typeAudit, err) }
	version, err := strconv.Atoi(p.Metadata[metaSchema])
	if err != nil {
		return d, bad(err)
	}
	if err := f.checkSchema(version); err != nil {
		return d, err
	}
	var data auditData
	text, err := decodeText(p.Metadata[typeAudit])
	if err == nil {
		err = json.Unmarshal([]byte(text), &data)
	}
	if err == nil && data.ID != id {
		err = fmt.Errorf("it is deed %s", data.ID)
	}
	d = storage.AuditEntry{ID: data.ID, What: data.What, Attribution: workflow.Attribution{By: data.By, Why: data.Why}, Plans: data.Plans, Detail: data.Detail, Result: data.Result}
	if err == nil && data.From != "" {
		d.From, err = time.Parse(time.DateOnly, data.From)
	}
	if err == nil && data.To != "" {
		d.To, err = time.Parse(time.DateOnly, data.To)
	}
	if err == nil {
		err = driver.CheckAuditEntry(d)
	}
	if err != nil {
		return storage.AuditEntry{}, bad(err)
	}
	return driver.RecordedAuditEntry(d, p.LastModified), nil
}

// textMetadata returns metadata with the texts that are not empty.
func textMetadata(texts map[string]string) map[string]string {
	metadata := map[string]string{}
	for name, text := range texts {
		if text != "" {
			metadata[name] = encodeText(text)
		}
	}
	return metadata
}

func noteRecord(n storage.Note) record {
	return record{docType: typeNote, data: noteData{n.Name, bytes.TrimSpace(n.Text)}}
}

func (f format) encodeRecord(r record) ([]byte, error) {
	if note, ok := r.data.(noteData); ok {
		return append(append(f.head(r.docType), note.encode()...), '}'), nil
	}
	data, err := json.Marshal(r.data)
	return append(append(f.head(r.docType), data...), '}'), err
}

// recordMetadata is what a listing shows of a record.
func (f format) recordMetadata(r record, writeID string) map[string]string {
	m := map[string]string{metaSchema: strconv.Itoa(f.schema()), blob.WriteID: writeID}
	maps.Copy(m, r.metadata)
	return m
}

// decodeRecord decodes the record with a name.
func (f format) decodeRecord(body []byte, name recordName) (record, error) {
	if name.role == roleNote {
		n, err := f.decodeNote(body, name.note)
		return noteRecord(n), err
	}
	if name.role == roleStop {
		var d stopData
		err := f.decodeDocument(body, typeStop, func(data []byte) error { return json.Unmarshal(data, &d) })
		if err == nil && d.Plan != name.id {
			err = fmt.Errorf("%w: it is about plan %s", storage.ErrCorrupt, d.Plan)
		}
		return stopRecord(storage.StopRequest{Plan: d.Plan, By: d.By, Why: d.Why}), err
	}
	var d memberData
	err := f.decodeDocument(body, typeMember, func(data []byte) error { return json.Unmarshal(data, &d) })
	if err == nil && d.ID != name.id {
		err = fmt.Errorf("%w: it is about member %s", storage.ErrCorrupt, d.ID)
	}
	ttl, ttlErr := parseTTL(d.TTL)
	if err == nil {
		err = ttlErr
	}
	if len(d.LetGo) == 0 {
		d.LetGo = nil
	}
	return memberRecord(storage.Member{
		ID: d.ID, Name: d.Name, Started: d.Started, TTL: ttl, Former: d.Former, Phase: d.Phase, LetGo: d.LetGo, Trouble: d.Trouble, Excused: d.Excused,
	}), err
}

// decodeNote decodes the note with a name.
func (f format) decodeNote(body []byte, name string) (storage.Note, error) {
	var d noteData
	err := f.decodeDocument(body, typeNote, func(data []byte) error { return json.Unmarshal(data, &d) })
	n := storage.Note{Name: d.Name, Text: d.Text}
	switch {
	case err != nil:
		return n, err
	case d.Name != name:
		return n, fmt.Errorf("%w: it is about note %.100q", storage.ErrCorrupt, d.Name)
	}
	if err := driver.CheckNote(n); err != nil {
		return n, fmt.Errorf("%w: %s", storage.ErrCorrupt, err)
	}
	return n, nil
}

// The names of metadata, besides blob.WriteID. They have only lower-case letters: HTTP changes the case of
// names, and similar names with other characters have broken the signing of requests
// (github.com/Azure/azure-sdk-for-net/issues/41328).
const (
	metaPlanID     = "planid"
	metaGroupID    = "groupid"
	metaName       = "name"
	metaDescr      = "descr"
	metaLabels     = "labels"
	metaSubmitTime = "submittime"
	metaState      = "state"
	metaPlanType   = "plantype"
	metaSchema     = "schema"
	metaAttempts   = "attempts"
	metaCut        = "cut"   // the fields that were too long, separated by commas; the entry has them whole
	metaOwner      = "owner" // like metaEpoch, only of a plan that has had an owner
	metaEpoch      = "epoch"
	metaForkedFrom = "forkedfrom" // only of a fork
	metaStarted    = "started"    // like metaTTL, of a member
	metaTTL        = "ttl"        // its form is the same in every schema, like that of metaPhase
	metaPhase      = "phase"      // like metaFormer, metaLetGo and metaTrouble, of a member
	metaFormer     = "former"
	metaLetGo      = "letgo"
	metaTrouble    = "trouble"
	metaExcused    = "excused"
	metaLayout     = "planvaultlayout"
	metaCatalogue  = "planvaultcatalogue" // of a container, like metaLayout: the day has had a catalogue
	metaGrace      = "grace"              // of a marker: its writer's grace period
	metaContainer  = "container"          // of a catalogue: the container of its day
	metaBy         = "by"                 // like metaWhy, of a stop request
	metaWhy        = "why"
	metaRestored   = "restored" // of the entry that Restore wrote, until its next update
	metaCopied     = "copied"   // of the entry and the object, from RestoreCopy until the first UpdatePlan
)

// readMemberMetadata reads into m what it can of the metadata of a member's record. The TTL and the phase are read in
// any schema, because others judge by them.
func (f format) readMemberMetadata(m *storage.Member, metadata map[string]string) {
	m.TTL, _ = parseTTL(metadata[metaTTL])
	if phase := storage.Phase(metadata[metaPhase]); driver.IsPhase(phase) {
		m.Phase = phase
	}
	if version, err := strconv.Atoi(metadata[metaSchema]); err != nil || f.checkSchema(version) != nil {
		return
	}
	m.Started, _ = time.Parse(time.RFC3339Nano, metadata[metaStarted])
	m.Name, _ = decodeText(metadata[metaName])
	if id, ok := parseID(metadata[metaFormer]); ok {
		m.Former = id
	}
	m.LetGo = parseIDs(metadata[metaLetGo])
	m.Trouble, _ = decodeText(metadata[metaTrouble])
	m.Excused = metadata[metaExcused] == "true"
}

// readStopMetadata reads into r what it can of the metadata of a stop request.
func (f format) readStopMetadata(r *storage.StopRequest, metadata map[string]string) {
	if version, err := strconv.Atoi(metadata[metaSchema]); err != nil || f.checkSchema(version) != nil {
		return
	}
	by, byErr := decodeText(metadata[metaBy])
	why, whyErr := decodeText(metadata[metaWhy])
	if d := (workflow.Attribution{By: by, Why: why}); byErr == nil && whyErr == nil && workflow.CheckAttribution(d) == nil {
		r.By, r.Why = by, why
	}
}

// idsText joins IDs with commas.
func idsText(ids []uuid.UUID) string {
	var texts []string
	for _, id := range ids {
		texts = append(texts, id.String())
	}
	return strings.Join(texts, ",")
}

// parseIDs parses as many IDs as a record may have, and leaves out what is no ID.
func parseIDs(text string) (ids []uuid.UUID) {
	for part := range strings.SplitSeq(text, ",") {
		if id, err := uuid.Parse(part); err == nil && len(ids) < storage.MaxLetGo {
			ids = append(ids, id)
		}
	}
	return ids
}

// parseTTL parses the TTL of a member, which is 0 if it is not known.
func parseTTL(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	ttl, err := time.ParseDuration(text)
	if err == nil && ttl < 0 {
		err = errors.New("it is negative")
	}
	if err != nil {
		return 0, fmt.Errorf("%w: TTL %q: %w", storage.ErrCorrupt, text, err)
	}
	return ttl, nil
}

// listedField is how metadata has a field of [storage.ListResult].
type listedField struct {
	name     string // of the metadata
	required bool   // an optional field is absent if its text is empty
	write    func(r *storage.ListResult) (string, error)
	read     func(r *storage.ListResult, text string) error
}

// listed has a row for each field of [storage.ListResult].
var listed = []listedField{
	rowOf(metaPlanID, true, func(r *storage.ListResult) *uuid.UUID { return &r.ID }, idText, uuid.Parse),
	rowOf(metaGroupID, false, func(r *storage.ListResult) *uuid.UUID { return &r.GroupID }, idText, uuid.Parse),
	rowOf(metaSubmitTime, true, func(r *storage.ListResult) *time.Time { return &r.SubmitTime }, timeText, parseTime),
	rowOf(metaState, true, func(r *storage.ListResult) *workflow.State { return &r.State }, stateMetadata, stateOf),
	rowOf(metaOwner, false, func(r *storage.ListResult) *uuid.UUID { return &r.Owner }, idText, parseV7),
	rowOf(metaForkedFrom, false, func(r *storage.ListResult) *uuid.UUID { return &r.ForkedFrom }, idText, parseV7),
	rowOf(metaEpoch, false, func(r *storage.ListResult) *int64 { return &r.Epoch }, epochText, parseEpoch),
	rowOf(metaLabels, false, func(r *storage.ListResult) *map[string]string { return &r.Labels }, labelsText, parseLabels),
	rowOf(metaName, false, func(r *storage.ListResult) *string { return &r.Name }, leftToAddTexts, decodeText),
	rowOf(metaDescr, false, func(r *storage.ListResult) *string { return &r.Descr }, leftToAddTexts, decodeText),
}

// rowOf returns the row of a field whose text write makes and read parses.
func rowOf[T any](name string, required bool, field func(r *storage.ListResult) *T, write func(T) (string, error), read func(string) (T, error)) listedField {
	return listedField{
		name, required,
		func(r *storage.ListResult) (string, error) { return write(*field(r)) },
		func(r *storage.ListResult, text string) (err error) {
			*field(r), err = read(text)
			return err
		},
	}
}

func idText(id uuid.UUID) (string, error) {
	if id == uuid.Nil {
		return "", nil
	}
	return id.String(), nil
}

func timeText(t time.Time) (string, error) { return t.UTC().Format(time.RFC3339Nano), nil }

func parseTime(text string) (time.Time, error) { return time.Parse(time.RFC3339Nano, text) }

func epochText(epoch int64) (string, error) {
	if epoch == 0 {
		return "", nil
	}
	return strconv.FormatInt(epoch, 10), nil
}

func parseEpoch(text string) (int64, error) {
	epoch, err := strconv.ParseInt(text, 10, 64)
	if err == nil && epoch < 1 {
		err = errors.New("it should be a number from 1")
	}
	return epoch, err
}

func parseV7(text string) (uuid.UUID, error) {
	id, ok := parseID(text)
	if !ok || !workflow.IsV7(id) {
		return uuid.Nil, errors.New("it should be a UUIDv7")
	}
	return id, nil
}

func labelsText(labels map[string]string) (string, error) {
	return encodeText(workflow.FormatLabels(labels)), nil
}

func parseLabels(text string) (map[string]string, error) {
	text, err := decodeText(text)
	if err != nil {
		return nil, err
	}
	return workflow.ParseLabels(text)
}

// leftToAddTexts writes nothing: addTexts adds name and description when it knows how much room there is.
func leftToAddTexts(string) (string, error) { return "", nil }

// planMarks are metadata of a plan that say who wrote it.
type planMarks struct{ restored, copied bool }

// planMetadata is what a listing shows of a plan, for its entry (typeEntry) or object (typeObject). An entry that
// Restore writes says so, because it may have any status before there is an object.
func (f format) planMetadata(p *workflow.Plan, docType, writeID string, marks planMarks) (map[string]string, error) {
	m := map[string]string{metaPlanType: docType, metaSchema: strconv.Itoa(f.schema()), blob.WriteID: writeID}
	if marks.restored {
		m[metaRestored] = "1"
	}
	if marks.copied {
		m[metaCopied] = "1"
	}
	r := driver.Listed(p)
	for _, row := range listed {
		text, err := row.write(&r)
		if err != nil {
			return nil, err
		}
		if text != "" {
			m[row.name] = text
		}
	}
	addTexts(m, p)
	return m, nil
}

// addTexts adds a plan's name and description to its other metadata, cut if there is not enough room.
func addTexts(m map[string]string, p *workflow.Plan) {
	room := blob.MaxMetadata - len(metaName) - len(metaDescr)
	for name, value := range m {
		room -= len(name) + len(value)
	}
	name, descr := encodeText(p.Name), encodeText(p.Descr)
	if len(name)+len(descr) > room {
		room -= len(metaCut) + len(metaName+","+metaDescr)
		var cut []string
		if half := room / 2; len(name) > half {
			name = cutText(p.Name, half)
			cut = append(cut, metaName)
		}
		if rest := room - len(name); len(descr) > rest {
			descr = cutText(p.Descr, rest)
			cut = append(cut, metaDescr)
		}
		m[metaCut] = strings.Join(cut, ",")
	}
	if name != "" {
		m[metaName] = name
	}
	if descr != "" {
		m[metaDescr] = descr
	}
}

// ownMetadata is what a listing shows of the blob with an object's own fields.
func (f format) ownMetadata(o workflow.Object, writeID string, marks planMarks) (map[string]string, error) {
	if plan, ok := o.(*workflow.Plan); ok {
		return f.planMetadata(plan, typeEntry, writeID, marks)
	}
	return f.partMetadata(o, writeID)
}

// partMetadata is what a listing shows of a sub-object.
func (f format) partMetadata(o workflow.Object, writeID string) (map[string]string, error) {
	state, err := stateMetadata(*o.Header().State)
	if err != nil {
		return nil, err
	}
	m := map[string]string{metaState: state, metaSchema: strconv.Itoa(f.schema()), blob.WriteID: writeID}
	if a, ok := o.(*workflow.Action); ok {
		m[metaAttempts] = strconv.Itoa(len(a.Attempts))
	}
	return m, nil
}

func stateMetadata(s workflow.State) (string, error) {
	// Without the version, which is the blob's, and without what this code does not know, which may be long.
	text, err := workflow.State{Status: s.Status, Start: s.Start, End: s.End}.MarshalJSON()
	return string(text), err
}

// parseMetadata parses the metadata of a plan's entry or object. It returns the names of fields that were
// cut, which are also cut in the result.
func (f format) parseMetadata(m map[string]string, id uuid.UUID, docType string) (r storage.ListResult, cut []string, err error) {
	bad := func(name string, err error) error {
		return fmt.Errorf("%w: metadata %s is %q: %w", storage.ErrCorrupt, name, m[name], err)
	}
	if isForeign(m) {
		return r, nil, storage.ErrForeign
	}
	version, err := strconv.Atoi(m[metaSchema])
	if err != nil {
		return r, nil, bad(metaSchema, err)
	}
	if err := f.checkSchema(version); err != nil {
		return r, nil, err
	}
	if m[metaPlanType] != docType {
		return r, nil, bad(metaPlanType, fmt.Errorf("it should be %q", docType))
	}
	if m[metaPlanID] != id.String() {
		return r, nil, bad(metaPlanID, fmt.Errorf("it should be %s", id))
	}
	for _, row := range listed {
		text, ok := m[row.name]
		if !ok && !row.required {
			continue
		}
		if err := row.read(&r, text); err != nil {
			return r, nil, bad(row.name, err)
		}
	}
	if (r.Owner == uuid.Nil) != (r.Epoch == 0) {
		return r, nil, bad(metaOwner, fmt.Errorf("%s is %q: there should be both or neither", metaEpoch, m[metaEpoch]))
	}
	if text := m[metaCut]; text != "" {
		cut = strings.Split(text, ",")
	}
	return r, cut, nil
}

// parseState parses the state in the metadata of an object's blob.
func parseState(m map[string]string) (workflow.State, error) {
	if isForeign(m) {
		return workflow.State{}, storage.ErrForeign
	}
	s, err := stateOf(m[metaState])
	if err != nil {
		return s, fmt.Errorf("%w: metadata %s is %q: %w", storage.ErrCorrupt, metaState, m[metaState], err)
	}
	return s, nil
}

func stateOf(text string) (s workflow.State, err error) {
	err = json.Unmarshal([]byte(text), &s)
	if err == nil && !strings.Contains(text, `"status"`) {
		err = errors.New("it has no status")
	}
	return s, err
}

// Another program may keep plans in containers and blobs of the same names. A vault recognizes them by two kinds of
// evidence: the form is that program's, and there is none of the marks that each blob of a vault has. What a vault
// wrote, and something else damaged, keeps at least one of them or has lost that form as well.

// isForeign reports by the metadata of an entry or an object whether another program wrote it: the status in its state is
// a number.
func isForeign(m map[string]string) bool {
	if hasMarks(m) {
		return false
	}
	var s struct{ Status json.RawMessage }
	return json.Unmarshal([]byte(m[metaState]), &s) == nil && isNumber(s.Status)
}

// isForeignDocument reports whether another program wrote a document: it has no schema, and its type is a number.
func isForeignDocument(body []byte) bool {
	var d struct{ Schema, Type json.RawMessage }
	return json.Unmarshal(body, &d) == nil && d.Schema == nil && isNumber(d.Type)
}

// hasMarks reports by its metadata whether a vault may have written an entry, an object or a sub-object.
func hasMarks(m map[string]string) bool { return m[metaSchema] != "" || m[blob.WriteID] != "" }

// isNumber reports whether a value of valid JSON is a number.
func isNumber(value json.RawMessage) bool {
	return len(value) > 0 && (value[0] == '-' || value[0] >= '0' && value[0] <= '9')
}

const (
	encodedHead = "=?utf-8?b?"
	encodedTail = "?="
)

// encodeText encodes any string as metadata. Text that is safe in an HTTP header stays as it is; other text
// becomes one encoded word of RFC 2047. The standard encoder would not do: it leaves alone what a server
// would trim or fold (blanks at an end or two in a row), and what looks encoded already.
func encodeText(s string) string {
	safe := !strings.Contains(s, "=?") && !strings.Contains(s, "  ") && strings.TrimSpace(s) == s &&
		strings.IndexFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) < 0
	if safe {
		return s
	}
	return encodedHead + base64.StdEncoding.EncodeToString([]byte(s)) + encodedTail
}

// decodeText decodes the result of encodeText, and encoded words of other programs.
func decodeText(s string) (string, error) {
	if !strings.Contains(s, "=?") {
		return s, nil
	}
	text, err := new(mime.WordDecoder).DecodeHeader(s)
	if err != nil {
		return "", err
	}
	if strings.HasPrefix(text, "=?") && text == s {
		return "", errors.New("it is not an encoded word")
	}
	return text, nil
}

// cutText encodes as much of the start of s as fits into limit bytes.
func cutText(s string, limit int) string {
	n := min(len(s), max(limit, 0))
	for n > 0 {
		for n > 0 && n < len(s) && !utf8.RuneStart(s[n]) {
			n-- // cut at a character
		}
		if text := encodeText(s[:n]); len(text) <= limit {
			return text
		}
		n = n * 7 / 8
	}
	return ""
}

// planVersion returns the version of a plan, which has two blobs. copied says that both have the mark of a copy.
func planVersion(entryETag, objectETag string, copied bool, plan *workflow.Plan) string {
	name := entryETag + "/" + objectETag
	if copied {
		name = driver.CopyName(name)
	}
	return driver.Version(name, plan)
}

// blobName is the name of a blob's version, with the mark that the blob has.
func blobName(p blob.Properties) string {
	if p.Metadata[metaCopied] != "" {
		return driver.CopyName(p.ETag)
	}
	return p.ETag
}

// splitPlanVersion returns the ETags of a plan's entry and object. A version from a listing lacks the
// object's.
func splitPlanVersion(version string) (entryETag, objectETag string) {
	name, _, _ := driver.SplitVersion(version)
	name, _ = driver.CutCopyName(name)
	entryETag, objectETag, _ = strings.Cut(name, "/")
	return entryETag, objectETag
}
