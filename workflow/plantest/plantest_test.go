package plantest_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/planvault/azblob/plugins"
	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"
)

// eachField calls do for every field of the model below v and every element of its lists, with its path.
func eachField(v reflect.Value, path string, do func(path string, v reflect.Value)) {
	switch {
	case v.Kind() == reflect.Pointer:
		if !v.IsNil() {
			eachField(v.Elem(), path, do)
		}
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() != reflect.Uint8:
		for i := range v.Len() {
			at := fmt.Sprintf("%s[%d]", path, i)
			do(at, v.Index(i))
			eachField(v.Index(i), at, do)
		}
	case v.Kind() == reflect.Struct && v.Type() != reflect.TypeFor[time.Time]():
		for i := range v.NumField() {
			if !v.Type().Field(i).IsExported() {
				continue
			}
			at := strings.TrimPrefix(path+"."+v.Type().Field(i).Name, ".")
			do(at, v.Field(i))
			eachField(v.Field(i), at, do)
		}
	}
}

// withoutKeys removes what Random does not repeat.
func withoutKeys(p *workflow.Plan) *workflow.Plan {
	if p.GroupID != uuid.Nil {
		p.GroupID = uuid.Max
	}
	eachField(reflect.ValueOf(p), "", func(path string, v reflect.Value) {
		if strings.HasSuffix(path, ".Key") {
			v.SetZero()
		}
	})
	return p
}

func TestRandom(t *testing.T) {
	different := map[string]bool{}
	var met struct{ noMeta, emptyMeta, binaryMeta, noGroup, group, noReq, deferred, noDeferred, noBlocks bool }
	for seed := range uint64(300) {
		p := plantest.Random(seed)
		if err := workflow.Validate(p); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		objects := 0
		for o := range workflow.Walk(p) {
			objects++
			h := o.Header()
			if *h.ID != uuid.Nil || *h.PlanID != uuid.Nil || *h.State != (workflow.State{}) {
				t.Errorf("seed %d: a %v is not as an author builds it", seed, o.Kind())
			}
			if a, ok := o.(*workflow.Action); ok {
				met.noReq = met.noReq || a.Req == nil
			}
		}
		if objects > 200 {
			t.Errorf("seed %d: %d objects", seed, objects)
		}
		met.noMeta = met.noMeta || p.Meta == nil
		met.emptyMeta = met.emptyMeta || p.Meta != nil && len(p.Meta) == 0
		met.binaryMeta = met.binaryMeta || !utf8.Valid(p.Meta)
		met.noGroup, met.group = met.noGroup || p.GroupID == uuid.Nil, met.group || p.GroupID != uuid.Nil
		met.deferred, met.noDeferred = met.deferred || p.DeferredActions != nil, met.noDeferred || p.DeferredActions == nil
		met.noBlocks = met.noBlocks || len(p.Blocks) == 0

		a, b := withoutKeys(p), withoutKeys(plantest.Random(seed))
		if !reflect.DeepEqual(a, b) {
			t.Errorf("seed %d makes two different plans: %s", seed, plantest.Diff(a, b))
		}
		text, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		different[string(text)] = true
	}
	if len(different) < 270 {
		t.Errorf("300 seeds make %d different plans", len(different))
	}
	if v := reflect.ValueOf(met); true {
		for i := range v.NumField() {
			if !v.Field(i).Bool() {
				t.Errorf("300 seeds make no plan with %s", v.Type().Field(i).Name)
			}
		}
	}
}

// TestFull checks that Full sets every field that an author may set, and no other field.
func TestFull(t *testing.T) {
	p := plantest.Full()
	if err := workflow.Validate(p); err != nil {
		t.Error(err)
	}
	notAuthored := []string{"ID", "PlanID", "State", "SubmitTime", "Reason", "RuntimeUpdate", "Owner", "Epoch", "ForkedFrom", "Attempts", "Status", "Start", "End", "ETag"}
	eachField(reflect.ValueOf(p), "", func(path string, v reflect.Value) {
		field := path[strings.LastIndexByte(path, '.')+1:]
		switch {
		case slices.Contains(notAuthored, field):
			if !v.IsZero() {
				t.Errorf("%s is set, but an author does not set it", path)
			}
		case field == "When", field == "FailElement": // each of their values is there: see below
		case v.IsZero(), v.Kind() == reflect.Slice && v.Len() == 0:
			t.Errorf("%s is not set", path)
		}
	})

	kinds := map[workflow.Kind]int{}
	whens, fails := map[workflow.When]bool{}, map[bool]bool{}
	keys := map[uuid.UUID]bool{}
	for o := range workflow.Walk(p) {
		kinds[o.Kind()]++
		switch o := o.(type) {
		case *workflow.DeferBatch:
			whens[o.When], fails[o.FailElement] = true, true
		case *workflow.Action:
			if keys[o.Key] {
				t.Errorf("two actions have the key %s", o.Key)
			}
			keys[o.Key] = true
			eachField(reflect.ValueOf(o.Req), "Req", func(path string, v reflect.Value) {
				if v.IsZero() {
					t.Errorf("%s of an action is not set", path)
				}
			})
		}
	}
	for k := workflow.KindPlan; k <= workflow.KindDeferBatch; k++ {
		if kinds[k] == 0 {
			t.Errorf("there is no %v", k)
		}
	}
	if len(whens) != 3 || len(fails) != 2 {
		t.Errorf("the batches have %d kinds of When and %d of FailElement, want 3 and 2", len(whens), len(fails))
	}
}

func TestSized(t *testing.T) {
	for _, size := range [][3]int{{0, 0, 0}, {1, 0, 5}, {1, 1, 1}, {2, 3, 4}} {
		p := plantest.Sized(size[0], size[1], size[2])
		if err := workflow.Validate(p); err != nil {
			t.Errorf("%v: %v", size, err)
		}
		got := map[workflow.Kind]int{}
		for o := range workflow.Walk(p) {
			got[o.Kind()]++
		}
		for kind, want := range map[workflow.Kind]int{
			workflow.KindPlan: 1, workflow.KindBlock: size[0], workflow.KindSequence: size[0] * size[1],
			workflow.KindAction: size[0] * size[1] * size[2], workflow.KindChecks: 0, workflow.KindDeferredActions: 0,
		} {
			if got[kind] != want {
				t.Errorf("%v: %d objects of kind %v, want %d", size, got[kind], kind, want)
			}
		}
	}
	small := plantest.Small()
	if len(small.Blocks) != 1 || len(small.Blocks[0].Sequences) != 1 || len(small.Blocks[0].Sequences[0].Actions) != 1 {
		t.Error("Small does not have exactly one block, one sequence and one action")
	}
}

func TestFinish(t *testing.T) {
	p := plantest.Full()
	plantest.Finish(p)
	actions := 0
	for o := range workflow.Walk(p) {
		h := o.Header()
		if h.State.Status != workflow.Completed || h.State.Start.IsZero() || !h.State.End.After(h.State.Start) {
			t.Errorf("the state of a %v is %v", o.Kind(), *h.State)
		}
		if *h.ID != uuid.Nil || *h.PlanID != uuid.Nil {
			t.Errorf("a %v was given an ID", o.Kind())
		}
		a, ok := o.(*workflow.Action)
		if !ok {
			continue
		}
		actions++
		if len(a.Attempts) != 2 {
			t.Fatalf("an action has %d attempts", len(a.Attempts))
		}
		bad, good := a.Attempts[0], a.Attempts[1]
		if bad.Err == nil || bad.Resp != nil {
			t.Errorf("the first attempt has the error %v and the response %v", bad.Err, bad.Resp)
		}
		if r, ok := good.Resp.(*plantest.Response); good.Err != nil || !ok || r.Text != a.Name || !r.OK {
			t.Errorf("the second attempt has the error %v and the response %v", good.Err, good.Resp)
		}
		if !bad.End.After(bad.Start) || !good.Start.After(bad.End) || !good.End.After(good.Start) || good.End.After(h.State.End) {
			t.Error("the attempts do not follow each other")
		}
	}
	if actions == 0 {
		t.Error("there are no actions")
	}
	if err := workflow.Validate(p); err != nil {
		t.Error(err)
	}
}

func TestPlugin(t *testing.T) {
	plugin, ok := plantest.Register().Plugin(plantest.PluginName)
	if !ok || plugin.Name() != plantest.PluginName {
		t.Fatalf("the register has %v for %s", plugin, plantest.PluginName)
	}
	p := plantest.Full()
	plantest.Finish(p)
	for o := range workflow.Walk(p) {
		a, ok := o.(*workflow.Action)
		if !ok {
			continue
		}
		if a.Plugin != plantest.PluginName {
			t.Errorf("an action names the plugin %q", a.Plugin)
		}
		if got, want := reflect.TypeOf(a.Req), reflect.TypeOf(plugin.Request()); got != want {
			t.Errorf("a request is a %v, want a %v", got, want)
		}
		if got, want := reflect.TypeOf(a.Attempts[1].Resp), reflect.TypeOf(plugin.Response()); got != want {
			t.Errorf("a response is a %v, want a %v", got, want)
		}
	}
}

func TestStrange(t *testing.T) {
	long := 0
	met := map[string]bool{}
	for s := range plantest.Strange() {
		if !utf8.ValidString(s) {
			t.Errorf("%.20q is not valid UTF-8", s)
		}
		if met[s] {
			t.Errorf("Strange yields %.20q twice", s)
		}
		met[s] = true
		if len(s) > 8<<10 {
			long++
		}
	}
	if long < 2 {
		t.Errorf("%d texts are longer than the 8 KiB of metadata", long)
	}

	ascii := func(s string) bool {
		return strings.IndexFunc(s, func(r rune) bool { return r > unicode.MaxASCII }) < 0
	}
	for what, is := range map[string]func(string) bool{
		"empty":             func(s string) bool { return s == "" },
		"blank":             func(s string) bool { return s != "" && strings.Trim(s, " ") == "" },
		"leading blank":     func(s string) bool { return strings.HasPrefix(s, " ") && strings.TrimSpace(s) != "" },
		"trailing blank":    func(s string) bool { return strings.HasSuffix(s, " ") && strings.TrimSpace(s) != "" },
		"two blanks inside": func(s string) bool { return strings.Contains(strings.TrimSpace(s), "  ") },
		"tab":               func(s string) bool { return strings.Contains(s, "\t") },
		"line break":        func(s string) bool { return strings.Contains(s, "\n") && !strings.Contains(s, "\r") },
		"CRLF":              func(s string) bool { return strings.Contains(s, "\r\n") },
		"NUL":               func(s string) bool { return strings.Contains(s, "\x00") },
		"DEL":               func(s string) bool { return strings.Contains(s, "\x7f") },
		"Cyrillic": func(s string) bool {
			return strings.ContainsFunc(s, func(r rune) bool { return unicode.Is(unicode.Cyrillic, r) })
		},
		"Han": func(s string) bool {
			return strings.ContainsFunc(s, func(r rune) bool { return unicode.Is(unicode.Han, r) })
		},
		"beyond the BMP":  func(s string) bool { return strings.ContainsFunc(s, func(r rune) bool { return r > 0xffff }) },
		"joiner":          func(s string) bool { return strings.Contains(s, "\u200d") },
		"composed":        func(s string) bool { return s == "\u00e9" },
		"decomposed":      func(s string) bool { return s == "e\u0301" },
		"byte order mark": func(s string) bool { return strings.HasPrefix(s, "\ufeff") },
		"line separator":  func(s string) bool { return strings.Contains(s, "\u2028") },
		"replacement":     func(s string) bool { return strings.Contains(s, "\ufffd") },
		"the last rune":   func(s string) bool { return strings.Contains(s, "\U0010ffff") },
		"a B-word":        func(s string) bool { return strings.HasPrefix(s, "=?utf-8?b?") && strings.HasSuffix(s, "?=") },
		"a Q-word":        func(s string) bool { return strings.HasPrefix(s, "=?utf-8?q?") && strings.HasSuffix(s, "?=") },
		"half a word":     func(s string) bool { return strings.HasPrefix(s, "=?") && !strings.HasSuffix(s, "?=") },
		"percent":         func(s string) bool { return strings.Contains(s, "%20") },
		"a lone percent":  func(s string) bool { return s == "%" },
		"plus":            func(s string) bool { return strings.Contains(s, "+") },
		"entity":          func(s string) bool { return strings.Contains(s, "&amp;") },
		"markup":          func(s string) bool { return strings.Contains(s, "<") && strings.Contains(s, "&") },
		"end of CDATA":    func(s string) bool { return strings.Contains(s, "]]>") },
		"backslash":       func(s string) bool { return strings.Contains(s, `\`) },
		"quoted":          func(s string) bool { return strings.HasPrefix(s, `"`) },
		"JSON":            func(s string) bool { return s != "" && json.Valid([]byte(s)) },
		"separators":      func(s string) bool { return strings.Contains(s, ",") && strings.Contains(s, ";") },
		"long ASCII":      func(s string) bool { return len(s) > 8<<10 && ascii(s) },
		"long, not ASCII": func(s string) bool { return len(s) > 8<<10 && !ascii(s) },
	} {
		found := false
		for s := range plantest.Strange() {
			if found = is(s); found {
				break // Strange must stop
			}
		}
		if !found {
			t.Errorf("Strange yields no text of the kind %q", what)
		}
	}
}

// finished returns the same plan each time. It has run, and has every kind of object and field, but few
// objects.
func finished() *workflow.Plan {
	p := plantest.Full()
	p.Blocks = p.Blocks[:1]
	p.Blocks[0].Sequences = p.Blocks[0].Sequences[:1]
	for _, checks := range workflow.ChecksOf(p)[1:] { // the first keeps its action
		(*checks).Actions = nil
	}
	for _, checks := range workflow.ChecksOf(p.Blocks[0])[:4] { // the last keeps its action
		(*checks).Actions = nil
	}
	plantest.Finish(p)
	n := 0
	newID := func() uuid.UUID {
		n++
		return uuid.MustParse(fmt.Sprintf("018f0000-0000-7000-8000-%012x", n))
	}
	p.ID = newID()
	for o := range workflow.Walk(p) {
		h := o.Header()
		*h.ID, *h.PlanID = newID(), p.ID
		h.State.ETag = newID().String()
	}
	eachField(reflect.ValueOf(p), "", func(path string, v reflect.Value) {
		if strings.HasSuffix(path, ".Key") || path == "GroupID" {
			v.Set(reflect.ValueOf(newID()))
		}
	})
	p.SubmitTime = time.Date(2025, 6, 7, 8, 9, 10, 11, time.UTC)
	p.Reason = workflow.BlockFailed
	return p
}

// TestDiffFields changes every field and every list in turn. Diff must notice.
func TestDiffFields(t *testing.T) {
	want, got := finished(), finished()
	if d := plantest.Diff(want, got); d != "" {
		t.Fatalf("the same plan twice: %s", d)
	}
	changes := 0
	eachField(reflect.ValueOf(got), "", func(path string, v reflect.Value) {
		good := reflect.New(v.Type()).Elem()
		good.Set(v)
		try := func(how string, value reflect.Value) {
			t.Helper()
			v.Set(value)
			defer v.Set(good)
			changes++
			a, b := plantest.Diff(want, got), plantest.Diff(got, want)
			if path[strings.LastIndexByte(path, '.')+1:] == "ETag" {
				if a != "" || b != "" {
					t.Errorf("%s, %s: Diff compares versions: %s", path, how, a)
				}
				return
			}
			if a == "" || b == "" {
				t.Errorf("%s, %s: Diff finds nothing (%q, and with the plans exchanged %q)", path, how, a, b)
			}
		}
		switch x := v.Interface().(type) {
		case time.Time:
			try("a nanosecond later", reflect.ValueOf(x.Add(1)))
		case uuid.UUID:
			x[15]++
			try("another", reflect.ValueOf(x))
		case []byte:
			try("empty", reflect.ValueOf([]byte{}))
			try("longer", reflect.ValueOf(append(slices.Clone(x), 0)))
			try("binary", reflect.ValueOf([]byte{0xff}))
		default:
			switch v.Kind() {
			case reflect.String:
				try("longer", reflect.ValueOf(x.(string)+" "))
			case reflect.Bool:
				try("the other", reflect.ValueOf(!x.(bool)))
				return // zero is one of the two values
			case reflect.Int, reflect.Int64:
				n := reflect.New(v.Type()).Elem()
				n.SetInt(max(v.Int()-1, 0))
				if v.IsZero() || v.Int() < 0 {
					n.SetInt(1)
				}
				try("another number", n)
			case reflect.Slice:
				if v.Len() > 0 {
					try("shorter", v.Slice(0, v.Len()-1))
				}
				try("longer", reflect.Append(v, reflect.Zero(v.Type().Elem())))
				if v.Len() > 1 {
					swapped := reflect.AppendSlice(v.Slice3(1, 2, 2), v.Slice(0, 1))
					try("in another order", reflect.AppendSlice(swapped, v.Slice(2, v.Len())))
				}
			}
		}
		if !v.IsZero() && (v.Kind() != reflect.Slice || v.Len() > 0 || v.Type().Elem().Kind() == reflect.Uint8) {
			try("zero", reflect.Zero(v.Type())) // an empty list equals a nil one
		}
	})
	if changes < 300 {
		t.Errorf("the test made only %d changes", changes)
	}
	if d := plantest.Diff(want, got); d != "" {
		t.Errorf("after all changes were undone: %s", d)
	}
}

func TestDiff(t *testing.T) {
	action := func(p *workflow.Plan) *workflow.Action { return p.Blocks[0].Sequences[0].Actions[1] }
	late := time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		name      string
		want, got func(p *workflow.Plan) // changes of the same plan; nil for none
		same      bool
		says      string
	}{
		{
			name: "another version", same: true,
			got: func(p *workflow.Plan) { p.State.ETag, action(p).State.ETag = "", "another" },
		},
		{
			name: "only a version", same: true,
			want: func(p *workflow.Plan) { p.State = workflow.State{} },
			got:  func(p *workflow.Plan) { p.State = workflow.State{ETag: "x"} },
		},
		{
			name: "no state", says: "status",
			got: func(p *workflow.Plan) { p.State = workflow.State{} },
		},
		{
			name: "another zone", same: true,
			got: func(p *workflow.Plan) { p.SubmitTime = p.SubmitTime.In(time.FixedZone("", 3600)) },
		},
		{
			name: "an empty list", same: true,
			want: func(p *workflow.Plan) { p.Blocks = nil },
			got:  func(p *workflow.Plan) { p.Blocks = []*workflow.Block{} },
		},
		{
			name: "another request", says: "other",
			got: func(p *workflow.Plan) { action(p).Req = plantest.Request{Text: "other"} },
		},
		{
			name: "a request whose number is one larger", says: "1152921504606846977",
			got: func(p *workflow.Plan) {
				r := action(p).Req.(plantest.Request)
				r.Number++
				action(p).Req = r
			},
		},
		{
			name: "a pointer to the request", says: "want a request of type plantest.Request, got *plantest.Request",
			got: func(p *workflow.Plan) {
				r := action(p).Req.(plantest.Request)
				action(p).Req = &r
			},
		},
		{
			name: "a request of a type that looks the same", says: "want a request of type plantest.Request, got map[string]",
			want: func(p *workflow.Plan) { action(p).Req = plantest.Request{Text: "a"} },
			got:  func(p *workflow.Plan) { action(p).Req = map[string]string{"Text": "a"} },
		},
		{
			name: "raw JSON of the request, in any order", same: true,
			want: func(p *workflow.Plan) { action(p).Req = plantest.Request{Text: "a", Number: 1} },
			got:  func(p *workflow.Plan) { action(p).Req = json.RawMessage(`{"Number": 1, "Text": "a"}`) },
		},
		{
			name: "raw JSON on the other side", same: true,
			want: func(p *workflow.Plan) { action(p).Req = json.RawMessage(`{"Text":"a"}`) },
			got:  func(p *workflow.Plan) { action(p).Req = plantest.Request{Text: "a"} },
		},
		{
			name: "raw JSON of another request", says: `"Text": "b"`,
			want: func(p *workflow.Plan) { action(p).Req = plantest.Request{Text: "a"} },
			got:  func(p *workflow.Plan) { action(p).Req = json.RawMessage(`{"Text":"b"}`) },
		},
		{
			name: "null instead of no request", says: "null",
			want: func(p *workflow.Plan) { action(p).Req = nil },
			got:  func(p *workflow.Plan) { action(p).Req = json.RawMessage("null") },
		},
		{
			name: "another response", says: "false",
			got: func(p *workflow.Plan) {
				action(p).Attempts[1].Resp = &plantest.Response{Text: action(p).Name}
			},
		},
		{
			name: "a response instead of a pointer to it", says: "want a response of type *plantest.Response, got plantest.Response",
			got: func(p *workflow.Plan) {
				action(p).Attempts[1].Resp = *action(p).Attempts[1].Resp.(*plantest.Response)
			},
		},
		{
			name: "a success instead of an error", says: "err",
			got: func(p *workflow.Plan) { action(p).Attempts[0].Err = nil },
		},
		{
			name: "an empty error instead of none", says: "err",
			got: func(p *workflow.Plan) { action(p).Attempts[1].Err = &plugins.Error{} },
		},
		{
			name: "nil in a list", says: "null",
			want: func(p *workflow.Plan) { p.DeferredActions.Batches[0].Actions = []*workflow.Action{{}} },
			got:  func(p *workflow.Plan) { p.DeferredActions.Batches[0].Actions = []*workflow.Action{nil} },
		},
		{
			name: "a field like a version in a request", says: `"etag": "b"`,
			want: func(p *workflow.Plan) { action(p).Req = json.RawMessage(`{"state":{"etag":"a"}}`) },
			got:  func(p *workflow.Plan) { action(p).Req = json.RawMessage(`{"state":{"etag":"b"}}`) },
		},
		{
			name: "a field like a version in a response", says: `"etag": "b"`,
			want: func(p *workflow.Plan) { action(p).Attempts[1].Resp = json.RawMessage(`[{"state":{"etag":"a"}}]`) },
			got:  func(p *workflow.Plan) { action(p).Attempts[1].Resp = json.RawMessage(`[{"state":{"etag":"b"}}]`) },
		},
		{
			name: "a time that can't be marshalled", says: "year outside of range",
			got: func(p *workflow.Plan) { p.SubmitTime = late },
		},
		{
			name: "two plans that can't be marshalled", says: "year outside of range",
			want: func(p *workflow.Plan) { p.SubmitTime = late },
			got:  func(p *workflow.Plan) { p.SubmitTime, p.Name = late, "another" },
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			want, got := finished(), finished()
			if test.want != nil {
				test.want(want)
			}
			if test.got != nil {
				test.got(got)
			}
			switch d := plantest.Diff(want, got); {
			case test.same && d != "":
				t.Error(d)
			case !test.same && (d == "" || !strings.Contains(d, test.says)):
				t.Errorf("got %q, want %q in it", d, test.says)
			}
			if d := plantest.Diff(got, want); (d == "") != test.same {
				t.Errorf("with the plans exchanged, Diff returns %q", d)
			}
		})
	}
}

func TestDiffText(t *testing.T) {
	got := plantest.Full()
	want := plantest.Full()
	*got = *want
	got.Descr = "another"
	d := plantest.Diff(want, got)
	lines := strings.Split(d, "\n")
	if len(lines) < 3 {
		t.Fatal(d)
	}
	for i, text := range []string{`want   "descr": "every field that an author may set",`, `got    "descr": "another",`} {
		if line := lines[len(lines)-2+i]; line != text {
			t.Errorf("line %q, want %q", line, text)
		}
	}
	if !strings.HasPrefix(lines[0], "line ") {
		t.Errorf("the first line is %q", lines[0])
	}
}

func TestDiffNil(t *testing.T) {
	if d := plantest.Diff(nil, nil); d != "" {
		t.Errorf("two nil plans differ: %s", d)
	}
	if plantest.Diff(nil, plantest.Small()) == "" || plantest.Diff(plantest.Small(), nil) == "" || plantest.Diff(nil, &workflow.Plan{}) == "" {
		t.Error("a nil plan equals a plan")
	}
}
