package report

import (
	"encoding/json"
	"fmt"
	"html/template"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/plugins"
	"github.com/planvault/azblob/workflow"
)

// The types of this file are what the template shows. All their strings can stand in a page: text and line made
// them.

type page struct {
	CSS            template.CSS
	Policy, Script string
	Nav            []Link
	Made           string
	Title, Name    string
	Full           string // the whole name, if Name is shortened
	Status         status
	Descr, Reason  string
	Facts          []fact
	Meta           string
	Total          int
	Counts         []count
	Failures       []problem
	MoreFailures   int
	Running        []problem
	MoreRunning    int
	Timeline       *timeline
	Children       []*row
}

// status is a status or an outcome: a symbol and a word, and the class that gives it its colour.
type status struct{ Class, Mark, Word string }

type fact struct {
	Name, Value, URL string
	Mono             bool
}

// count is how many actions have a status, and its part of the bar that shows them all.
type count struct {
	Status status
	N      int
	X, W   float64
}

// problem is an action that somebody wants to look at.
type problem struct {
	Anchor, Path, Text string
	Note               string
}

// row is an object in the tree.
type row struct {
	Anchor, Kind, Role string
	Level              int // of the heading, or 0
	Name, Full         string
	Status             status
	Note               string // what the summary says behind the name
	Took               string
	Open               bool
	Facts              []fact
	Descr              string
	Request            *data
	Attempts           []attempt
	Earlier            []attempt // attempts that are folded
	Children           []*row
}

type attempt struct {
	Number           int
	Outcome          status
	Start, End, Took string
	Errors           string
	Response         *data
}

// data is a request or a response.
type data struct {
	Text string
	Left int // bytes that are not shown
}

type timeline struct {
	Day   string
	Ticks []tick
	Lanes []*lane
	Used  []status // the outcomes of the legend
}

// lane is a line of the timeline: an action, or a group with its actions below it.
type lane struct {
	Anchor, Name, Context string
	Heading               bool // a block
	Status                status
	Took                  string
	Text                  string // for those who don't see the bars
	Span                  *bar
	Bars                  []bar
	Open                  bool
	Rows                  []*lane
}

const (
	maxTitle    = 120 // characters of a name in a line
	maxProblems = 20
	maxAttempts = 10 // that are not folded
	fewActions  = 60 // a plan of so many is shown unfolded
)

// builder makes a page of a plan.
type builder struct {
	root  *Node
	now   time.Time
	total int
	scale scale
	timed bool
	next  int // the number of the next anchor
	rows  map[*Node]*row
	page  *page
	used  map[status]bool
}

func newPage(plan *workflow.Plan, o Options) *page {
	root := NewOutline(plan, o.Now)
	p := root.Object.(*workflow.Plan)
	v := &page{
		CSS: template.CSS(pageCSS), Policy: Policy(o), Script: o.Script, Nav: o.Nav, Made: Time(o.Now),
		Name: line(title(root), maxTitle), Status: statusOf(p.State.Status), Descr: text(p.Descr), Facts: planFacts(p, root, o),
		Meta: meta(p.Meta),
	}
	v.Title = v.Name + " · " + v.Status.Word
	if len(p.Name) > len(v.Name) {
		v.Full = text(p.Name)
	}
	if p.Reason != workflow.NoFailure {
		v.Reason = words(p.Reason.String())
	}
	b := &builder{root: root, now: o.Now, rows: map[*Node]*row{}, page: v, used: map[status]bool{}}
	v.Counts, v.Total = counts(root)
	b.total = v.Total
	b.scale, b.timed = newScale(root, o.Now)
	for _, c := range root.Children {
		v.Children = append(v.Children, b.row(c, 3))
	}
	b.problems(root, "")
	v.Timeline = b.timeline()
	return v
}

// title returns the author's name of an object, or what the object is.
func title(n *Node) string {
	if strings.TrimSpace(n.Name) != "" {
		return n.Name
	}
	return n.Role
}

func meta(m []byte) string {
	if len(m) == 0 {
		return ""
	}
	shown, left := payload(json.RawMessage(m))
	if left > 0 {
		shown += fmt.Sprintf("\n… %d bytes more", left)
	}
	return shown
}

func planFacts(p *workflow.Plan, root *Node, o Options) []fact {
	took := ""
	if d, ok := root.Span.Took(); ok {
		took = Duration(d)
		if root.Span.Open {
			took += " so far"
		}
	}
	epoch := ""
	if p.Epoch != 0 {
		epoch = fmt.Sprint(p.Epoch)
	}
	from := fact{Name: "Forked from", Value: id(p.ForkedFrom), Mono: true}
	if from.Value != "" && o.PlanURL != nil {
		from.URL = o.PlanURL(p.ForkedFrom)
	}
	return present([]fact{
		{Name: "ID", Value: id(p.ID), Mono: true},
		{Name: "Group", Value: id(p.GroupID), Mono: true},
		{Name: "Owner", Value: id(p.Owner), Mono: true},
		{Name: "Epoch", Value: epoch},
		from,
		{Name: "Submitted", Value: Time(p.SubmitTime)},
		{Name: "Started", Value: Time(p.State.Start)},
		{Name: "Ended", Value: Time(p.State.End)},
		{Name: "Duration", Value: took},
		{Name: "Last progress", Value: Time(p.RuntimeUpdate)},
	})
}

func present(facts []fact) []fact {
	return slices.DeleteFunc(facts, func(f fact) bool { return f.Value == "" })
}

// words returns a name of the code as words: PreCheckFailed is "pre check failed".
func words(name string) string {
	var b strings.Builder
	for i, r := range name {
		if i > 0 && 'A' <= r && r <= 'Z' {
			b.WriteByte(' ')
		}
		b.WriteRune(r)
	}
	return strings.ToLower(b.String())
}

// statusOf describes a status. A status that does not exist keeps its number.
func statusOf(s workflow.Status) status {
	switch s {
	case workflow.NotStarted:
		return status{"idle", "○", "not started"}
	case workflow.Running:
		return status{"run", "▶", "running"}
	case workflow.Completed:
		return status{"ok", "✓", "completed"}
	case workflow.Failed:
		return status{"bad", "✗", "failed"}
	case workflow.Stopped:
		return status{"stop", "■", "stopped"}
	}
	return status{"idle", "?", s.String()}
}

// notApplied is how bypass checks show that failed: the plan goes on.
var notApplied = status{"idle", "–", "did not apply"}

func outcomeOf(o Outcome) status {
	class := [...]string{"ok", "bad", "run", "cut"}[o]
	return status{class, [...]string{"✓", "✗", "▶", "↯"}[o], o.String()}
}

func counts(root *Node) (list []count, total int) {
	order := []workflow.Status{workflow.Completed, workflow.Failed, workflow.Stopped, workflow.Running, workflow.NotStarted}
	for s := range root.Actions {
		if !s.Valid() {
			order = append(order, s)
		}
	}
	for _, s := range order {
		list = append(list, count{Status: statusOf(s), N: root.Actions[s]})
	}
	list = append(list, count{Status: notApplied, N: root.NotApplied})
	for _, c := range list {
		total += c.N
	}
	x := 0.0
	for i := range list {
		list[i].X, list[i].W = x, 100*float64(list[i].N)/float64(max(total, 1))
		x += list[i].W
	}
	return slices.DeleteFunc(list, func(c count) bool { return c.N == 0 }), total
}

// row describes an object and everything below it. level is that of its heading.
func (b *builder) row(n *Node, level int) *row {
	b.next++
	r := &row{
		Anchor: fmt.Sprint("n", b.next), Kind: n.Object.Kind().String(), Role: n.Role, Name: line(title(n), maxTitle),
		Status: statusOf(n.Status), Facts: facts(n), Descr: text(descr(n.Object)),
		Open: b.open(n),
	}
	b.rows[n] = r
	if n.Object.Kind() == workflow.KindBlock {
		r.Level = level
	}
	if len(n.Name) > len(r.Name) {
		r.Full = text(n.Name)
	}
	if d, ok := n.Span.Took(); ok {
		r.Took = Duration(d)
	}
	r.Note = note(n)
	if n.DidNotApply() {
		r.Status = notApplied
	}
	if a, ok := n.Object.(*workflow.Action); ok {
		r.Role = line(a.Plugin, maxTitle)
		r.Request = newData(a.Req)
		for _, t := range n.Attempts {
			r.Attempts = append(r.Attempts, newAttemptView(t))
		}
		if more := len(r.Attempts) - maxAttempts; more > 0 {
			r.Earlier, r.Attempts = r.Attempts[:more], r.Attempts[more:]
		}
	}
	for _, c := range n.Children {
		r.Children = append(r.Children, b.row(c, level+1))
	}
	return r
}

// open reports whether the page shows an object unfolded: what failed or runs, and groups of small plans.
func (b *builder) open(n *Node) bool {
	if n.Object.Kind() == workflow.KindAction {
		return n.Status == workflow.Failed && !n.Harmless
	}
	if n.CarriedOver {
		return false
	}
	return n.Object.Kind() == workflow.KindBlock || b.total <= fewActions || n.Troubled() || n.Status == workflow.Running && n.Actions[workflow.Running] > 0
}

// note says what is special about an object.
func note(n *Node) string {
	var notes []string
	if n.CarriedOver {
		notes = append(notes, "carried over")
	}
	if k := len(n.Attempts); k > 1 {
		notes = append(notes, fmt.Sprintf("%d attempts", k))
	}
	if n.Object.Kind() != workflow.KindAction {
		notes = append(notes, n.Progress())
	}
	return strings.Join(notes, " · ")
}

func newAttemptView(a Attempt) attempt {
	v := attempt{Number: a.Number, Outcome: outcomeOf(a.Outcome), Start: precise(a.Span.Start), Response: newData(a.Resp)}
	if !a.Span.Open {
		v.End = strings.TrimPrefix(precise(a.Span.End), date(a.Span.Start))
	}
	if d, ok := a.Span.Took(); ok {
		v.Took = Duration(d)
	}
	v.Errors = text(strings.Join(Causes(a.Err), "\ncaused by: "))
	return v
}

func newData(v any) *data {
	shown, left := payload(v)
	if shown == "" {
		return nil
	}
	return &data{shown, left}
}

// Causes returns the texts of an error and of those that it wraps, outermost first.
func Causes(e *plugins.Error) (all []string) {
	for ; e != nil; e = e.Wrapped {
		s := e.Message
		if s == "" {
			s = "no message"
		}
		if e.Code != 0 {
			s += fmt.Sprintf(" (code %d)", e.Code)
		}
		if e.Permanent {
			s += " (permanent)"
		}
		all = append(all, s)
	}
	return all
}

func descr(o workflow.Object) string {
	switch o := o.(type) {
	case *workflow.Block:
		return o.Descr
	case *workflow.Sequence:
		return o.Descr
	case *workflow.Action:
		return o.Descr
	case *workflow.DeferBatch:
		return o.Descr
	}
	return ""
}

func facts(n *Node) []fact {
	h := n.Object.Header()
	list := []fact{{Name: "ID", Value: id(*h.ID), Mono: true}, {Name: "Key", Value: id(key(n.Object)), Mono: true}}
	set := func(name string, value any, is bool) {
		if is {
			list = append(list, fact{Name: name, Value: fmt.Sprint(value)})
		}
	}
	switch o := n.Object.(type) {
	case *workflow.Checks:
		set("Delay", o.Delay, o.Delay != 0)
	case *workflow.Block:
		set("Concurrency", o.Concurrency, o.Concurrency != 0)
		set("Tolerated failures", tolerated(o.ToleratedFailures), o.ToleratedFailures != 0)
		set("Entrance delay", o.EntranceDelay, o.EntranceDelay != 0)
		set("Exit delay", o.ExitDelay, o.ExitDelay != 0)
	case *workflow.Action:
		set("Timeout", o.Timeout, o.Timeout != 0)
		set("Retries", o.Retries, o.Retries != 0)
	case *workflow.DeferBatch:
		set("A failure", "fails the plan", o.FailElement)
	}
	if len(n.Attempts) == 0 { // attempts have their own times
		list = append(list, fact{Name: "Started", Value: precise(h.State.Start)}, fact{Name: "Ended", Value: precise(h.State.End)})
	}
	return present(list)
}

func tolerated(n int) string {
	if n < 0 {
		return "any number"
	}
	return fmt.Sprint(n)
}

func key(o workflow.Object) uuid.UUID {
	switch o := o.(type) {
	case *workflow.Checks:
		return o.Key
	case *workflow.Block:
		return o.Key
	case *workflow.Sequence:
		return o.Key
	case *workflow.Action:
		return o.Key
	case *workflow.DeferBatch:
		return o.Key
	}
	return uuid.Nil
}

// problems lists the actions that failed and those that run.
func (b *builder) problems(n *Node, path string) {
	if n != b.root {
		path = strings.TrimPrefix(path+" / "+line(title(n), maxTitle), " / ")
	}
	if n.Object.Kind() == workflow.KindAction {
		p := problem{Anchor: b.rows[n].Anchor, Path: path, Note: attemptsOf(n)}
		switch {
		case n.Status == workflow.Failed && !n.Harmless && !n.CarriedOver:
			p.Text = line(n.LastError(), 400)
			b.page.Failures = b.addTo(b.page.Failures, p, &b.page.MoreFailures)
		case n.Status == workflow.Running && n.Span.Open:
			p.Text = line(n.LastError(), 400)
			b.page.Running = b.addTo(b.page.Running, p, &b.page.MoreRunning)
		}
	}
	for _, c := range n.Children {
		b.problems(c, path)
	}
}

func (b *builder) addTo(list []problem, p problem, more *int) []problem {
	if len(list) == maxProblems {
		*more++
		return list
	}
	return append(list, p)
}

func attemptsOf(n *Node) string {
	s := "no attempts"
	switch k := len(n.Attempts); {
	case k == 1:
		s = "1 attempt"
	case k > 1:
		s = fmt.Sprintf("%d attempts", k)
	}
	if d, ok := n.Span.Took(); ok {
		s += ", " + Duration(d)
	}
	return s
}

// timeline describes the timeline, or returns nil if nothing of the plan has begun.
func (b *builder) timeline() *timeline {
	if !b.timed {
		return nil
	}
	t := &timeline{Day: b.scale.from.UTC().Format("2006-01-02"), Ticks: b.scale.ticks(8)}
	for _, c := range b.root.Children {
		t.Lanes = append(t.Lanes, b.lanes(c)...)
	}
	for _, o := range []Outcome{Succeeded, Failed, InProgress, Interrupted} {
		if used := outcomeOf(o); b.used[used] {
			t.Used = append(t.Used, used)
		}
	}
	return t
}

// lanes returns the lanes of a block with its groups, or of a group with its actions.
func (b *builder) lanes(n *Node) []*lane {
	l := b.lane(n)
	switch n.Object.Kind() {
	case workflow.KindBlock, workflow.KindDeferredActions:
		l.Heading = true
		all := []*lane{l}
		for _, c := range n.Children {
			all = append(all, b.lanes(c)...)
		}
		return all
	}
	for _, c := range n.Children {
		row := b.lane(c)
		l.Rows = append(l.Rows, row)
		for _, bar := range row.Bars {
			bar.Text = row.Name + ", " + bar.Text
			l.Bars = append(l.Bars, bar)
		}
	}
	if l.Open = b.rows[n].Open; l.Open {
		l.Bars = nil // its actions show them
	}
	return []*lane{l}
}

func (b *builder) lane(n *Node) *lane {
	r := b.rows[n]
	l := &lane{Anchor: r.Anchor, Name: r.Name, Status: r.Status, Took: r.Took, Text: r.Status.Word, Span: b.scale.span(n), Bars: b.scale.bars(n)}
	if n.Name != "" && n.Object.Kind() != workflow.KindAction {
		l.Context = n.Role
	}
	if r.Note != "" {
		l.Text += ", " + r.Note
	}
	for _, bar := range l.Bars {
		b.used[bar.Outcome] = true
	}
	return l
}
