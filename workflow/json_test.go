package workflow_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/goldentest"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/plugins"
	"github.com/planvault/azblob/workflow"
)

// encode marshals without HTML escapes, which json.Marshal adds to the result of MarshalJSON.
func encode(t testing.TB, v any) string {
	t.Helper()
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	must(t, e.Encode(v))
	return strings.TrimSuffix(b.String(), "\n")
}

func decodePlan(t *testing.T, text string) *workflow.Plan {
	t.Helper()
	p := new(workflow.Plan)
	must(t, json.Unmarshal([]byte(text), p))
	return p
}

func TestJSONRoundTrip(t *testing.T) {
	plans := map[string]*workflow.Plan{
		"empty": {}, "small": plantest.Small(), "full": plantest.Full(), "stored": stored(),
	}
	for seed := range uint64(100) {
		plans[fmt.Sprintf("random %d", seed)] = plantest.Random(seed)
		finished := plantest.Random(seed)
		plantest.Finish(finished)
		plans[fmt.Sprintf("random %d, finished", seed)] = finished
	}
	for name, p := range plans {
		text := encode(t, p)
		got := decodePlan(t, text)
		if d := plantest.Diff(p, got); d != "" {
			t.Errorf("%s: %s", name, d)
		}
		if again := encode(t, got); again != text {
			t.Errorf("%s: the JSON changed when it was read and written again:\n%s\n%s", name, text, again)
		}
		if escaped, err := json.Marshal(p); err != nil {
			t.Errorf("%s: %v", name, err)
		} else if d := plantest.Diff(p, decodePlan(t, string(escaped))); d != "" {
			t.Errorf("%s, with HTML escapes: %s", name, d)
		}
	}
}

// TestJSONKeepsEveryField compares each object of a plan with what it is read back as. Every field is set somewhere in
// the plan.
func TestJSONKeepsEveryField(t *testing.T) {
	p := raw(t, stored())
	set := map[string]bool{}
	plantest.EachField(p, func(path string, v reflect.Value) {
		field := path[strings.LastIndexByte(path, '.')+1:]
		set[field] = set[field] || !v.IsZero()
	})
	for field, ok := range set {
		if !ok && field != "Cause" { // of an error, which is not stored
			t.Errorf("%s is not set anywhere: this test would not notice its loss", field)
		}
	}
	for o := range workflow.Walk(p) {
		got := reflect.New(reflect.TypeOf(o).Elem()).Interface()
		must(t, json.Unmarshal([]byte(encode(t, o)), got))
		if !reflect.DeepEqual(o, got) {
			t.Errorf("a %v changed in a round trip:\n%s\n%s", o.Kind(), encode(t, o), encode(t, got))
		}
	}
}

func TestJSONGolden(t *testing.T) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	must(t, e.Encode(stored()))
	goldentest.Equal(t, "testdata/full.json", b.Bytes())
	if d := plantest.Diff(stored(), decodePlan(t, b.String())); d != "" {
		t.Errorf("the JSON reads as a different plan: %s", d)
	}
}

// TestJSONForm pins the JSON of each type where it differs from that of encoding/json.
func TestJSONForm(t *testing.T) {
	east := time.Date(2024, 2, 29, 1, 2, 3, 40_000_000, time.FixedZone("", 2*3600))
	const begun, idText = `2024-02-28T23:02:03.04Z`, `018f0000-0000-7000-8000-000000000001`
	for _, test := range []struct {
		name  string
		value any
		want  string
	}{
		{"empty plan", workflow.Plan{}, `{}`},
		{"empty checks", workflow.Checks{}, `{}`},
		{"empty block", workflow.Block{}, `{}`},
		{"empty sequence", workflow.Sequence{}, `{}`},
		{"empty action", workflow.Action{}, `{}`},
		{"empty attempt", workflow.Attempt{}, `{}`},
		{"empty deferred actions", workflow.DeferredActions{}, `{}`},
		{"empty batch", workflow.DeferBatch{}, `{}`},
		{"a nil block", workflow.Plan{Blocks: []*workflow.Block{nil}}, `{"blocks":[null]}`},
		{"empty state", workflow.State{}, `{"status":"NotStarted"}`},

		{"IDs", workflow.Sequence{ID: id(1), PlanID: id(1), Key: uuid.Max}, `{"id":"` + idText + `","planID":"` + idText + `","key":"ffffffff-ffff-ffff-ffff-ffffffffffff"}`},
		{"a state in another zone", workflow.State{Status: workflow.Failed, Start: east, End: east.Add(time.Hour), ETag: "x"}, `{"status":"Failed","start":"` + begun + `","end":"2024-02-29T00:02:03.04Z","etag":"x"}`},
		{"a zero time in another zone", workflow.State{Start: time.Time{}.In(east.Location())}, `{"status":"NotStarted"}`},
		{"a time to the nanosecond", workflow.State{Start: time.Date(2024, 1, 1, 0, 0, 0, 1, time.UTC)}, `{"status":"NotStarted","start":"2024-01-01T00:00:00.000000001Z"}`},
		{"the submit time in another zone", workflow.Plan{SubmitTime: east}, `{"submitTime":"` + begun + `"}`},
		{"no submit time in another zone", workflow.Plan{SubmitTime: time.Time{}.In(east.Location())}, `{}`},
		{"an attempt in another zone", workflow.Attempt{Start: east, End: east}, `{"start":"` + begun + `","end":"` + begun + `"}`},
		{"reason", workflow.Plan{Reason: workflow.StopRequested}, `{"reason":"StopRequested"}`},
		{"when", workflow.DeferBatch{When: workflow.Always, FailElement: true}, `{"when":"Always","failElement":true}`},

		{"delay", workflow.Checks{Delay: 90 * time.Second}, `{"delay":"1m30s"}`},
		{"entrance delay", workflow.Block{EntranceDelay: time.Millisecond}, `{"entranceDelay":"1ms"}`},
		{"exit delay", workflow.Block{ExitDelay: 1<<63 - 1}, `{"exitDelay":"2562047h47m16.854775807s"}`},
		{"timeout", workflow.Action{Timeout: 100 * time.Hour}, `{"timeout":"100h0m0s"}`},
		{"a negative timeout", workflow.Action{Timeout: -time.Nanosecond}, `{"timeout":"-1ns"}`},
		{"numbers", workflow.Block{Concurrency: 3, ToleratedFailures: -1}, `{"concurrency":3,"toleratedFailures":-1}`},

		{"no meta", workflow.Plan{Meta: nil}, `{}`},
		{"an empty meta", workflow.Plan{Meta: []byte{}}, `{"meta":""}`},
		{"a text as meta", workflow.Plan{Meta: []byte(`{"a": "<é>"}`)}, `{"meta":"{\"a\": \"<é>\"}"}`},
		{"a binary meta", workflow.Plan{Meta: []byte{'a', 0xff}}, `{"metaBase64":"Yf8="}`},
		{"what JavaScript does not allow in strings", workflow.Plan{Meta: []byte("\u2028\x00")}, `{"meta":"\u2028\u0000"}`},

		{"a request", workflow.Action{Req: plantest.Request{Text: "<&>"}}, `{"req":{"Text":"<&>"}}`},
		{"a pointer as request", workflow.Action{Req: &plantest.Request{}}, `{"req":{"Text":""}}`},
		{"a raw request", workflow.Action{Req: json.RawMessage(` {"b": 1e400, "a": [ ] } `)}, `{"req":{"b":1e400,"a":[]}}`},
		{"a null request", workflow.Action{Req: json.RawMessage("null")}, `{"req":null}`},
		{"a nil pointer as request", workflow.Action{Req: (*plantest.Request)(nil)}, `{"req":null}`},
		{"an empty text as request", workflow.Action{Req: ""}, `{"req":""}`},
		{"a response", workflow.Attempt{Resp: &plantest.Response{Text: "<&>"}}, `{"resp":{"Text":"<&>","OK":false}}`},
		{"a null response", workflow.Attempt{Resp: json.RawMessage("null")}, `{"resp":null}`},
		{"an error", workflow.Attempt{Err: &plugins.Error{Code: -1, Message: "<&>", Permanent: true}}, `{"err":{"code":-1,"message":"<&>","permanent":true}}`},
		{"an empty error", workflow.Attempt{Err: &plugins.Error{}}, `{"err":{}}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := encode(t, test.value); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
			pointer := reflect.New(reflect.TypeOf(test.value))
			pointer.Elem().Set(reflect.ValueOf(test.value))
			if got := encode(t, pointer.Interface()); got != test.want {
				t.Errorf("through a pointer: got  %s\nwant %s", got, test.want)
			}
			again := reflect.New(reflect.TypeOf(test.value))
			must(t, json.Unmarshal([]byte(test.want), again.Interface()))
			if got := encode(t, again.Interface()); got != test.want {
				t.Errorf("read and written again: got  %s\nwant %s", got, test.want)
			}
		})
	}
}

func TestJSONRequestsAreRaw(t *testing.T) {
	a := workflow.Action{
		Req:      plantest.Request{Text: "a", Number: 1 << 60},
		Attempts: []workflow.Attempt{{Resp: &plantest.Response{OK: true}}, {}, {Resp: json.RawMessage("null")}},
	}
	got := workflow.Action{Req: "before"}
	must(t, json.Unmarshal([]byte(encode(t, a)), &got))
	for _, test := range []struct {
		what      string
		got, want any
	}{
		{"the request", got.Req, json.RawMessage(`{"Text":"a","Number":1152921504606846976}`)},
		{"the response", got.Attempts[0].Resp, json.RawMessage(`{"Text":"","OK":true}`)},
		{"no response", got.Attempts[1].Resp, nil},
		{"a null response", got.Attempts[2].Resp, json.RawMessage("null")},
	} {
		if !reflect.DeepEqual(test.got, test.want) {
			t.Errorf("%s is the %T %s, want the %T %s", test.what, test.got, test.got, test.want, test.want)
		}
	}
	if err := json.Unmarshal([]byte(`{}`), &got); err != nil || got.Req != nil {
		t.Errorf("reading an action without request gives %v and %v", got.Req, err)
	}
}

// withUnknown adds members that the model lacks to each object, state, attempt and error of a plan's JSON.
func withUnknown(v any, n *int) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			withUnknown(e, n)
		}
	case map[string]any:
		for name, e := range v {
			if !slices.Contains([]string{"req", "resp", "err", "labels", "backoff"}, name) {
				withUnknown(e, n)
			}
		}
		*n++
		v["new"] = map[string]any{"n": *n, "list": []any{nil, true, "<\u2028\"é"}}
		v["ID"] = "names differ in case"
	}
}

// decodeTree decodes JSON without a loss of precision.
func decodeTree(t testing.TB, text string) (tree any) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	must(t, d.Decode(&tree))
	return tree
}

// TestUnknownMembersAreKept reads what newer code wrote, and writes it again.
func TestUnknownMembersAreKept(t *testing.T) {
	tree := decodeTree(t, encode(t, stored()))
	n := 0
	withUnknown(tree, &n)
	if n < 100 {
		t.Fatalf("only %d objects have members that the model lacks", n)
	}
	newer, err := json.MarshalIndent(tree, "", "  ")
	must(t, err)
	p := decodePlan(t, string(newer))
	if got, want := decodeTree(t, encode(t, p)), decodeTree(t, string(newer)); !reflect.DeepEqual(got, want) {
		t.Error("the JSON changed when it was read and written again")
	}
	clone := plantest.Clone(p)
	if encode(t, clone) != encode(t, p) {
		t.Error("a clone lacks the unknown members")
	}
	if plantest.Diff(p, stored()) == "" {
		t.Error("Diff does not see unknown members")
	}
	clone.State.Reset()
	if text := encode(t, clone.State); strings.Contains(text, "new") {
		t.Errorf("a state that was reset has unknown members of the run before: %s", text)
	}

	// Reading replaces them.
	must(t, json.Unmarshal([]byte(`{"other":1}`), p.Blocks[0]))
	if text := encode(t, p.Blocks[0]); !strings.HasSuffix(text, `,"other":1}`) {
		t.Errorf("the block ends in %s", text[len(text)-40:])
	}
}

// TestUnknownMembersOfErrorsAreLost states the one level that does not keep them.
func TestUnknownMembersOfErrorsAreLost(t *testing.T) {
	var a workflow.Attempt
	must(t, json.Unmarshal([]byte(`{"err":{"code":1,"new":2,"wrapped":{"new":3}},"new":4}`), &a))
	if got, want := encode(t, a), `{"err":{"code":1,"wrapped":{}},"new":4}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestMarshalErrors(t *testing.T) {
	action := func(a *workflow.Action) *workflow.Plan {
		return &workflow.Plan{Blocks: []*workflow.Block{{Sequences: []*workflow.Sequence{{Actions: []*workflow.Action{a}}}}}}
	}
	round := new(plugins.Error)
	round.Wrapped = round
	for _, test := range []struct {
		name, want string
		value      any
	}{
		{"an error that wraps itself", "encountered a cycle", workflow.Action{Attempts: []workflow.Attempt{{Err: round}}}},
		{"status", "there is no status 5", workflow.State{Status: 5}},
		{"status of a plan", "there is no status -1", workflow.Plan{State: workflow.State{Status: -1}}},
		{"reason", "there is no failure reason 99", workflow.Plan{Reason: 99}},
		{"when", "there is no when 3", workflow.DeferBatch{When: 3}},
		{"year", "year outside of range", workflow.State{Start: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)}},
		{"request", `"/blocks/0/sequences/0/actions/0/req": json: unsupported type`, action(&workflow.Action{ID: id(7), Req: make(chan int)})},
		{"a request that is not a number", "unsupported value: NaN", action(&workflow.Action{Req: math.NaN()})},
		{"a raw request that is not JSON", "unexpected end of JSON input", action(&workflow.Action{Req: json.RawMessage("{")})},
		{"response", `actions/0/attempts/0/resp": json: unsupported type`, action(&workflow.Action{Attempts: []workflow.Attempt{{Resp: func() {}}}})},
	} {
		t.Run(test.name, func(t *testing.T) {
			text, err := json.Marshal(test.value)
			if err == nil {
				t.Fatalf("it marshals to %s", text)
			}
			if !strings.Contains(err.Error(), test.want) {
				t.Errorf("the error is %q, want %q in it", err, test.want)
			}
		})
	}
}

func TestUnmarshalErrors(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"no JSON", `{`, "unexpected end"},
		{"no object", `[]`, "JSON array"},
		{"status", `{"state":{"status":"Sleeping"}}`, `there is no status "Sleeping"`},
		{"a status as number", `{"state":{"status":1}}`, "JSON number"},
		{"status of a part", `{"preChecks":{"state":{"status":"running"}}}`, `there is no status "running"`},
		{"reason", `{"reason":"Fate"}`, `there is no failure reason "Fate"`},
		{"when", `{"deferredActions":{"batches":[{"when":"Never"}]}}`, `there is no when "Never"`},
		{"a list as object", `{"blocks":{}}`, `JSON object into Go []*workflow.Block within "/blocks"`},
		{"a bool as number", `{"deferredActions":{"batches":[{"failElement":1}]}}`, `JSON number into Go bool within "/deferredActions/batches/0/failElement"`},
		{"a number as string", `{"epoch":"1"}`, "JSON string into Go int64"},
		{"a fraction", `{"epoch":1.5}`, "JSON number 1.5"},
		{"delay", `{"preChecks":{"delay":"a while"}}`, `time: invalid duration "a while"`},
		{"a delay as number", `{"preChecks":{"delay":1000}}`, "JSON number"},
		{"entrance delay", `{"blocks":[{"entranceDelay":"1"}]}`, "missing unit in duration"},
		{"exit delay", `{"blocks":[{"exitDelay":""}]}`, "invalid duration"},
		{"timeout", `{"preChecks":{"actions":[{"timeout":"1m30"}]}}`, "missing unit in duration"},
		{"submit time", `{"submitTime":"yesterday"}`, "parsing time"},
		{"ID", `{"id":"1"}`, "invalid UUID"},
		{"a longer ID", `{"id":"018f0000-0000-7000-8000-0000000000010"}`, "invalid UUID"},
		{"meta", `{"metaBase64":"%"}`, "illegal base64"},
		{"attempt", `{"preChecks":{"actions":[{"attempts":[{"start":1}]}]}}`, "JSON number into Go time.Time"},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := json.Unmarshal([]byte(test.text), new(workflow.Plan))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("the error is %v, want %q in it", err, test.want)
			}
		})
	}
}

// TestStrictness checks what is refused in the model, and read by encoding/json. Requests and responses are read as by
// encoding/json.
func TestStrictness(t *testing.T) {
	const duplicate = "duplicate object member name"
	action := func(members string) string { return `{"blocks":[{"sequences":[{"actions":[{` + members + `}]}]}]}` }
	for _, test := range []struct{ name, text, want string }{
		{"a name given twice", `{"name":"a","name":"a"}`, duplicate + ` "name"`},
		{"a name given twice, once with escapes", `{"name":"a","n\u0061me":"a"}`, duplicate},
		{"a name given twice in a state", action(`"state":{"status":"Running","status":"Running"}`), `within "/blocks/0/sequences/0/actions/0/state"`},
		{"a label given twice", `{"labels":{"a":"1","a":"2"}}`, duplicate},
		{"an unknown member given twice", action(`"new":1,"new":2`), duplicate},
		{"a name given twice in an unknown member", `{"new":[{"a":1,"a":2}]}`, duplicate},
		{"two requests", action(`"req":1,"req":2`), duplicate},
		{"a name given twice after a request with such names", action(`"req":{"a":1,"a":2},"name":"a","name":"b"`), duplicate + ` "name"`},
		{"text that is not UTF-8", "{\"name\":\"\xff\"}", "invalid UTF-8"},
		{"a request that is not UTF-8", action("\"req\":\"\xff\""), "invalid UTF-8"},
		{"half a character", `{"name":"\ud83d"}`, "invalid surrogate pair"},
		{"NUL", "{\"name\":\"a\x00\"}", "invalid character"},
		{"a large number", `{"epoch":9223372036854775808}`, "value out of range"},
		{"more than one value", `{} {}`, "after top-level value"},

		{"an escape in an unknown member", `{"new":"\u0041\/"}`, ""},
		{"names in another case", `{"Name":"a","ID":"b","nAmE":"c"}`, ""},
		{"names given twice in a request", action(`"req":{"a":1,"a":[{"b":1,"b":2}]}`), ""},
		{"names given twice in a response", action(`"attempts":[{"resp":{"a":1,"a":2}}]`), ""},
		{"a large number in a request", action(`"req":1e999999`), ""},
	} {
		p := new(workflow.Plan)
		err := workflow.Unmarshal([]byte(test.text), p)
		if test.want != "" {
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s: the error is %v, want %q in it", test.name, err, test.want)
			}
		} else if err != nil {
			t.Errorf("%s: %v", test.name, err)
		} else if text := encode(t, p); text != test.text {
			t.Errorf("%s: written again as %s", test.name, text)
		}
	}
}

// TestMemoryOfWhatIsRead reads and validates texts that are made to take much memory for each byte.
func TestMemoryOfWhatIsRead(t *testing.T) {
	const size = 4 << 20
	for _, test := range []struct{ name, before, unit, after, want string }{
		{"objects", `{"preChecks":{"actions":[`, `{},`, `{}]}}`, "objects and attempts"},
		{"no objects", `{"preChecks":{"actions":[`, `null,`, `null]}}`, fmt.Sprintf("and %d more", size/5+1-10)},
		{"attempts", `{"preChecks":{"actions":[{"attempts":[`, `{},`, `{}]}]}}`, "objects and attempts"},
		{"null attempts", `{"preChecks":{"actions":[{"attempts":[`, `null,`, `null]}]}}`, "objects and attempts"},
		{"a long status", `{"state":{"status":"`, `x`, `"}}`, "there is no status"},
		{"errors", `{"preChecks":{"actions":[{"attempts":[`, `{"err":{"wrapped":{}}},`, `{}]}]}}`, "Plugin: is empty"},
		{"a long name in an error", `{"`, `x`, `":1,"epoch":"1"}`, "into Go int64"},
		{"arrays", `{"meta2":`, `[`, ``, "exceeded max depth"},
		{"one ID", `{"preChecks":{"actions":[`, `{"id":"01900000-0000-7000-8000-000000000001"},`, `{}]}}`, fmt.Sprintf("and %d more", size/46*2-10)},
	} {
		t.Run(test.name, func(t *testing.T) {
			text := []byte(test.before + strings.Repeat(test.unit, size/len(test.unit)) + test.after)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			plan := new(workflow.Plan)
			err := workflow.Unmarshal(text, plan)
			if err == nil {
				err = workflow.Validate(plan)
			}
			problem := fmt.Sprint(err)
			runtime.ReadMemStats(&after)
			if times := (after.TotalAlloc - before.TotalAlloc) / uint64(len(text)); times > 45 || len(problem) > 2000 {
				t.Errorf("%d bytes of memory for each byte, and an error of %d bytes", times, len(problem))
			}
			if test.want == "" && err != nil || !strings.Contains(problem, test.want) {
				t.Errorf("the error is %.200s, want %q in it", problem, test.want)
			}
		})
	}
}

// TestWhatIsWrittenCanBeRead writes an action with about as many empty attempts as can be read.
func TestWhatIsWrittenCanBeRead(t *testing.T) {
	refused := 0
	for n := 110_340; n < 110_350; n++ {
		text, err := workflow.Marshal(&workflow.Action{Attempts: make([]workflow.Attempt, n)})
		if err != nil {
			refused++
		}
		if read := workflow.Unmarshal(text, new(workflow.Action)); (read == nil) != (err == nil) {
			t.Errorf("%d attempts: Marshal says %v, and Unmarshal %v", n, err, read)
		}
	}
	if refused == 0 || refused == 10 {
		t.Errorf("%d of 10 were refused", refused)
	}
}

// TestEncodable checks that the rule names every request and response that would not come back unchanged.
func TestEncodable(t *testing.T) {
	type text struct {
		A string `json:",omitempty"`
		b string
		C string `json:"-"`
		D any    `json:",omitempty"`
	}
	list := func(n int) any {
		var v any = true
		for range n {
			v = []any{v}
		}
		return v
	}
	deep := func(n int) json.RawMessage {
		return json.RawMessage(strings.Repeat(`{"a":`, n) + "1" + strings.Repeat("}", n))
	}
	const notUTF8, tooDeep = "invalid UTF-8", "is nested more than 9000 levels deep"
	for _, test := range []struct {
		name string
		req  any
		want string
	}{
		{"nil", nil, ""},
		{"text", "план \ufffd", ""},
		{"the replacement character beside a backslash", text{A: `\` + "\ufffd" + `\ufffd`}, ""},
		{"an escape in raw JSON", json.RawMessage(`"\ufffd"`), ""},
		{"fields that are not written", text{A: "\ufffd", b: "\xff", C: "\xff", D: json.RawMessage(`"\ufffd"`)}, ""},
		{"a string", "\xff", notUTF8},
		{"a field", text{A: "a\xffb"}, notUTF8},
		{"a pointer in an interface in a field", text{D: &text{A: "\xc3"}}, notUTF8},
		{"an element", [2]string{"a", "\xe2\x82"}, notUTF8},
		{"a value", map[int]string{1: "\xff"}, notUTF8},
		{"a key", map[string]int{"\xff": 1}, notUTF8},
		{"raw JSON", json.RawMessage("[\"\xff\"]"), notUTF8},
		{"a type that marshals itself to text", text{D: marshaler("\xff")}, notUTF8},
		{"a type that marshals itself to valid text", text{D: marshaler("\ufffd")}, ""},
		{"bytes", []byte{0xff}, ""},
		{"9,000 levels", list(workflow.MaxDepth), ""},
		{"9,001 levels", list(workflow.MaxDepth + 1), tooDeep},
		{"9,000 raw levels", deep(workflow.MaxDepth), ""},
		{"9,001 raw levels", deep(workflow.MaxDepth + 1), tooDeep},
		{"many short lists", json.RawMessage("[" + strings.Repeat("[],", 20_000) + "{}]"), ""},
		{"brackets in text", strings.Repeat(`[{"\`, 20_000), ""},
		{"not a number", math.NaN(), "NaN"},
		{"broken raw JSON", json.RawMessage("{"), "unexpected end"},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := &workflow.Action{Plugin: "p", Req: test.req, Attempts: []workflow.Attempt{{}, {Resp: test.req}}}
			err := workflow.Validate(a, workflow.Encodable)
			_, encodeErr := workflow.Marshal(a)
			if (err == nil) != (encodeErr == nil) {
				t.Errorf("the rule reported %v, and Marshal returned %v", err, encodeErr)
			}
			if test.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			got := problems(t, err)
			if len(got) != 2 || !strings.HasPrefix(got[0], "Req: ") || !strings.HasPrefix(got[1], "Attempts[1].Resp: ") || !strings.Contains(got[0], test.want) {
				t.Errorf("got %q, want %q of Req and Attempts[1].Resp", got, test.want)
			}
		})
	}
}

type marshaler string

func (m marshaler) MarshalText() ([]byte, error) { return []byte(m), nil }
