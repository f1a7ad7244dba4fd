package azblob

import (
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// goldenRecords returns a record of each type by the name of its golden file.
func goldenRecords() map[string]record {
	return map[string]record{
		"member": memberRecord(storage.Member{ID: examplePart, Name: "host <план>", Started: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC), TTL: 90 * time.Second}),
		"draining": memberRecord(storage.Member{
			ID: examplePart, Started: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC),
			Phase: storage.PhaseLeaving, LetGo: []uuid.UUID{examplePlan, examplePart}, Trouble: "403 at the <план>",
		}),
		"note":    noteRecord(storage.Note{Name: "policy", Text: []byte(" {\"keep\": \"90d\", \"why\": \"<план>\"}\n")}),
		"key":     keyRecord(goldenKey()),
		"left":    memberRecord(storage.Member{ID: examplePart, Started: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC), Phase: storage.PhaseLeft, Excused: true}),
		"again":   memberRecord(storage.Member{ID: examplePart, Started: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC), Former: examplePlan}),
		"stop":    stopRecord(storage.StopRequest{Plan: examplePlan}),
		"stopped": stopRecord(storage.StopRequest{Plan: examplePlan, By: "ops@example.com", Why: "<план>"}),
	}
}

func goldenKey() storage.KeyRecord {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	return storage.KeyRecord{
		Name: "key:<план> A", Limit: 7, PausedUntil: at, By: workflow.Attribution{By: "ops", Why: "<429>", At: at.Add(-time.Hour)}, Searched: true,
		Holders: []storage.Holder{{Plan: examplePlan, Limit: 9, Taken: true}, {Plan: examplePart}},
		Waiting: []storage.Waiter{{Plan: examplePlan, Limit: 9, Until: at}},
	}
}

func goldenName(name string) recordName {
	if strings.HasPrefix(name, "stop") {
		return recordName{role: roleStop, id: examplePlan}
	}
	if name == "note" {
		return recordName{role: roleNote, name: "policy"}
	}
	if name == "key" {
		return recordName{role: roleKey, name: goldenKey().Name}
	}
	return recordName{role: roleMember, id: examplePart}
}

func TestGoldenRecords(t *testing.T) {
	all := map[string]map[string]string{}
	for name, r := range goldenRecords() {
		body, err := format(nil).encodeRecord(r)
		golden(t, name, body, err)
		all[name] = format(nil).recordMetadata(r, "write-1")

		got, err := format(nil).decodeRecord(readGolden(t, name), goldenName(name))
		if err != nil || !reflect.DeepEqual(got, r) {
			t.Errorf("%s is read as %+v, %v", name, got, err)
		}
	}
	text, err := json.MarshalIndent(all, "", "  ")
	golden(t, "recordmetadata", append(text, '\n'), err)

	for _, name := range []string{"member", "draining", "left", "again"} {
		got := storage.Member{ID: examplePart}
		format(nil).readMemberMetadata(&got, all[name])
		if again := memberRecord(got); !reflect.DeepEqual(again, goldenRecords()[name]) {
			t.Errorf("the metadata of %s is read as %+v", name, got)
		}
	}
	k, err := format(nil).listedKeyOf(goldenKey().Name, blob.Properties{Metadata: all["key"]})
	if want := driver.ListedKey(goldenKey()); err != nil || k != want {
		t.Errorf("the metadata of key is read as %+v, %v", k, err)
	}
	for _, name := range []string{"stop", "stopped"} {
		got := storage.StopRequest{Plan: examplePlan}
		format(nil).readStopMetadata(&got, all[name])
		if again := stopRecord(got); !reflect.DeepEqual(again, goldenRecords()[name]) {
			t.Errorf("the metadata of %s is read as %+v", name, got)
		}
	}
}

func goldenAuditEntry() storage.AuditEntry {
	day := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	return driver.RecordedAuditEntry(storage.AuditEntry{
		ID: examplePart, What: "purge", By: workflow.Attribution{By: "ops@example.com", Why: "<план>"}, Plans: []uuid.UUID{examplePlan},
		From: storage.DayOf(day), To: storage.DayOf(day), Detail: "--status failed", Result: "done",
	}, day)
}

func TestGoldenAuditEntry(t *testing.T) {
	r, err := auditRecord(goldenAuditEntry())
	must(t, err)
	body, err := format(nil).encodeRecord(r)
	golden(t, "deed", body, err)
	m := format(nil).recordMetadata(r, "write-1")
	text, err := json.MarshalIndent(m, "", "  ")
	golden(t, "deedmetadata", append(text, '\n'), err)
	p := blob.Properties{Metadata: m, LastModified: goldenAuditEntry().Stored}
	if got, err := format(nil).auditEntryOf(examplePart, p); err != nil || !reflect.DeepEqual(got, goldenAuditEntry()) {
		t.Errorf("the audit entry is read as %+v, %v", got, err)
	}
	_, err = format(nil).auditEntryOf(examplePlan, p)
	checkError(t, "another entry", err, storage.ErrCorrupt)
	m[metaSchema] = "2"
	_, err = format(nil).auditEntryOf(examplePart, p)
	checkError(t, "schema 2", err, storage.ErrSchema)
}

func FuzzAuditMetadata(f *testing.F) {
	r, err := auditRecord(goldenAuditEntry())
	if err != nil {
		f.Fatal(err)
	}
	f.Add("1", r.metadata[typeAudit])
	f.Add("1", `{"id":"`+examplePart.String()+`","what":"purge","from":"2026-01-02"}`)
	f.Add("2", "=?")
	f.Fuzz(func(t *testing.T, version, text string) {
		d, err := format(nil).auditEntryOf(examplePart, blob.Properties{Metadata: map[string]string{metaSchema: version, typeAudit: text}})
		if err != nil {
			if !errors.Is(err, storage.ErrCorrupt) && !errors.Is(err, storage.ErrSchema) {
				t.Error(err)
			}
			return
		}
		again, err := auditRecord(d)
		if err != nil || blob.MaxMetadata < len(again.metadata[typeAudit])+200 {
			t.Fatalf("%+v takes %d bytes of metadata: %v", d, len(again.metadata[typeAudit]), err)
		}
		second, err := format(nil).auditEntryOf(examplePart, blob.Properties{Metadata: format(nil).recordMetadata(again, "w")})
		if err != nil || !reflect.DeepEqual(second, d) {
			t.Errorf("%+v is stored and read again as %+v, %v", d, second, err)
		}
	})
}

func FuzzStopMetadata(f *testing.F) {
	f.Add("1", "ops", "=?utf-8?b?YQ==?=")
	f.Add("2", "=?", strings.Repeat("x", 2000))
	f.Fuzz(func(t *testing.T, version, by, why string) {
		var got storage.StopRequest
		format(nil).readStopMetadata(&got, map[string]string{metaSchema: version, metaBy: by, metaWhy: why})
		if err := workflow.CheckAttribution(got.Attribution()); err != nil || version != "1" && got.By+got.Why != "" {
			t.Errorf("%q and %q are read as %+v, %v", by, why, got, err)
		}
	})
}

// FuzzParseAuditName parses no name that the builder does not make.
func FuzzParseAuditName(f *testing.F) {
	name := prefix("p").auditEntry(examplePart).Name
	for _, seed := range []string{name, name[:len(name)-5], "deeds/" + examplePart.String() + ".json", "deeds/000000000000-" + examplePart.String() + ".json", "x"} {
		f.Add(seed)
		if id, ok := parseAuditName(seed); ok != (seed == name) || ok && id != examplePart {
			f.Errorf("%s is parsed as %s, %v", seed, id, ok)
		}
	}
	f.Fuzz(func(t *testing.T, name string) {
		if id, ok := parseAuditName(name); ok && prefix("p").auditEntry(id).Name != name {
			t.Errorf("%q is parsed as %s", name, id)
		}
	})
}

func TestRecordsThatCantBeRead(t *testing.T) {
	for _, test := range []struct {
		what, body string
		want       error
	}{
		{"another type", `{"schema":1,"type":"stop","data":{"plan":"` + examplePart.String() + `"}}`, storage.ErrCorrupt},
		{"another member", `{"schema":1,"type":"member","data":{"id":"` + examplePlan.String() + `"}}`, storage.ErrCorrupt},
		{"no data", `{"schema":1,"type":"member","data":null}`, storage.ErrCorrupt},
		{"a TTL in words", `{"schema":1,"type":"member","data":{"id":"` + examplePart.String() + `","ttl":"long"}}`, storage.ErrCorrupt},
		{"a negative TTL", `{"schema":1,"type":"member","data":{"id":"` + examplePart.String() + `","ttl":"-1s"}}`, storage.ErrCorrupt},
		{"nothing", ``, storage.ErrCorrupt},
		{"schema 2", `{"schema":2,"type":"member","data":["id"]}`, storage.ErrSchema},
		{"schema 0", `{"schema":0,"type":"member","data":{"id":"` + examplePart.String() + `"}}`, storage.ErrCorrupt},
	} {
		_, err := format(nil).decodeRecord([]byte(test.body), goldenName("member"))
		checkError(t, test.what, err, test.want)
	}
	for what, data := range map[string]string{
		"another note":     `{"name":"closed","text":{}}`,
		"no object":        `{"name":"policy","text":[]}`,
		"a long text":      `{"name":"policy","text":{"a":"` + strings.Repeat("a", storage.MaxNote) + `"}}`,
		"a text not UTF-8": `{"name":"policy","text":{"a":"` + "\xff" + `"}}`,
	} {
		_, err := format(nil).decodeRecord([]byte(`{"schema":1,"type":"note","data":`+data+`}`), goldenName("note"))
		checkError(t, what, err, storage.ErrCorrupt)
	}
	holder := `{"plan":"` + examplePlan.String() + `"}`
	for what, data := range map[string]string{
		"another key":       `{"name":"b"}`,
		"a holder twice":    `{"name":"key:<план> A","holders":[` + holder + `,` + holder + `]}`,
		"too many holders":  `{"name":"key:<план> A","holders":[` + strings.Repeat(holder+",", storage.MaxHolders) + holder + `]}`,
		"a holder, no plan": `{"name":"key:<план> A","holders":[{}]}`,
		"a waiter twice":    `{"name":"key:<план> A","waiting":[` + holder + `,` + holder + `]}`,
		"too many waiters":  `{"name":"key:<план> A","waiting":[` + strings.Repeat(holder+",", storage.MaxWaiting) + holder + `]}`,
		"a waiter's time":   `{"name":"key:<план> A","waiting":[{"plan":"` + examplePlan.String() + `","until":"10000-01-01T00:00:00Z"}]}`,
		"a negative limit":  `{"name":"key:<план> A","limit":-1}`,
		"a large limit":     `{"name":"key:<план> A","holders":[{"plan":"` + examplePlan.String() + `","limit":10001}]}`,
	} {
		_, err := format(nil).decodeRecord([]byte(`{"schema":1,"type":"key","data":`+data+`}`), goldenName("key"))
		checkError(t, what, err, storage.ErrCorrupt)
	}
	_, err := format(nil).decodeRecord([]byte(`{"schema":1,"type":"stop","data":{"plan":"`+examplePart.String()+`"}}`), goldenName("stop"))
	checkError(t, "another plan", err, storage.ErrCorrupt)
}

func FuzzDecodeRecord(f *testing.F) {
	fuzzDocument(f, "member", "stop", "note", "key", "draining")
	f.Fuzz(func(t *testing.T, which byte, body []byte) {
		name := goldenName([]string{"member", "stop", "note", "key"}[which%4])
		r, err := format(nil).decodeRecord(body, name)
		if err != nil {
			if !errors.Is(err, storage.ErrCorrupt) && !errors.Is(err, storage.ErrSchema) {
				t.Errorf("%v", err)
			}
			return
		}
		again, err := format(nil).encodeRecord(r)
		if err != nil {
			t.Fatalf("what was read can't be stored: %v", err)
		}
		if second, err := format(nil).decodeRecord(again, name); err != nil || !reflect.DeepEqual(second, r) {
			t.Errorf("what was read as %+v is stored and read again as %+v, %v", r, second, err)
		}
	})
}

func FuzzKeyMetadata(f *testing.F) {
	m := format(nil).recordMetadata(keyRecord(goldenKey()), "w")
	f.Add(m[metaSchema], m[metaLimit], m[metaHolders], m[metaPaused], m[metaAt], m[metaBy], m[metaWhy])
	f.Add("2", "10001", "-1", "soon", "", "=?", strings.Repeat("x", 2000))
	f.Fuzz(func(t *testing.T, version, limit, holders, paused, at, by, why string) {
		m := map[string]string{metaSchema: version, metaLimit: limit, metaHolders: holders, metaPaused: paused, metaAt: at, metaBy: by, metaWhy: why}
		maps.DeleteFunc(m, func(_, v string) bool { return v == "" })
		got, err := format(nil).listedKeyOf("a", blob.Properties{Metadata: m})
		if err != nil && !errors.Is(err, storage.ErrCorrupt) && !errors.Is(err, storage.ErrSchema) {
			t.Error(err)
		}
		if checked := driver.CheckKeyRecord(storage.KeyRecord{Name: "a", Limit: got.Limit, PausedUntil: got.PausedUntil, By: got.By}); err == nil && (checked != nil || got.Holders < 0 || got.Holders > storage.MaxHolders) {
			t.Errorf("%q is read as %+v, %v", m, got, checked)
		}
	})
}

func FuzzMemberMetadata(f *testing.F) {
	m := format(nil).recordMetadata(goldenRecords()["draining"], "w")
	f.Add(m[metaSchema], m[metaName], m[metaStarted], m[metaTTL], examplePlan.String(), m[metaPhase], m[metaLetGo], m[metaTrouble])
	f.Add("2", "=?", "", "1s", examplePlan.String(), "left", "", "")
	f.Add("1", "=?utf-8?b?YQ==?=", "2026-01-02T03:04:05+24:00", "-1s", "me", "Left", strings.Repeat(examplePlan.String()+",", 200), "=?")
	f.Fuzz(func(t *testing.T, version, name, started, ttl, former, phase, letGo, trouble string) {
		m := map[string]string{
			metaSchema: version, metaName: name, metaStarted: started, metaTTL: ttl, metaFormer: former, metaPhase: phase, metaLetGo: letGo, metaTrouble: trouble,
		}
		maps.DeleteFunc(m, func(_, v string) bool { return v == "" })
		var got storage.Member
		format(nil).readMemberMetadata(&got, m)
		newer := version != "1" && (got.Name != "" || !got.Started.IsZero() || got.Former != uuid.Nil || got.LetGo != nil || got.Trouble != "")
		if got.TTL < 0 || len(got.LetGo) > storage.MaxLetGo || !driver.IsPhase(got.Phase) || newer {
			t.Errorf("%q is read as %+v", m, got)
		}
		checkEncoded(t, got.Name)
		checkEncoded(t, got.Trouble)
	})
}

// FuzzParseRecordName parses no name that the builders don't make, such as some of these seeds.
func FuzzParseRecordName(f *testing.F) {
	const id = "019b7c5a-1c80-7000-8000-00000000000a"
	for name, want := range map[string]recordName{
		prefix("p").member(examplePlan).Name: {role: roleMember, id: examplePlan},
		prefix("p").stop(examplePlan).Name:   {role: roleStop, id: examplePlan},
		prefix("p").note("copy-2").Name:      {role: roleNote, name: "copy-2"},
		"keys/key_3aa-_41_c3_a9_5f_2f":       {role: roleKey, name: "key:a-Aé_/"},
	} {
		f.Add(name)
		if got, ok := parseRecordName(name); !ok || got != want {
			f.Errorf("%s is parsed as %v, %v", name, got, ok)
		}
	}
	for _, name := range []string{
		"", "nodes", "nodes/", "nodes/x", "nodes/" + id + "-stop", "nodes/" + id + "/", "nodes/" + id + ".json", "signals/" + id, "signals/" + id + "-pause",
		"signals/-stop", "signals/" + id + "-stop-stop", id, "/nodes/" + id, "Nodes/" + id, "nodes/019B7C5A-1C80-7000-8000-00000000000A",
		"nodes/" + uuid.Nil.String(), "nodes/6ba7b810-9dad-41d1-80b4-00c04fd430c8", "open/" + id,
		"keys/", "keys/A", "keys/a.json", "keys/_41_", "keys/_4", "keys/_zz", "keys/_61", "keys/_2D", "keys/_0a", "keys/_ff", "keys/%41", "keys/" + strings.Repeat("a", storage.MaxKeyRecordName+1),
		"notes/", "notes/A", "notes/a.json", "notes/a/b", "notes/" + strings.Repeat("a", storage.MaxNoteName+1),
	} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		parsed, ok := parseRecordName(name)
		built := prefix("p").member(parsed.id)
		switch parsed.role {
		case roleStop:
			built = prefix("p").stop(parsed.id)
		case roleNote:
			built = prefix("p").note(parsed.name)
		case roleKey:
			built = prefix("p").key(parsed.name)
		}
		if ok && (built.Name != name || parsed.name == "" && !workflow.IsV7(parsed.id)) {
			t.Errorf("%q is parsed as %v, which is named %q", name, parsed, built.Name)
		}
	})
}
