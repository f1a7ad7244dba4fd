// Package plantest makes plans for tests, good and bad ones, and compares plans.
package plantest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"reflect"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/plugins"
	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/workflow"
)

// PluginName is the plugin of all actions of the package's plans. Its requests are of the type [Request] and
// its responses of the type *[Response]. It can't be run.
const PluginName = "plantest.Echo"

// Request is the request of the plugin [PluginName].
type Request struct {
	Text    string
	Number  int64             `json:",omitempty"`
	Options map[string]string `json:",omitempty"`
	Payload []byte            `json:",omitempty"`
}

// Response is the response of the plugin [PluginName], which returns it as a pointer.
type Response struct {
	Text string
	OK   bool
}

// LooseName is a plugin whose requests and responses can't always be read again. Its requests are of the type
// [Loose] and its responses of the type *Loose. It can't be run.
const LooseName = "plantest.Loose"

// Loose is the request of the plugin [LooseName]. encoding/json can write any value of it, but not read all
// of them.
type Loose struct {
	// Any can hold values whose JSON is read as another type, or can't be read.
	Any any `json:",omitempty"`
	// Err can be read only if it is nil.
	Err error `json:",omitempty"`
	// Nested has its own UnmarshalText, which refuses some texts.
	Nested []Written `json:",omitempty"`
}

// Written is a text that can always be written, but is read only if it is in capitals.
type Written string

// MarshalText returns the text.
func (w Written) MarshalText() ([]byte, error) { return []byte(w), nil }

// UnmarshalText reads a text in capitals.
func (w *Written) UnmarshalText(text []byte) error {
	if s := string(text); s != strings.ToUpper(s) {
		return fmt.Errorf("%q is not in capitals", s)
	}
	*w = Written(text)
	return nil
}

// Register returns a new register with the plugins [PluginName], [LooseName] and [PickyName].
func Register() *registry.Register {
	return registry.Must(plugins.Typed[Request, *Response](PluginName), plugins.Typed[Loose, *Loose](LooseName), picky{PickyName})
}

// PickyName is the name of a plugin whose Check refuses each request without a Text.
const PickyName = "picky"

type picky struct {
	plugins.Typed[Request, *Response]
}

func (picky) Check(req any) error {
	if r, ok := req.(Request); ok && r.Text != "" {
		return nil
	}
	return &workflow.FieldError{Field: "Text", Problem: "is empty"}
}

// Small returns a plan with one action as an author builds it: without IDs, times and states.
func Small() *workflow.Plan { return Sized(1, 1, 1) }

// Sized returns a plan with the given number of blocks, of sequences in each block, and of actions in each
// sequence.
func Sized(blocks, sequences, actions int) *workflow.Plan {
	p := &workflow.Plan{Name: "sized", Descr: fmt.Sprintf("%d x %d x %d", blocks, sequences, actions)}
	for b := range blocks {
		block := &workflow.Block{Name: fmt.Sprintf("block %d", b)}
		for s := range sequences {
			seq := &workflow.Sequence{Name: fmt.Sprintf("sequence %d", s)}
			for a := range actions {
				seq.Actions = append(seq.Actions, action(fmt.Sprintf("action %d", a)))
			}
			block.Sequences = append(block.Sequences, seq)
		}
		p.Blocks = append(p.Blocks, block)
	}
	return p
}

// Full returns a plan in which every field that an author may set is set, and every optional object exists.
func Full() *workflow.Plan {
	p := &workflow.Plan{
		GroupID: uuid.New(),
		Name:    "full",
		Descr:   "every field that an author may set",
		Labels:  map[string]string{"env": "test", "team": "план"},
		Meta:    []byte(`{"owner": "plantest"}`),
	}
	allChecks(p)
	for b := range 2 {
		block := &workflow.Block{
			Key: uuid.New(), Name: fmt.Sprintf("block %d", b), Descr: "a block",
			EntranceDelay: time.Second, ExitDelay: 90 * time.Second, Concurrency: 2, ToleratedFailures: -1,
		}
		allChecks(block)
		for s := range 2 {
			block.Sequences = append(block.Sequences, &workflow.Sequence{
				Key: uuid.New(), Name: fmt.Sprintf("sequence %d", s), Descr: "a sequence",
				Actions: []*workflow.Action{action("first"), action("second")},
			})
			first, second := block.Sequences[s].Actions[0], block.Sequences[s].Actions[1]
			first.AtMost, second.Idempotent, second.Retries, second.NoRetries = 3, true, 0, true
			second.Secrets = []string{"/req/Options/token"}
		}
		p.Blocks = append(p.Blocks, block)
	}
	p.DeferredActions = &workflow.DeferredActions{}
	for _, when := range []workflow.When{workflow.OnSuccess, workflow.OnFailure, workflow.Always} {
		p.DeferredActions.Batches = append(p.DeferredActions.Batches, &workflow.DeferBatch{
			Key: uuid.New(), Name: when.String(), Descr: "a batch", When: when, FailElement: when == workflow.Always,
			Actions: []*workflow.Action{action("deferred")},
		})
	}
	for o := range workflow.Walk(p) {
		if a, ok := o.(*workflow.Action); ok {
			a.Backoff = plugins.Backoff{First: 1500 * time.Millisecond, Factor: 1.5, Most: time.Hour, Jitter: 0.25}
		}
	}
	return p
}

func allChecks(o workflow.Object) {
	for i, c := range workflow.ChecksOf(o) {
		*c = &workflow.Checks{Key: uuid.New(), Delay: time.Duration(i+1) * time.Minute, Actions: []*workflow.Action{action("check")}}
	}
}

func action(name string) *workflow.Action {
	return &workflow.Action{
		Key: uuid.New(), Name: name, Descr: "an action", Plugin: PluginName, Timeout: 30 * time.Second, Retries: 2,
		Req: Request{Text: name, Number: 1 << 60, Options: map[string]string{"a": "1", "b": ""}, Payload: []byte{0, 255}},
	}
}

// Strange yields texts that are easily damaged in headers, XML and JSON.
func Strange() iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, s := range []string{
			"", " ", "  ", " a", "a ", "a  b", "\t", "a\tb", "\n", "a\nb", "a\r\nb", "\x00", "\x7f",
			"план", "план, line\nbreak", "計画", "🚀", "👩‍🚀 and 🏴‍☠️", "é", "e\u0301", "\u200b", "\ufeff", "\u2028", "\ufffd", "\U0010ffff",
			"=?utf-8?b?YQ==?=", "=?utf-8?q?a?=", "=?", "?=", "=?x?=", " =?utf-8?b?YQ==?= ", "=?no-such-set?q?a?=",
			"%20", "%", "a%0Ab", "a+b", "&amp;", "<a>&\"'", "]]>", "\\", "\\u0041", `"quoted"`, "{}", "null", "a,b;c=d",
			strings.Repeat("long ", 4000), strings.Repeat("долго", 4000), strings.Repeat("🚀", 2000) + " ",
		} {
			if !yield(s) {
				return
			}
		}
	}
}

// Random returns a plan as an author builds it, of any shape up to a few dozen objects, with any text. Except
// for its IDs and Keys, it depends only on the seed.
func Random(seed uint64) *workflow.Plan {
	r := random{rand.New(rand.NewPCG(seed, 0))}
	p := &workflow.Plan{Name: r.text(), Descr: r.text()}
	if r.coin() {
		p.GroupID = uuid.New()
	}
	switch r.IntN(4) {
	case 0:
		p.Meta = []byte{}
	case 1:
		p.Meta = []byte(r.text())
	case 2:
		p.Meta = []byte{0xff, 0x00, byte(r.IntN(256))}
	}
	r.checks(p)
	for range r.IntN(4) {
		b := &workflow.Block{
			Name: r.text(), Descr: r.text(), EntranceDelay: r.duration(), ExitDelay: r.duration(),
			Concurrency: r.IntN(5), ToleratedFailures: r.IntN(5) - 1,
		}
		r.checks(b)
		for range r.IntN(4) {
			b.Sequences = append(b.Sequences, &workflow.Sequence{Name: r.text(), Descr: r.text(), Actions: r.actions()})
		}
		p.Blocks = append(p.Blocks, b)
	}
	if r.coin() {
		p.DeferredActions = &workflow.DeferredActions{}
		for range r.IntN(3) {
			p.DeferredActions.Batches = append(p.DeferredActions.Batches, &workflow.DeferBatch{
				Name: r.text(), Descr: r.text(), When: workflow.When(r.IntN(3)), FailElement: r.coin(), Actions: r.actions(),
			})
		}
	}
	for i := range r.IntN(3) {
		if p.Labels == nil {
			p.Labels = map[string]string{}
		}
		p.Labels[string(rune('a'+i))] = []string{"", "1", "=?план 🚀"}[r.IntN(3)]
	}
	if r.IntN(4) == 0 {
		p.ForkedFrom = workflow.NewV7()
	}
	if r.IntN(3) == 0 {
		p.Submitted = workflow.Actor{By: []string{"ops@example.com", "=?план 🚀", "  "}[r.IntN(3)], From: "host-3"}
	}
	for i := range r.IntN(3) {
		p.Keys = append(p.Keys, workflow.Key{Name: []string{"west", "=?план 🚀", "  "}[(i+r.IntN(2))%3], Limit: i})
	}
	if len(p.Keys) == 2 && p.Keys[0].Name == p.Keys[1].Name {
		p.Keys = p.Keys[:1]
	}
	return p
}

type random struct{ *rand.Rand }

func (r random) coin() bool { return r.IntN(2) == 0 }

func (r random) text() string {
	if r.coin() {
		return fmt.Sprintf("text %d", r.IntN(1000))
	}
	var all []string
	for s := range Strange() {
		if len(s) < 100 || r.IntN(20) == 0 {
			all = append(all, s)
		}
	}
	return all[r.IntN(len(all))]
}

func (r random) duration() time.Duration {
	if r.coin() {
		return 0
	}
	return time.Duration(r.Int64N(int64(100 * time.Hour)))
}

func (r random) checks(o workflow.Object) {
	for _, c := range workflow.ChecksOf(o) {
		if r.IntN(3) == 0 {
			*c = &workflow.Checks{Delay: r.duration(), Actions: r.actions()}
		}
	}
}

func (r random) actions() []*workflow.Action {
	var list []*workflow.Action
	for range r.IntN(4) {
		a := action(r.text())
		a.Descr, a.Timeout, a.Retries = r.text(), r.duration(), r.IntN(4)
		a.Idempotent, a.Req = r.IntN(3) == 0, Request{Text: r.text(), Number: r.Int64()}
		if r.IntN(4) == 0 {
			a.Req = nil
		}
		list = append(list, a)
	}
	return list
}

// Finish changes a plan as if it had run: every object is Completed, and every action has a failed attempt
// and a successful one.
func Finish(p *workflow.Plan) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	for o := range workflow.Walk(p) {
		s := o.Header().State
		s.Status, s.Start, s.End = workflow.Completed, start, start.Add(time.Minute)
		if a, ok := o.(*workflow.Action); ok {
			var after time.Duration
			if a.Backoff.First > 0 { // an action of Full has all fields
				after = time.Hour
			}
			a.Attempts = []workflow.Attempt{
				{Err: &plugins.Error{Code: 7, Message: "not yet: \n<&>", After: after, Wrapped: &plugins.Error{Code: 8, Message: "behind it"}}, Start: start, End: start.Add(time.Second)},
				{Resp: &Response{Text: a.Name, OK: true}, Start: start.Add(2 * time.Second), End: start.Add(time.Minute)},
			}
		}
	}
}

// Fork returns a new plan of the shape of [Full], forked from one that failed: Blocks[0] is Completed, with a
// failure that it tolerated in Sequences[1]. Of Blocks[1], Sequences[1] is Completed, and in Sequences[0] the
// second action failed.
func Fork() *workflow.Plan {
	p := Full()
	Finish(p)
	p.ID = workflow.NewV7()
	tolerated, failed := p.Blocks[0].Sequences[1], p.Blocks[1].Sequences[0]
	for _, o := range []workflow.Object{p, tolerated, tolerated.Actions[1], p.Blocks[1], failed, failed.Actions[1]} {
		o.Header().State.Status = workflow.Failed
	}
	f, err := workflow.Fork(p, workflow.ForkOptions{AfterCompensation: true})
	if err != nil {
		panic(err) // the plan has failed
	}
	return f
}

// Diff describes the first difference between two plans, line by line of their JSON. It returns "" if they
// are equal. It ignores versions (State.ETag). Requests and responses must have the same types, unless one of
// the two is raw JSON.
func Diff(want, got *workflow.Plan) string {
	if want == nil || got == nil {
		if want != got {
			return "only one of the plans is nil"
		}
		return ""
	}
	wantText, errA := workflow.Marshal(want)
	gotText, errB := workflow.Marshal(got)
	if err := errors.Join(errA, errB); err != nil {
		return "the plans can't be compared: " + err.Error()
	}
	if !bytes.Equal(wantText, gotText) { // most plans are equal, and the rest takes most of the time
		a, b := lines(want), lines(got)
		for i := range max(len(a), len(b)) {
			if x, y := lineAt(a, i), lineAt(b, i); x != y {
				return fmt.Sprintf("line %d:\n%s\nwant %s\ngot  %s", i+1, strings.Join(a[max(0, i-5):min(i, len(a))], "\n"), x, y)
			}
		}
	}
	next, stop := iter.Pull2(workflow.Walk(got))
	defer stop()
	for o := range workflow.Walk(want) {
		other, _, _ := next()
		if d := diffTypes(o, other); d != "" {
			return d
		}
	}
	return ""
}

// lines returns the lines of a plan's JSON without versions, with the members of all objects in one order. It ignores
// errors, because the plan can be marshalled.
func lines(p *workflow.Plan) []string {
	p = Clone(p)
	for o := range workflow.Walk(p) {
		o.Header().State.ETag = ""
	}
	text, _ := workflow.Marshal(p)
	var tree any
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	_ = d.Decode(&tree)
	text, _ = json.MarshalIndent(tree, "", "  ")
	return strings.Split(string(text), "\n")
}

func lineAt(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return "(nothing)"
}

func diffTypes(want, got workflow.Object) string {
	a, ok := want.(*workflow.Action)
	if !ok {
		return ""
	}
	b := got.(*workflow.Action)
	if !sameType(a.Req, b.Req) {
		return fmt.Sprintf("action %s: want a request of type %T, got %T", a.ID, a.Req, b.Req)
	}
	for i := range a.Attempts {
		if !sameType(a.Attempts[i].Resp, b.Attempts[i].Resp) {
			return fmt.Sprintf("action %s: want a response of type %T, got %T", a.ID, a.Attempts[i].Resp, b.Attempts[i].Resp)
		}
	}
	return ""
}

func sameType(a, b any) bool {
	_, rawA := a.(json.RawMessage)
	_, rawB := b.(json.RawMessage)
	return rawA || rawB || reflect.TypeOf(a) == reflect.TypeOf(b)
}
