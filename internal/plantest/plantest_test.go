package plantest_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/workflow"
)

// TestRandom checks that a seed determines a valid plan, and that seeds make different ones.
func TestRandom(t *testing.T) {
	different := map[string]bool{}
	for seed := range uint64(100) {
		var texts []string
		for range 2 {
			p := plantest.Random(seed)
			if err := workflow.Validate(p); err != nil {
				t.Errorf("seed %d: %v", seed, err)
			}
			p.GroupID, p.ForkedFrom = uuid.Nil, uuid.Nil // IDs and Keys are new each time
			plantest.EachField(p, func(path string, v reflect.Value) {
				if strings.HasSuffix(path, ".Key") {
					v.SetZero()
				}
			})
			text, err := workflow.Marshal(p)
			if err != nil {
				t.Fatal(err)
			}
			texts = append(texts, string(text))
		}
		if texts[0] != texts[1] {
			t.Errorf("seed %d makes two different plans", seed)
		}
		different[texts[0]] = true
	}
	if len(different) < 90 {
		t.Errorf("100 seeds make %d different plans", len(different))
	}
}

// TestFull checks that Full sets every field that an author may set, and no other field.
func TestFull(t *testing.T) {
	p := plantest.Full()
	if err := workflow.Validate(p); err != nil {
		t.Error(err)
	}
	notAuthored := []string{"ID", "PlanID", "State", "SubmitTime", "Submitted", "From", "Reason", "RuntimeUpdate", "Owner", "Epoch", "WakeAt", "LastSignal", "WaitsFor", "Alone", "Paused", "ForkedFrom", "Forked", "Stopped", "Ending", "Trouble", "By", "Why", "At", "Attempts", "Status", "Start", "End", "ETag"}
	plantest.EachField(p, func(path string, v reflect.Value) {
		field := path[strings.LastIndexByte(path, '.')+1:]
		switch {
		case slices.Contains(notAuthored, field):
			if !v.IsZero() {
				t.Errorf("%s is set, but an author does not set it", path)
			}
		case slices.Contains([]string{"NotBefore", "Deadline", "Keys", "KeepTurn", "Unique"}, field), strings.HasPrefix(path, "External"): // only tests of these set them
		case slices.Contains([]string{"When", "FailElement", "Idempotent", "AtMost", "Retries", "NoRetries", "Secrets"}, field): // each of their values is there: see below
		case v.IsZero(), v.Kind() == reflect.Slice && v.Len() == 0:
			t.Errorf("%s is not set", path)
		}
	})

	kinds, whens, fails, idempotent, bounded, secret, retried := map[workflow.Kind]bool{}, map[workflow.When]bool{}, map[bool]bool{}, map[bool]bool{}, map[bool]bool{}, map[bool]bool{}, map[bool]bool{}
	for o := range workflow.Walk(p) {
		kinds[o.Kind()] = true
		switch o := o.(type) {
		case *workflow.DeferBatch:
			whens[o.When], fails[o.FailElement] = true, true
		case *workflow.Action:
			idempotent[o.Idempotent], bounded[o.AtMost > 0], secret[len(o.Secrets) > 0] = true, true, true
			retried[o.Retries > 0 && !o.NoRetries] = true
		}
	}
	if len(kinds) != 7 || len(whens) != 3 || len(fails) != 2 || len(idempotent) != 2 || len(bounded) != 2 || len(secret) != 2 || len(retried) != 2 {
		t.Errorf("the plan has objects of %d kinds, batches with %d kinds of When and %d of FailElement, and actions with %d of Idempotent, %d of AtMost, %d of Secrets and %d of Retries",
			len(kinds), len(whens), len(fails), len(idempotent), len(bounded), len(secret), len(retried))
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
	plantest.EachField(p, func(path string, v reflect.Value) {
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
	plantest.EachField(got, func(path string, v reflect.Value) {
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
			name: "no state", says: "status",
			got: func(p *workflow.Plan) { p.State = workflow.State{} },
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
			name: "a time that can't be marshalled", says: "year outside of range",
			got: func(p *workflow.Plan) { p.SubmitTime = late },
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

// TestDiffText pins the text of a difference.
func TestDiffText(t *testing.T) {
	want, got := &workflow.Plan{Name: "a", Descr: "b"}, &workflow.Plan{Name: "a", Descr: "c"}
	const text = "line 2:\n{\nwant   \"descr\": \"b\",\ngot    \"descr\": \"c\","
	if d := plantest.Diff(want, got); d != text {
		t.Errorf("%q, want %q", d, text)
	}
	if plantest.Diff(nil, nil) != "" || plantest.Diff(nil, want) == "" || plantest.Diff(want, nil) == "" {
		t.Error("nil equals a plan")
	}
}
