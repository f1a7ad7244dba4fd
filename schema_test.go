package azblob

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/goldentest"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/plugins"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// goldenPlan returns a plan in which at least one object of each kind has every field set, with no random
// values.
func goldenPlan() *workflow.Plan {
	at := time.Date(2026, 1, 2, 3, 4, 5, 678901234, time.UTC)
	n := byte(0)
	id := func() uuid.UUID {
		n++
		return idAt(at, n)
	}
	key := uuid.MustParse("6ba7b810-9dad-41d1-80b4-00c04fd430c8")
	state := func(s workflow.Status) workflow.State {
		return workflow.State{Status: s, Start: at.Add(time.Minute), End: at.Add(time.Hour), ETag: "0x8DE49A7C5A1C800@" + s.String()}
	}
	plan := &workflow.Plan{
		ID: id(), GroupID: uuid.MustParse("6ba7b814-9dad-41d1-80b4-00c04fd430c8"), Name: "golden <план>", Descr: "every field & \"more\"",
		Labels: map[string]string{"env": "golden <план>", "app/team": "", "n": "1"},
		Meta:   []byte(`{"owner": "<golden>"}`), SubmitTime: at, State: state(workflow.Failed), Reason: workflow.BlockFailed,
		RuntimeUpdate: at.Add(time.Hour), Owner: idAt(at, 200), Epoch: 3, WakeAt: at.Add(26 * time.Hour), LastSignal: 7, NotBefore: at.Add(time.Second), Deadline: at.Add(50 * time.Hour), ForkedFrom: idAt(at, 201),
		Submitted: workflow.Actor{By: "<shop>@example.com, план", From: "orders-2 & request 7"},
		Forked:    workflow.Attribution{By: "<golden>@example.com", Why: "once more"},
		Stopped:   workflow.Attribution{By: "root@host", Why: "wrong & late", At: at.Add(time.Minute)},
		Ending:    workflow.Ending{Reason: workflow.BlockFailed, At: at.Add(time.Hour), Trouble: "the hook was <given> up"},
		External:  workflow.External{Name: "queue <1>", Ask: "queue show & wait"}, Alone: true,
		Keys: []workflow.Key{{Name: "west", Limit: 3}, {Name: "an <API> & more"}}, KeepTurn: workflow.KeepWhileAwake, Unique: "customer <7>", WaitsFor: "west",
		Paused: workflow.Attribution{By: "ops", Why: "the <cluster> is full", At: at.Add(2 * time.Minute)},
	}
	action := func(name string) *workflow.Action {
		return &workflow.Action{
			ID: id(), PlanID: plan.ID, Key: key, Name: name, Descr: "an action", Plugin: plantest.PluginName,
			Timeout: 90 * time.Second, Retries: 2,
			Req: plantest.Request{Text: "<request>", Number: 1 << 60, Options: map[string]string{"b": "", "a": "1"}, Payload: []byte{0, 255}},
			Attempts: []workflow.Attempt{
				{
					Err:   &plugins.Error{Code: 7, Message: "no & never", Permanent: true, After: 90 * time.Second, Wrapped: &plugins.Error{Code: 8, Message: "behind it"}},
					Start: at.Add(time.Minute), End: at.Add(61 * time.Second), Interrupted: true, Paused: true, Owner: examplePart,
					Later: &workflow.Later{At: at.Add(25 * time.Hour), Called: true, LastSignal: 6, For: "an order & more", State: json.RawMessage(`{"order":"<7>"}`)},
				},
				{
					Resp: &plantest.Response{Text: "<response>", OK: true}, Start: at.Add(2 * time.Minute), End: at.Add(121 * time.Second),
					Skipped: &workflow.Attribution{By: "ops & co", Why: "<paid> by hand", At: at.Add(time.Hour)},
				},
			},
			State: state(workflow.Completed),
		}
	}
	allChecks := func(o workflow.Object) {
		for i, c := range workflow.ChecksOf(o) {
			*c = &workflow.Checks{ID: id(), PlanID: plan.ID, Key: key, Delay: time.Duration(i+1) * 1500 * time.Millisecond, State: state(workflow.Stopped)}
			if i == 0 {
				(*c).Actions = []*workflow.Action{action("check")}
			}
		}
	}
	allChecks(plan)
	block := &workflow.Block{
		ID: id(), PlanID: plan.ID, Key: key, Name: "block", Descr: "a block", EntranceDelay: time.Millisecond, ExitDelay: 26 * time.Hour,
		Concurrency: 3, ToleratedFailures: -1, State: state(workflow.Failed),
	}
	allChecks(block)
	block.Sequences = []*workflow.Sequence{
		{
			ID: id(), PlanID: plan.ID, Key: key, Name: "sequence", Descr: "a sequence",
			Actions: []*workflow.Action{action("first"), action("second")}, State: state(workflow.Completed),
		},
		{ID: id(), PlanID: plan.ID, Name: "empty"},
	}
	first, second := block.Sequences[0].Actions[0], block.Sequences[0].Actions[1]
	first.AtMost, second.Idempotent, second.Retries, second.NoRetries = 2, true, 0, true
	first.Backoff = plugins.Backoff{First: time.Second, Factor: 1.5, Most: time.Hour, Jitter: 0.25}
	first.Secrets = []string{"/req/Options/token"}
	plan.Blocks = []*workflow.Block{block}
	plan.DeferredActions = &workflow.DeferredActions{ID: id(), PlanID: plan.ID, State: state(workflow.Completed)}
	plan.DeferredActions.Batches = []*workflow.DeferBatch{{
		ID: id(), PlanID: plan.ID, Key: key, Name: "batch", Descr: "a batch", When: workflow.Always, FailElement: true,
		Actions: []*workflow.Action{action("deferred")}, State: state(workflow.Completed),
	}}
	return plan
}

// goldenParts returns the first sub-object of each kind in goldenPlan.
func goldenParts(plan *workflow.Plan) map[workflow.Kind]workflow.Object {
	parts := map[workflow.Kind]workflow.Object{}
	for o := range workflow.Walk(plan) {
		if parts[o.Kind()] == nil && o.Kind() != workflow.KindPlan {
			parts[o.Kind()] = o
		}
	}
	return parts
}

// TestGoldenPlanSetsEveryField fails when a new field of the model is not in the golden files.
func TestGoldenPlanSetsEveryField(t *testing.T) {
	set := map[string]bool{}
	note := func(v reflect.Value) {
		for i := range v.NumField() {
			if f := v.Type().Field(i); !f.IsExported() || f.Tag.Get("json") == "-" {
				continue
			}
			name := v.Type().Name() + "." + v.Type().Field(i).Name
			set[name] = set[name] || !v.Field(i).IsZero()
		}
	}
	for o := range workflow.Walk(goldenPlan()) {
		note(reflect.ValueOf(o).Elem())
		note(reflect.ValueOf(*o.Header().State))
		if a, ok := o.(*workflow.Action); ok {
			for _, attempt := range a.Attempts {
				note(reflect.ValueOf(attempt))
				if attempt.Err != nil {
					note(reflect.ValueOf(*attempt.Err))
				}
			}
		}
	}
	for name, ok := range set {
		if !ok {
			t.Errorf("%s is nowhere set: set it, and write the golden files again", name)
		}
	}
}

// document is a document of a plan, as its golden file has it.
type document struct {
	name   string
	object workflow.Object // what the document has
	encode func(workflow.Object) ([]byte, error)
	decode func(body []byte) (workflow.Object, error)
}

// documents returns the entry and the object of a plan, and one document of each kind of sub-object. They are made
// from the plan itself.
func documents(plan *workflow.Plan) []document {
	var f format
	whole := *plan
	whole.State.ETag = "" // which the entry tells
	list := []document{
		{"entry", alone(plan), func(o workflow.Object) ([]byte, error) { return f.encodeEntry(o.(*workflow.Plan)) }, func(body []byte) (workflow.Object, error) {
			return f.decodeEntry(body, plan.ID)
		}},
		{"object", &whole, func(o workflow.Object) ([]byte, error) { return f.encodeObject(o.(*workflow.Plan)) }, func(body []byte) (workflow.Object, error) {
			return f.decodeObject(body, plan.ID)
		}},
	}
	for kind, o := range goldenParts(plan) {
		list = append(list, document{strings.ToLower(kind.String()), alone(o), f.encodePart, func(body []byte) (workflow.Object, error) {
			return f.decodePart(body, kindOf(o), plan.ID, *o.Header().ID)
		}})
	}
	slices.SortFunc(list, func(a, b document) int { return strings.Compare(a.name, b.name) })
	return list
}

// alone returns what the blob of an object has.
func alone(o workflow.Object) workflow.Object {
	a := kindOf(o).withoutChildren(o)
	a.Header().State.ETag = ""
	return a
}

func TestGoldenDocuments(t *testing.T) {
	plan, before := goldenPlan(), goldenPlan()
	list := documents(plan)
	if len(list) != 2+len(kinds) {
		t.Errorf("the plan has %d kinds of documents", len(list))
	}
	for _, d := range list {
		body, err := d.encode(d.object)
		golden(t, d.name, body, err)
	}
	if !reflect.DeepEqual(plan, before) {
		t.Error("encoding has changed the plan")
	}
}

func TestGoldenMetadata(t *testing.T) {
	plan := goldenPlan()
	all := map[string]map[string]string{}
	var err error
	note := func(name string, m map[string]string, e error) {
		all[name] = m
		err = errors.Join(err, e)
	}
	m, e := format(nil).planMetadata(plan, typeEntry, "write-1", planMarks{})
	note("entry", m, e)
	m, e = format(nil).planMetadata(plan, typeObject, "write-2", planMarks{})
	note("object", m, e)
	for kind, o := range goldenParts(plan) {
		m, e := format(nil).partMetadata(o, "write-3")
		note(kind.String(), m, e)
	}
	plan.Owner, plan.Epoch = uuid.Nil, 0
	plan.GroupID, plan.Name, plan.Descr = uuid.Nil, strings.Repeat("name ", 2000), strings.Repeat("описание ", 2000)
	m, e = format(nil).planMetadata(plan, typeEntry, "write-4", planMarks{})
	note("cut entry", m, e)
	text, marshalErr := json.MarshalIndent(all, "", "  ")
	golden(t, "metadata", append(text, '\n'), errors.Join(err, marshalErr))
}

// golden compares what was encoded with a golden file.
func golden(t *testing.T, name string, got []byte, err error) {
	t.Helper()
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return
	}
	goldentest.Equal(t, filepath.Join("testdata", "schema1", name+".json"), got)
}

func readGolden(t testing.TB, name string) []byte {
	t.Helper()
	body, err := os.ReadFile(filepath.Join("testdata", "schema1", name+".json"))
	must(t, err)
	return body
}

// TestGoldenDocumentsAreRead reads the documents that programs with schema 1 have stored, also those that lack the
// fields that were added later, which are then zero.
func TestGoldenDocumentsAreRead(t *testing.T) {
	older := goldenPlan()
	older.RuntimeUpdate, older.Owner, older.Epoch, older.ForkedFrom = time.Time{}, uuid.Nil, 0, uuid.Nil
	older.External, older.Alone = workflow.External{}, false
	older.Keys, older.KeepTurn, older.Unique, older.WaitsFor = nil, workflow.KeepAlways, "", ""
	older.WakeAt, older.LastSignal, older.NotBefore, older.Deadline, older.Paused, older.Labels, older.Submitted, older.Forked, older.Stopped, older.Ending = time.Time{}, 0, time.Time{}, time.Time{}, workflow.Attribution{}, nil, workflow.Actor{}, workflow.Attribution{}, workflow.Attribution{}, workflow.Ending{}
	for o := range workflow.Walk(older) {
		switch o := o.(type) {
		case *workflow.Action:
			o.Attempts[0].Err.Wrapped, o.Attempts[0].Interrupted, o.Attempts[0].Owner, o.Idempotent, o.AtMost, o.Secrets = nil, false, uuid.Nil, false, 0, nil
			o.Attempts[1].Skipped, o.Attempts[0].Later, o.Attempts[0].Paused = nil, nil, false
			o.Attempts[0].Err.After, o.Backoff, o.NoRetries, o.Retries = 0, plugins.Backoff{}, false, 2
		case *workflow.DeferBatch:
			o.Key = uuid.Nil
		}
	}
	for dir, plan := range map[string]*workflow.Plan{"": goldenPlan(), "older/": older} {
		for _, d := range documents(plan) {
			got, err := d.decode(readGolden(t, dir+d.name))
			switch o := got.(type) {
			case *workflow.Plan:
				err = errors.Join(err, driver.Bind(o, plantest.Register()))
			case *workflow.Action:
				err = errors.Join(err, driver.Bind(planWith(o), plantest.Register()))
			}
			if err != nil || !reflect.DeepEqual(dropEmptyLists(got), dropEmptyLists(d.object)) {
				t.Errorf("%s%s is read with the error %v as\n%s\nnot\n%s", dir, d.name, err, asJSON(t, got), asJSON(t, d.object))
			}
		}
	}

	plan := goldenPlan()
	var all map[string]map[string]string
	must(t, json.Unmarshal(readGolden(t, "metadata"), &all))
	for _, docType := range []string{typeEntry, typeObject} {
		r, cut, err := format(nil).parseMetadata(all[docType], plan.ID, docType)
		want := driver.Listed(plan)
		want.State.ETag = ""
		if err != nil || len(cut) != 0 || !reflect.DeepEqual(r, want) {
			t.Errorf("the metadata of the %s is read as %+v, cut %q, %v", docType, r, cut, err)
		}
	}
}

// planWith returns a plan around one action.
func planWith(a *workflow.Action) *workflow.Plan {
	return &workflow.Plan{Blocks: []*workflow.Block{{Sequences: []*workflow.Sequence{{Actions: []*workflow.Action{a}}}}}}
}

// dropEmptyLists replaces empty lists with nil, as JSON does.
func dropEmptyLists(o workflow.Object) workflow.Object {
	v := reflect.ValueOf(o).Elem()
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() == reflect.Slice && f.Len() == 0 {
			f.SetZero()
		}
	}
	return o
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.MarshalIndent(v, "", " ")
	must(t, err)
	return string(text)
}

// TestDocumentsOfOtherSchemasAndDamagedOnes changes golden documents in one place.
func TestDocumentsOfOtherSchemasAndDamagedOnes(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	plan := goldenPlan()
	other := idAt(time.UnixMilli(1), 1).String()
	// edit sets a member of a document, or one of its data, such as "data.id". Without a value it removes it.
	edit := func(body []byte, member, value string) []byte {
		var doc, data map[string]json.RawMessage
		must(t, json.Unmarshal(body, &doc))
		must(t, json.Unmarshal(doc["data"], &data))
		in, name := doc, member
		if of, ok := strings.CutPrefix(member, "data."); ok {
			in, name = data, of
		}
		in[name] = json.RawMessage(value)
		if value == "" {
			delete(in, name)
		}
		if member != name {
			doc["data"] = mustJSON(t, data)
		}
		return mustJSON(t, doc)
	}
	edits := []struct {
		member, value string
		want          error
	}{
		{"schema", "1", nil},
		{"schema", "2", storage.ErrSchema},
		{"schema", "0", storage.ErrCorrupt},
		{"schema", "", storage.ErrCorrupt},
		{"schema", "null", storage.ErrCorrupt},
		{"schema", `"1"`, storage.ErrCorrupt},
		{"schema", "1e400", storage.ErrCorrupt},
		{"type", `"x"`, storage.ErrCorrupt},
		{"type", "", storage.ErrCorrupt},
		{"data", "", storage.ErrCorrupt},
		{"data", "null", storage.ErrCorrupt},
		{"data", "{}", storage.ErrCorrupt},
		{"data.id", `"` + other + `"`, storage.ErrCorrupt},
		{"data.id", "", storage.ErrCorrupt},
		{"data.id", `"x"`, storage.ErrCorrupt},
		{"data.state", `{"status":"Gone"}`, storage.ErrCorrupt},
		{"data.state", `{"status":"Running","start":"yesterday"}`, storage.ErrCorrupt},
		{"data.state", `"Running"`, storage.ErrCorrupt},
	}
	all := documents(plan)
	for _, d := range all {
		check := func(what string, body []byte, want error) {
			_, err := d.decode(body)
			checkError(t, d.name+", "+what, err, want)
		}
		body := readGolden(t, d.name)
		for _, test := range edits {
			check(test.member+" is "+test.value, edit(body, test.member, test.value), test.want)
		}
		check("other spacing", slices.Concat([]byte("\n "), body, []byte("\n")), nil)
		for _, broken := range [][]byte{
			nil, []byte("null"), []byte("[]"), []byte("<html>"), body[:len(body)/2], body[:len(body)-1], slices.Concat(body[:len(body)-1], []byte("]")), slices.Concat(body, []byte("{")), slices.Concat(body, body),
		} {
			check(fmt.Sprintf("%.20q, %d bytes", broken, len(broken)), broken, storage.ErrCorrupt)
		}
		for _, other := range all {
			if other.name != d.name {
				check(other.name+" in its place", readGolden(t, other.name), storage.ErrCorrupt)
			}
		}
		if d.object.Kind() != workflow.KindPlan {
			check("of another plan", edit(body, "data.planID", `"`+other+`"`), storage.ErrCorrupt)
			check("of no plan", edit(body, "data.planID", ""), storage.ErrCorrupt)
		}
	}
	// The decoders read only the schema of a document that newer code wrote.
	for _, body := range []string{`{"schema":2}`, `{"schema":2,"type":"entry","data":[]}`, `{"schema":2,"type":7}`, `{"type":{"kind":"entry"},"schema":4}`, `{"schema":2,"data":null}`} {
		_, err := format(nil).decodeEntry([]byte(body), plan.ID)
		checkError(t, body, err, storage.ErrSchema)
	}
}

// TestObjectsThatMakeNoSense decodes well-formed documents that can't be plans, which workflow.Validate finds.
func TestObjectsThatMakeNoSense(t *testing.T) {
	for what, change := range map[string]func(p *workflow.Plan){
		"null block":            func(p *workflow.Plan) { p.Blocks = append(p.Blocks, nil) },
		"repeated ID":           func(p *workflow.Plan) { p.Blocks[0].ID = p.BypassChecks.ID },
		"action without plugin": func(p *workflow.Plan) { p.Blocks[0].Sequences[0].Actions[0].Plugin = "" },
	} {
		p := goldenPlan()
		change(p)
		body, err := format(nil).encodeObject(p)
		must(t, err)
		_, err = format(nil).decodeObject(body, p.ID)
		checkError(t, what, err, storage.ErrCorrupt)
	}
}

func checkError(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: %v", what, err)
	}
	for _, other := range []error{storage.ErrSchema, storage.ErrCorrupt} {
		if !errors.Is(want, other) && errors.Is(err, other) {
			t.Errorf("%s is %v, too: %v", what, other, err)
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	must(t, err)
	return text
}

func TestEveryKindHasOneRow(t *testing.T) {
	n := 0
	for of := workflow.KindChecks; !strings.Contains(of.String(), "("); of++ {
		i := slices.IndexFunc(kinds[:], func(row kind) bool { return row.of == of })
		if n++; i < 0 || kinds[i].empty().Kind() != of || !regexp.MustCompile("^[a-z]+/$").MatchString(kinds[i].dir) {
			t.Errorf("the row of %s is %d", of, i)
		}
	}
	if n != len(kinds) || kindOf(new(workflow.Plan)).of != workflow.KindPlan {
		t.Errorf("%d rows for %d kinds of sub-objects", len(kinds), n)
	}
}

// TestCopyOwnFields gives every object of a plan the fields of its own blob, which has only the IDs of its children.
func TestCopyOwnFields(t *testing.T) {
	plan, want := goldenPlan(), goldenPlan()
	for _, o := range append(workflow.Parts(plan), plan) {
		own := alone(o)
		own.Header().State.Status = workflow.NotStarted
		kindOf(o).copyOwnFields(o, own)
	}
	for o := range workflow.Walk(want) {
		o.Header().State.Status, o.Header().State.ETag = workflow.NotStarted, ""
	}
	if !reflect.DeepEqual(plan, want) {
		t.Errorf("the plan is\n%s\nnot\n%s", asJSON(t, plan), asJSON(t, want))
	}
}

// checkEncoded checks that an encoded text is valid in a header, and decodes it.
func checkEncoded(t *testing.T, s string) {
	t.Helper()
	e := encodeText(s)
	if !fitForHeader(e) {
		t.Errorf("%.60q is encoded to %.60q, which a server may change", s, e)
	}
	back, err := decodeText(e)
	if err != nil || back != s {
		t.Errorf("%.60q is encoded to %.60q and read as %.60q, %v", s, e, back, err)
	}
}

// fitForHeader reports whether a value is visible ASCII with single inner blanks only.
func fitForHeader(s string) bool {
	return !strings.Contains(s, "  ") && strings.Trim(s, " ") == s && strings.IndexFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) < 0
}

func TestDecodeTextOfOthers(t *testing.T) {
	for _, test := range []struct{ encoded, want string }{
		{"=?utf-8?b?0L/Qu9Cw0L0=?=", "план"},
		{"=?UTF-8?B?0L/Qu9Cw0L0=?=", "план"},
		{"=?UTF-8?q?=D0=BF=D0=BB=D0=B0=D0=BD?=", "план"},
		{"=?iso-8859-1?q?caf=E9?=", "café"},
		{"my =?utf-8?q?caf=C3=A9?= here", "my café here"},
	} {
		if got, err := decodeText(test.encoded); err != nil || got != test.want {
			t.Errorf("%q is read as %q, %v", test.encoded, got, err)
		}
	}
	for _, s := range []string{"", "plain", "a b c", "a=b?c", "?=", "~!@#$%^&*()_+{}|:\"<>?`-=[]\\;',./"} {
		if got := encodeText(s); got != s {
			t.Errorf("%q needs no encoding, and became %q", s, got)
		}
	}
	for _, s := range []string{"=?", "=?utf-8?b?YQ==", "=?no-such-set?q?a?="} {
		if got, err := decodeText(s); err == nil {
			t.Errorf("%q is read as %q", s, got)
		}
	}
}

func TestPlanMetadataFits(t *testing.T) {
	efforttest.NotShort(t, "there is nothing concurrent in it")
	plan := goldenPlan()
	alphabets := map[string]string{"ASCII": "abc", "with blanks": "a b  ", "two bytes": "дё", "three bytes": "計画", "four bytes": "🚀", "mixed": "a 計🚀é", "like encoded": "=?utf-8?b?"}
	sizes := []int{0, 1, 2, 75, 1000, 3000, 3900, 4000, 4100, 5800, 5900, 6000, 7700, 7800, 7900, 8000, 8100, 8192, 8193, 10_000, 20_000}
	for alphabetName, alphabet := range alphabets {
		for _, nameSize := range sizes {
			for _, descrSize := range sizes {
				plan.Name, plan.Descr = textOf(alphabet, nameSize), textOf(alphabet, descrSize)
				what := fmt.Sprintf("%s, name of %d and descr of %d bytes", alphabetName, len(plan.Name), len(plan.Descr))
				checkPlanMetadata(t, what, plan)
			}
		}
	}
	// Around the limit, byte by byte: without name, without descr, and with both.
	for n := 7000; n < 8192; n++ {
		plan.Name, plan.Descr = "", strings.Repeat("d", n)
		checkPlanMetadata(t, fmt.Sprintf("descr of %d bytes", n), plan)
		plan.Name, plan.Descr = strings.Repeat("n", n), ""
		checkPlanMetadata(t, fmt.Sprintf("name of %d bytes", n), plan)
		plan.Name, plan.Descr = strings.Repeat("n", n/2), strings.Repeat("d", n-n/2)
		checkPlanMetadata(t, fmt.Sprintf("name and descr of %d bytes together", n), plan)
	}
}

// TestLabelsAreNeverCut has the longest labels and keys and the longest submitter beside long names and descriptions.
func TestLabelsAreNeverCut(t *testing.T) {
	plan := goldenPlan()
	plan.Submitted.By, plan.External.Name, plan.WaitsFor = textOf("計", workflow.MaxBy), textOf("列", workflow.MaxBy), textOf("鍵", workflow.MaxKeyName)
	plan.Keys, plan.Unique, plan.State.Status = nil, textOf("一", workflow.MaxKeyName), workflow.Running
	for i := range workflow.MaxKeys {
		plan.Keys = append(plan.Keys, workflow.Key{Name: textOf("鍵", workflow.MaxKeyName-1) + string(rune('z'-i))})
	}
	plan.Labels = map[string]string{}
	for i := range workflow.MaxLabels {
		plan.Labels[strings.Repeat("k", workflow.MaxLabelKey-1)+string(rune('a'+i))] = textOf("計", workflow.MaxLabelValue)
	}
	for _, size := range []int{0, 1000, 20_000} {
		plan.Name, plan.Descr = textOf("計画", size), textOf("abc", size)
		checkPlanMetadata(t, fmt.Sprintf("name and descr of about %d bytes", size), plan)
	}
}

// textOf repeats an alphabet up to a size in bytes, without cutting a character.
func textOf(alphabet string, size int) string {
	s := strings.Repeat(alphabet, size/len(alphabet)+1)[:size]
	for !utf8.ValidString(s) {
		s = s[:len(s)-1]
	}
	return s
}

// checkPlanMetadata checks a plan's metadata against the service's limit and the plan.
func checkPlanMetadata(t *testing.T, what string, plan *workflow.Plan) {
	t.Helper()
	m, err := format(nil).planMetadata(plan, typeObject, strings.Repeat("f", 36), planMarks{})
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	size := 0
	for name, value := range m {
		size += len(name) + len(value)
		if !fitForHeader(value) {
			t.Errorf("%s: %s is %.60q", what, name, value)
		}
	}
	if size > blob.MaxMetadata {
		t.Errorf("%s: the metadata has %d bytes", what, size)
	}
	r, cut, err := format(nil).parseMetadata(m, plan.ID, typeObject)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	whole := len(encodeText(plan.Name)) + len(encodeText(plan.Descr))
	if others := size - len(m[metaName]) - len(m[metaDescr]) - len(m[metaCut]); len(cut) > 0 && others+whole <= blob.MaxMetadata-len(metaName)-len(metaDescr) {
		t.Errorf("%s: %q were cut without need", what, cut)
	}
	for _, field := range []struct{ name, was, is string }{{metaName, plan.Name, r.Name}, {metaDescr, plan.Descr, r.Descr}} {
		if !slices.Contains(cut, field.name) {
			if field.is != field.was {
				t.Errorf("%s: %s is listed otherwise, and not marked as cut", what, field.name)
			}
			continue
		}
		switch {
		case field.is == field.was:
			t.Errorf("%s: %s is marked as cut, and whole", what, field.name)
		case !strings.HasPrefix(field.was, field.is):
			t.Errorf("%s: %s is no beginning of what it was", what, field.name)
		case !utf8.ValidString(field.is):
			t.Errorf("%s: %s is cut within a character", what, field.name)
		case len(field.is) < 400:
			t.Errorf("%s: only %d bytes are left of %s", what, len(field.is), field.name)
		}
	}
	if r.State.Status != plan.State.Status || !r.SubmitTime.Equal(plan.SubmitTime) || r.GroupID != plan.GroupID || r.SubmittedBy != plan.Submitted.By || r.Owner != plan.Owner || r.Epoch != plan.Epoch || r.ForkedFrom != plan.ForkedFrom || !maps.Equal(r.Labels, plan.Labels) || r.WaitsFor != driver.Listed(plan).WaitsFor || r.Unique != driver.Listed(plan).Unique || r.KeepTurn != driver.Listed(plan).KeepTurn || !slices.Equal(r.Keys, driver.Listed(plan).Keys) || !r.Deadline.Equal(driver.Listed(plan).Deadline) {
		t.Errorf("%s: %+v is listed", what, r)
	}
}

func TestMetadataThatCantBeRead(t *testing.T) {
	plan := goldenPlan()
	for _, test := range []struct {
		what, name, value string
		want              error
	}{
		{"schema 4", metaSchema, "4", storage.ErrSchema},
		{"schema 0", metaSchema, "0", storage.ErrCorrupt},
		{"no schema", metaSchema, "", storage.ErrCorrupt},
		{"schema in words", metaSchema, "one", storage.ErrCorrupt},
		{"another plan", metaPlanID, uuid.NewString(), storage.ErrCorrupt},
		{"no plan", metaPlanID, "", storage.ErrCorrupt},
		{"another document", metaPlanType, typeEntry, storage.ErrCorrupt},
		{"no document", metaPlanType, "", storage.ErrCorrupt},
		{"bad group", metaGroupID, "x", storage.ErrCorrupt},
		{"empty group", metaGroupID, "", storage.ErrCorrupt},
		{"bad owner", metaOwner, "x", storage.ErrCorrupt},
		{"no owner", metaOwner, uuid.Nil.String(), storage.ErrCorrupt},
		{"an owner that is no node", metaOwner, uuid.NewString(), storage.ErrCorrupt},
		{"an owner in another form", metaOwner, strings.ToUpper(plan.Owner.String()), storage.ErrCorrupt},
		{"bad epoch", metaEpoch, "3.5", storage.ErrCorrupt},
		{"no epoch", metaEpoch, "", storage.ErrCorrupt},
		{"epoch 0", metaEpoch, "0", storage.ErrCorrupt},
		{"an epoch that is too large", metaEpoch, "9223372036854775808", storage.ErrCorrupt},
		{"bad time", metaSubmitTime, "2026-02-30T00:00:00Z", storage.ErrCorrupt},
		{"no time", metaSubmitTime, "", storage.ErrCorrupt},
		{"no state", metaState, "", storage.ErrCorrupt},
		{"unknown status", metaState, `{"status":"Gone"}`, storage.ErrCorrupt},
		{"half a state", metaState, `{"status":"Run`, storage.ErrCorrupt},
		{"bad name", metaName, "=?utf-8?b?YQ==", storage.ErrCorrupt},
		{"bad labels", metaLabels, "env=prod,team", storage.ErrCorrupt},
		{"labels of another set", metaLabels, "=?no-such-set?q?a?=", storage.ErrCorrupt},
		{"bad descr", metaDescr, "=?no-such-set?q?a?=", storage.ErrCorrupt},
	} {
		m, err := format(nil).planMetadata(plan, typeObject, "w", planMarks{})
		must(t, err)
		m[test.name] = test.value
		_, _, err = format(nil).parseMetadata(m, plan.ID, typeObject)
		checkError(t, test.what, err, test.want)
	}
}

// TestForms tells what another program wrote from what a vault wrote. Whatever is lost of a vault's blob, even if
// something of the other form comes in its place, it stays the vault's.
func TestForms(t *testing.T) {
	efforttest.NotShort(t, "it starts no goroutine")
	plan, number := goldenPlan(), `{"Status":3,"Start":"2026-01-02T03:04:05Z"}`
	theirs := map[string]string{metaPlanID: plan.ID.String(), metaPlanType: typeEntry, metaState: number}
	for state, want := range map[string]bool{
		number: true, `{"STATUS":0}`: true, `{"status":-1.5e3}`: true, `{"Status":"3"}`: false, `{"Status":null}`: false, `{"Start":1}`: false,
		`{"Status":3`: false, `{"Status":true}`: false, `3`: false, `[]`: false, ``: false,
	} {
		theirs[metaState] = state
		if isForeign(theirs) != want {
			t.Errorf("foreign by the state %s: %t", state, !want)
		}
	}
	theirs[metaState] = number
	_, _, err := format(nil).parseMetadata(theirs, plan.ID, typeEntry)
	checkError(t, "metadata", err, storage.ErrForeign)

	ours, err := format(nil).planMetadata(plan, typeObject, "w", planMarks{})
	must(t, err)
	for name := range ours {
		for _, value := range []string{"", number} {
			damaged := maps.Clone(ours)
			if damaged[name] = value; value == "" {
				delete(damaged, name)
			}
			if isForeign(damaged) {
				t.Errorf("foreign by the loss of %s", name)
			}
		}
	}
	for _, mark := range []string{metaSchema, blob.WriteID} {
		if isForeign(map[string]string{metaState: number, mark: "x"}) {
			t.Errorf("foreign beside %s", mark)
		}
	}
	for body, want := range map[string]bool{
		`{"type":1}`: true, `{"id":"x","TYPE":-2,"data":{}}`: true, `{"type":1,"schema":null}`: false, `{"type":1,"Schema":1}`: false,
		`{"type":"entry"}`: false, `{"type":"1"}`: false, `{"type":null}`: false, `{}`: false, `1`: false, `{"type":1`: false, ``: false,
	} {
		_, err := format(nil).decodeEntry([]byte(body), plan.ID)
		if errors.Is(err, storage.ErrForeign) != want || errors.Is(err, storage.ErrCorrupt) == want {
			t.Errorf("%s: %v", body, err)
		}
	}
	for _, d := range documents(plan) {
		body := readGolden(t, d.name)
		for i := range body {
			for _, damaged := range [][]byte{body[:i], body[i:], slices.Replace(bytes.Clone(body), i, i+1, '1')} {
				if isForeignDocument(damaged) {
					t.Errorf("%s: foreign after damage at byte %d", d.name, i)
				}
			}
		}
	}
}

func TestPlanVersions(t *testing.T) {
	for _, test := range []struct{ version, entry, object string }{{"", "", ""}, {"0x1@Running", "0x1", ""}, {planVersion("0x1", "0x2", true, goldenPlan()), "0x1", "0x2"}} {
		if entry, object := splitPlanVersion(test.version); entry != test.entry || object != test.object {
			t.Errorf("%q is read as %q and %q", test.version, entry, object)
		}
	}
}

func FuzzDecodeText(f *testing.F) {
	for s := range plantest.Strange() {
		f.Add(s)
		f.Add(encodeText(s))
		if len(s) < 30 {
			for _, more := range []string{"x" + s + "y", s + s, s + " " + s, "=?utf-8?b?" + s + "?="} {
				f.Add(more)
			}
		}
	}
	for r := rune(0); r < 0x180; r++ {
		f.Add("a" + string(r) + "b")
	}
	f.Add("=?iso-8859-1?q?caf=E9?= =?utf-8?b?YQ==?=")
	f.Fuzz(func(t *testing.T, s string) {
		if text, err := decodeText(s); err == nil {
			checkEncoded(t, text)
		}
		checkEncoded(t, s)
	})
}

func FuzzListed(f *testing.F) {
	plan := goldenPlan()
	for _, docType := range []string{typeEntry, typeObject} {
		m, err := format(nil).planMetadata(plan, docType, "w", planMarks{})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(m[metaSchema], m[metaPlanID], m[metaGroupID], m[metaName], m[metaDescr], m[metaSubmitTime], m[metaState], m[metaPlanType], m[metaCut], m[metaOwner], m[metaEpoch])
	}
	f.Add("", plan.ID.String(), "", "n", "", "", `{"Status":2}`, typeEntry, "", "", "")
	f.Add("2", "", "", "", "", "", "null", "", "name,descr", "", "1")
	f.Add("1", plan.ID.String(), plan.GroupID.String(), "=?", "=?utf-8?b?YQ==?=", "2026-01-02T03:04:05+24:00", "{}", typeEntry, ",,", uuid.Nil.String(), "-1")
	f.Fuzz(func(t *testing.T, schemaText, id, group, name, descr, submitted, state, docType, cutText, owner, epoch string) {
		m := map[string]string{
			metaSchema: schemaText, metaPlanID: id, metaGroupID: group, metaName: name, metaDescr: descr,
			metaSubmitTime: submitted, metaState: state, metaPlanType: docType, metaCut: cutText,
			metaOwner: owner, metaEpoch: epoch,
		}
		maps.DeleteFunc(m, func(_, v string) bool { return v == "" })
		r, _, err := format(nil).parseMetadata(m, plan.ID, typeEntry)
		if err != nil {
			if !errors.Is(err, storage.ErrCorrupt) && !errors.Is(err, storage.ErrSchema) || errors.Is(err, storage.ErrForeign) && schemaText != "" {
				t.Errorf("%v", err)
			}
			return
		}
		if r.ID != plan.ID || id != plan.ID.String() || docType != typeEntry || !r.State.Status.Valid() || workflow.IsV7(r.Owner) != (r.Epoch > 0) || r.Epoch < 0 {
			t.Errorf("%q is listed as %+v", m, r)
		}
		for _, text := range []string{r.Name, r.Descr} {
			checkEncoded(t, text)
		}
	})
}

// fuzzDocument seeds a fuzz target with golden documents and damaged ones.
func fuzzDocument(f *testing.F, names ...string) {
	for i, name := range names {
		body := readGolden(f, name)
		f.Add(byte(i), body)
		f.Add(byte(i), body[:len(body)/2])
		f.Add(byte(i), bytes.Replace(body, []byte(`"schema":1`), []byte(`"schema":2`), 1))
		f.Add(byte(i), bytes.ReplaceAll(body, []byte(`{"id"`), []byte(`null,{"id"`)))
	}
	f.Add(byte(0), []byte(`{"schema":1,"type":"entry","data":null}`))
	f.Add(byte(0), []byte(`{"type":1,"Type":7,"id":"x"}`))
}

// numbersItsType reports whether a document has a number as its type, and no schema.
func numbersItsType(body []byte) (number bool) {
	var members map[string]any
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	if d.Decode(&members) != nil {
		return false
	}
	for name, value := range members {
		if strings.EqualFold(name, "schema") {
			return false
		}
		_, is := value.(json.Number)
		number = number || is && strings.EqualFold(name, "type")
	}
	return number
}

// FuzzDecode decodes the documents of a plan. A document that was read must encode to one that reads the same.
func FuzzDecode(f *testing.F) {
	plan := goldenPlan()
	all := documents(plan)
	var names []string
	for _, d := range all {
		names = append(names, d.name)
	}
	fuzzDocument(f, names...)
	f.Fuzz(func(t *testing.T, which byte, body []byte) {
		d := all[int(which)%len(all)]
		o, err := d.decode(body)
		if err != nil {
			if !errors.Is(err, storage.ErrCorrupt) && !errors.Is(err, storage.ErrSchema) {
				t.Errorf("%v", err)
			}
			if errors.Is(err, storage.ErrForeign) && !numbersItsType(body) {
				t.Errorf("%q is not another program's", body)
			}
			return
		}
		h, want := o.Header(), d.object.Header()
		if *h.ID != *want.ID || *h.PlanID != *want.PlanID || o.Kind() != d.object.Kind() || !h.State.Status.Valid() {
			t.Errorf("%s %s of plan %s with status %s was read", o.Kind(), *h.ID, *h.PlanID, h.State.Status)
		}
		if d.name == "object" {
			if err := workflow.Validate(o, driver.HasIDs); err != nil {
				t.Errorf("a plan that makes no sense was read: %v", err)
			}
		}
		if workflow.Validate(o, workflow.Encodable) != nil {
			return // requests that this code would not have stored
		}
		if h.State.ETag = ""; d.name != "object" {
			o = alone(o)
		}
		again, err := d.encode(o)
		must(t, err)
		second, err := d.decode(again)
		if err != nil {
			t.Fatalf("what was read can't be stored and read again: %v", err)
		}
		if got := asJSON(t, second); got != asJSON(t, o) {
			t.Errorf("what was read is\n%s\nand stored and read again\n%s", asJSON(t, o), got)
		}
	})
}

// TestNewerDocuments says which documents an older program leaves alone.
func TestNewerDocuments(t *testing.T) {
	at := time.Now()
	for _, test := range []struct {
		plan  workflow.Plan
		least int
	}{
		{workflow.Plan{}, 1},
		{workflow.Plan{NotBefore: at}, 2},
		{workflow.Plan{NotBefore: at, State: workflow.State{Status: workflow.Running}}, 1},
		{workflow.Plan{Deadline: at, State: workflow.State{Status: workflow.Running}}, 2},
		{workflow.Plan{Deadline: at, Reason: workflow.DeadlineExceeded, State: workflow.State{Status: workflow.Stopped}}, 2},
		{workflow.Plan{Deadline: at, External: workflow.External{Name: "queue"}}, 3},
		{workflow.Plan{External: workflow.External{Name: "queue"}, State: workflow.State{Status: workflow.Running}}, 3},
		{workflow.Plan{External: workflow.External{Name: "queue"}, State: workflow.State{Status: workflow.Completed}}, 1},
		{workflow.Plan{Keys: []workflow.Key{{Name: "k"}}}, 3},
		{workflow.Plan{Unique: "u", WakeAt: at, State: workflow.State{Status: workflow.Running}}, 3},
		{workflow.Plan{Keys: []workflow.Key{{Name: "k"}}, Unique: "u", State: workflow.State{Status: workflow.Stopped}}, 1},
	} {
		for _, docType := range []string{typeEntry, typeObject} {
			if got := leastSchema(docType, &test.plan); got != test.least {
				t.Errorf("%s of %+v: schema %d", docType, test.plan, got)
			}
		}
	}
}
