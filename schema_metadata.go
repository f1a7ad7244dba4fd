package azblob

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
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
	metaSubmitter  = "submittedby" // only of a plan whose submitter is known
	metaState      = "state"
	metaPlanType   = "plantype"
	metaSchema     = "schema"
	metaAttempts   = "attempts"
	metaCut        = "cut"   // the fields that were too long, separated by commas; the entry has them whole
	metaOwner      = "owner" // like metaEpoch, only of a plan that has had an owner
	metaEpoch      = "epoch"
	metaWakeAt     = "wakeat"     // only of a plan that sleeps, or must not begin yet
	metaLastSignal = "lastsignal" // only of a plan that sleeps
	metaExternal   = "external"   // only of an open plan that an engine of another kind places
	metaKeys       = "keys"       // only of an open plan that takes turns
	metaKeepTurn   = "keepturn"   // like metaUnique, only of an open plan
	metaUnique     = "unique"
	metaWaitsFor   = "waitsfor"   // only of an open plan that waits for a turn
	metaDeadline   = "deadline"   // only of an open plan that takes turns
	metaForkedFrom = "forkedfrom" // only of a fork
	metaStarted    = "started"    // like metaTTL, of a member
	metaTTL        = "ttl"        // its form is the same in every schema, like that of metaPhase
	metaPhase      = "phase"      // like metaFormer, metaLetGo and metaTrouble, of a member
	metaFormer     = "former"
	metaLetGo      = "letgo"
	metaTrouble    = "trouble"
	metaExcused    = "excused"
	metaLimit      = "limit" // like those below, of a key's record
	metaPaused     = "pauseduntil"
	metaSearched   = "searched"
	metaHolders    = "holders"
	metaAt         = "at"
	metaLayout     = "planvaultlayout"
	metaCatalogue  = "planvaultcatalogue" // of a container, like metaLayout: the day has had a catalogue
	metaGrace      = "grace"              // of a marker: its writer's grace period
	metaContainer  = "container"          // of a catalogue: the container of its day
	metaBy         = "by"                 // like metaWhy, of a stop request or a key's record
	metaWhy        = "why"
	metaRestored   = "restored" // of the entry that Restore wrote, until its next update
	metaCopied     = "copied"   // of the entry and the object, from RestoreCopy until the first UpdatePlan
)

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
	rowOf(metaSubmitter, false, func(r *storage.ListResult) *string { return &r.SubmittedBy }, plainText, decodeText),
	rowOf(metaState, true, func(r *storage.ListResult) *workflow.State { return &r.State }, stateMetadata, stateOf),
	rowOf(metaOwner, false, func(r *storage.ListResult) *uuid.UUID { return &r.Owner }, idText, parseV7),
	rowOf(metaWakeAt, false, func(r *storage.ListResult) *time.Time { return &r.WakeAt }, timeIfAny, parseTime),
	rowOf(metaLastSignal, false, func(r *storage.ListResult) *int { return &r.LastSignal }, countText[int], parseCount[int]),
	rowOf(metaExternal, false, func(r *storage.ListResult) *string { return &r.External }, plainText, decodeText),
	rowOf(metaKeys, false, func(r *storage.ListResult) *[]string { return &r.Keys }, keysText, parseKeys),
	rowOf(metaKeepTurn, false, func(r *storage.ListResult) *workflow.KeepTurn { return &r.KeepTurn }, keepTurnText, parseKeepTurn),
	rowOf(metaUnique, false, func(r *storage.ListResult) *string { return &r.Unique }, plainText, decodeText),
	rowOf(metaWaitsFor, false, func(r *storage.ListResult) *string { return &r.WaitsFor }, plainText, decodeText),
	rowOf(metaDeadline, false, func(r *storage.ListResult) *time.Time { return &r.Deadline }, timeIfAny, parseTime),
	rowOf(metaForkedFrom, false, func(r *storage.ListResult) *uuid.UUID { return &r.ForkedFrom }, idText, parseV7),
	rowOf(metaEpoch, false, func(r *storage.ListResult) *int64 { return &r.Epoch }, countText[int64], parseCount[int64]),
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

func timeIfAny(t time.Time) (string, error) {
	if t.IsZero() {
		return "", nil
	}
	return timeText(t)
}

func parseTime(text string) (time.Time, error) { return time.Parse(time.RFC3339Nano, text) }

func plainText(by string) (string, error) { return encodeText(by), nil }

func countText[T int | int64](n T) (string, error) {
	if n == 0 {
		return "", nil
	}
	return strconv.FormatInt(int64(n), 10), nil
}

func parseCount[T int | int64](text string) (T, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err == nil && n < 1 {
		err = errors.New("it should be a number from 1")
	}
	return T(n), err
}

func parseV7(text string) (uuid.UUID, error) {
	id, ok := parseID(text)
	if !ok || !workflow.IsV7(id) {
		return uuid.Nil, errors.New("it should be a UUIDv7")
	}
	return id, nil
}

// keysText writes a line for each name: names have no control characters.
func keysText(names []string) (string, error) { return encodeText(strings.Join(names, "\n")), nil }

func parseKeys(text string) ([]string, error) {
	text, err := decodeText(text)
	if err != nil {
		return nil, err
	}
	names := strings.Split(strings.Clone(text), "\n")
	if len(names) > workflow.MaxKeys {
		return nil, fmt.Errorf("there are %d keys, at most %d are allowed", len(names), workflow.MaxKeys)
	}
	for i, name := range names {
		if err := workflow.CheckKey(workflow.Key{Name: name}); err != nil {
			return nil, err
		}
		if i > 0 && names[i-1] >= name {
			return nil, errors.New("the keys are not sorted")
		}
	}
	return names, nil
}

func keepTurnText(k workflow.KeepTurn) (string, error) {
	if k == workflow.KeepAlways {
		return "", nil
	}
	text, err := k.MarshalText()
	return string(text), err
}

func parseKeepTurn(text string) (k workflow.KeepTurn, err error) {
	err = k.UnmarshalText([]byte(text))
	return k, err
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
	m := map[string]string{metaPlanType: docType, metaSchema: strconv.Itoa(f.schemaOf(docType, p)), blob.WriteID: writeID}
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
	m := map[string]string{metaState: state, metaSchema: strconv.Itoa(f.schemaOf(o.Kind().String(), o)), blob.WriteID: writeID}
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
	if r.WakeAt.IsZero() && (r.Owner == uuid.Nil) != (r.Epoch == 0) {
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

// hasMarks reports by its metadata whether a vault may have written an entry, an object or a sub-object.
func hasMarks(m map[string]string) bool { return m[metaSchema] != "" || m[blob.WriteID] != "" }
