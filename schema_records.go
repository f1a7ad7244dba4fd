package azblob

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// The stored forms of records: members, stop requests, notes, keys and audit entries.

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

// keyData is the data of a key's record.
type keyData struct {
	Name        string       `json:"name"`
	Limit       int          `json:"limit,omitzero"`
	PausedUntil time.Time    `json:"pausedUntil,omitzero"`
	By          string       `json:"by,omitzero"`
	Why         string       `json:"why,omitzero"`
	At          time.Time    `json:"at,omitzero"`
	Searched    bool         `json:"searched,omitzero"`
	Holders     []holderData `json:"holders,omitempty"`
	Waiting     []waiterData `json:"waiting,omitempty"`
}

type holderData struct {
	Plan  uuid.UUID `json:"plan"`
	Limit int       `json:"limit,omitzero"`
	Taken bool      `json:"taken,omitzero"`
}

type waiterData struct {
	Plan  uuid.UUID `json:"plan"`
	Limit int       `json:"limit,omitzero"`
	Until time.Time `json:"until"`
}

func keyRecord(k storage.KeyRecord) record {
	data := keyData{Name: k.Name, Limit: k.Limit, PausedUntil: k.PausedUntil.UTC(), By: k.By.By, Why: k.By.Why, At: k.By.At.UTC(), Searched: k.Searched}
	for _, h := range k.Holders {
		data.Holders = append(data.Holders, holderData(h))
	}
	for _, w := range k.Waiting {
		data.Waiting = append(data.Waiting, waiterData{w.Plan, w.Limit, w.Until.UTC()})
	}
	metadata := textMetadata(map[string]string{metaBy: k.By.By, metaWhy: k.By.Why})
	for name, at := range map[string]time.Time{metaPaused: k.PausedUntil, metaAt: k.By.At} {
		if !at.IsZero() {
			metadata[name] = at.UTC().Format(time.RFC3339Nano)
		}
	}
	for name, n := range map[string]int{metaLimit: k.Limit, metaHolders: len(k.Holders)} {
		if n > 0 {
			metadata[name] = strconv.Itoa(n)
		}
	}
	if k.Searched {
		metadata[metaSearched] = "true"
	}
	return record{typeKey, data, metadata}
}

func (d keyData) record() storage.KeyRecord {
	k := storage.KeyRecord{Name: d.Name, Limit: d.Limit, PausedUntil: d.PausedUntil.UTC(), By: workflow.Attribution{By: d.By, Why: d.Why, At: d.At.UTC()}, Searched: d.Searched}
	for _, h := range d.Holders {
		k.Holders = append(k.Holders, storage.Holder(h))
	}
	for _, w := range d.Waiting {
		k.Waiting = append(k.Waiting, storage.Waiter{Plan: w.Plan, Limit: w.Limit, Until: w.Until.UTC()})
	}
	return k
}

// decodeKey decodes the record of the key with a name.
func (f format) decodeKey(body []byte, name string) (storage.KeyRecord, error) {
	var d keyData
	err := f.decodeDocument(body, typeKey, func(data []byte) error { d = keyData{}; return json.Unmarshal(data, &d) })
	k := d.record()
	switch {
	case err != nil:
		return k, err
	case d.Name != name:
		return k, fmt.Errorf("%w: it is about key %.150q", storage.ErrCorrupt, d.Name)
	}
	if err := driver.CheckKeyRecord(k); err != nil {
		return k, fmt.Errorf("%w: %s", storage.ErrCorrupt, err)
	}
	return k, nil
}

// listedKeyOf returns what the metadata of a key's record shows.
func (f format) listedKeyOf(name string, p blob.Properties) (storage.ListedKey, error) {
	bad := func(field string, err error) (storage.ListedKey, error) {
		return storage.ListedKey{}, fmt.Errorf("key %q: %w: metadata %s is %.100q: %w", name, storage.ErrCorrupt, field, p.Metadata[field], err)
	}
	version, err := strconv.Atoi(p.Metadata[metaSchema])
	if err != nil {
		return bad(metaSchema, err)
	}
	if err := f.checkSchema(version); err != nil {
		return storage.ListedKey{}, fmt.Errorf("key %q: %w", name, err)
	}
	k := storage.ListedKey{Name: name, Searched: p.Metadata[metaSearched] == "true", Version: storage.Version(p.ETag), Stored: p.LastModified.UTC()}
	for _, field := range []struct {
		name string
		read func(text string) error
	}{
		{metaLimit, func(text string) (err error) { k.Limit, err = parseCount[int](text); return err }},
		{metaHolders, func(text string) (err error) { k.Holders, err = parseCount[int](text); return err }},
		{metaPaused, func(text string) (err error) { k.PausedUntil, err = parseTime(text); return err }},
		{metaAt, func(text string) (err error) { k.By.At, err = parseTime(text); return err }},
		{metaBy, func(text string) (err error) { k.By.By, err = decodeText(text); return err }},
		{metaWhy, func(text string) (err error) { k.By.Why, err = decodeText(text); return err }},
	} {
		text, ok := p.Metadata[field.name]
		if !ok {
			continue
		}
		if err := field.read(text); err != nil {
			return bad(field.name, err)
		}
	}
	switch err := driver.CheckKeyRecord(storage.KeyRecord{Name: name, Limit: k.Limit, PausedUntil: k.PausedUntil, By: k.By}); {
	case err != nil:
		return storage.ListedKey{}, fmt.Errorf("key %q: %w: metadata: %s", name, storage.ErrCorrupt, err)
	case k.Holders > storage.MaxHolders:
		return bad(metaHolders, fmt.Errorf("at most %d are allowed", storage.MaxHolders))
	}
	return k, nil
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
	data := auditData{ID: d.ID, What: d.What, By: d.By.By, Why: d.By.Why, Plans: d.Plans, From: d.From.String(), To: d.To.String(), Detail: d.Detail, Result: d.Result}
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
		err = fmt.Errorf("it is entry %s", data.ID)
	}
	d = storage.AuditEntry{ID: data.ID, What: data.What, By: workflow.Attribution{By: data.By, Why: data.Why}, Plans: data.Plans, Detail: data.Detail, Result: data.Result}
	if err == nil && data.From != "" {
		d.From, err = storage.ParseDay(data.From)
	}
	if err == nil && data.To != "" {
		d.To, err = storage.ParseDay(data.To)
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
		return append(append(f.head(f.plain(), r.docType), note.encode()...), '}'), nil
	}
	data, err := json.Marshal(r.data)
	return append(append(f.head(f.plain(), r.docType), data...), '}'), err
}

// recordMetadata is what a listing shows of a record.
func (f format) recordMetadata(r record, writeID string) map[string]string {
	m := map[string]string{metaSchema: strconv.Itoa(f.plain()), blob.WriteID: writeID}
	maps.Copy(m, r.metadata)
	return m
}

// decodeRecord decodes the record with a name.
func (f format) decodeRecord(body []byte, name recordName) (record, error) {
	if name.role == roleNote {
		n, err := f.decodeNote(body, name.name)
		return noteRecord(n), err
	}
	if name.role == roleKey {
		k, err := f.decodeKey(body, name.name)
		return keyRecord(k), err
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
