package report

import (
	"encoding/json"
	"fmt"
	"html/template"
	"reflect"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/workflow"
)

// The types of this file are what the template shows. All their strings can stand in a page: text and line made
// them.

type page struct {
	CSS           template.CSS
	Policy        string
	Scripts       []string
	Site          *Site
	Made          string
	Title, Name   string
	Full          string // the whole name, if Name is shortened
	Status        Label
	Descr, Reason string
	Stuck, Turn   string
	Commands      []Command
	Facts         []fact
	Meta          string
	Total         int
	Many          bool // so many actions that print has two columns
	Counts        []part
	Failures      []problem
	MoreFailures  int
	Running       []problem
	MoreRunning   int
	Timeline      *timeline
	Children      []*row
}

type fact struct {
	Name, Value, URL string
	Mono             bool
}

// part is the part of a bar that shows a count.
type part struct {
	Count
	X, W float64
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
	Status             Label
	Note               string // what the summary says behind the name
	Took               string
	At                 string // when it started, for print
	Open               bool
	Told               bool // open in print
	Facts              []fact
	Descr              string
	Request            *data
	Attempts           []attempt
	Earlier            []attempt // attempts that are folded
	Children           []*row
	Pieces             []Link // to actions that are not among the children
}

type attempt struct {
	Number           int
	Outcome          Label
	Start, End, Took string
	Errors           string
	Said             *Said
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
	Used  []Label // the outcomes of the legend
}

// lane is a line of the timeline: an action, or a group with its actions below it.
type lane struct {
	Anchor, Name, Context string
	Heading               bool // a block
	Status                Label
	Took                  string
	Text                  string // for those who don't see the bars
	Span                  *bar
	Bars                  []bar
	Open                  bool
	Rows                  []*lane
}

const (
	maxTitle    = 120 // characters of a name in a line
	maxLabels   = 2000
	maxProblems = 20
	maxAttempts = 10 // that are not folded
	fewActions  = 60 // a plan of so many is shown unfolded

	onePage     = 1000 // actions of a plan that is shown as a whole, if there can be pieces
	pieceLength = 500  // actions of a piece
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
	used  map[Label]bool
	o     Options
	piece *row // the group that the page is a piece of
}

func newPage(plan *workflow.Plan, o Options) (*page, error) {
	if !o.Reveal {
		plan = plan.Redacted()
	}
	root := outline(plan, o.Now)
	p := root.Object.(*workflow.Plan)
	v := &page{
		CSS: template.CSS(pageCSS), Policy: Policy(o), Scripts: o.Scripts, Site: o.Site, Made: Time(o.Now),
		Name: line(root.Title, maxTitle), Status: LabelOf(p.State.Status), Descr: text(p.Descr), Facts: planFacts(root, o),
		Stuck: line(o.Stuck, 0), Turn: line(o.Turn, 0), Commands: o.Commands,
		Meta: meta(p.Meta),
	}
	v.Title = v.Name + " · " + v.Status.Word
	if len(p.Name) > len(v.Name) {
		v.Full = text(p.Name)
	}
	v.Reason = root.Reason()
	b := &builder{root: root, now: o.Now, rows: map[*Node]*row{}, page: v, used: map[Label]bool{}, o: o}
	v.Counts, v.Total = share(root.Counts())
	b.total, v.Many = v.Total, v.Total > fewActions
	b.scale, b.timed = newScale(root, o.Now)
	for _, c := range root.Children {
		v.Children = append(v.Children, b.row(c, 3))
	}
	if o.Piece != "" {
		if b.piece == nil || len(b.piece.Children) == 0 {
			return nil, ErrNoPiece
		}
		v.Children, b.piece.Open, v.Stuck, v.Turn, v.Commands = []*row{b.piece}, true, "", "", nil
		return v, nil
	}
	b.problems()
	v.Timeline = b.timeline()
	return v, nil
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

// planFacts returns the facts of a plan that the page shows.
func planFacts(root *Node, o Options) (list []fact) {
	for _, f := range FactsOf(root).In("page") {
		shown := fact{Name: f.Name, Value: line(f.Text(Time), maxLabels)}
		id, isID := f.Value.(uuid.UUID)
		switch shown.Mono = isID; {
		case f.Name == "Owner" && o.OwnerName != "":
			list = append(list, fact{Name: "Node", Value: line(o.OwnerName, maxTitle)})
		case f.Name == "Forked from" && o.PlanURL != nil:
			shown.URL = o.PlanURL(id)
		}
		list = append(list, shown)
	}
	return list
}

// share places the counts beside each other on one bar.
func share(counts []Count) (list []part, total int) {
	for _, c := range counts {
		total += c.N
	}
	x := 0.0
	for _, c := range counts {
		p := part{Count: c, X: x, W: 100 * float64(c.N) / float64(total)}
		list = append(list, p)
		x += p.W
	}
	return list, total
}

// row describes an object and everything below it. level is that of its heading.
func (b *builder) row(n *Node, level int) *row {
	b.next++
	r := &row{
		Anchor: fmt.Sprint("n", b.next), Kind: n.Object.Kind().String(), Role: n.Role, Name: line(n.Title, maxTitle),
		Status: n.Label(), Note: n.Note(), Took: n.Span.Took(), Facts: facts(n), Descr: text(n.descr),
		At: b.at(n), Open: b.open(n), Told: b.told(n),
	}
	b.rows[n] = r
	if n.Object.Kind() == workflow.KindBlock {
		r.Level = level
	}
	if len(n.Name) > len(r.Name) {
		r.Full = text(n.Name)
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
	for _, c := range b.shown(n, r) {
		if c == nil {
			b.next++ // an action that is left out keeps its number
		} else {
			r.Children = append(r.Children, b.row(c, level+1))
		}
	}
	return r
}

// shown returns the children of a node that the page shows, with nil in the place of the others, to which r then leads.
func (b *builder) shown(n *Node, r *row) []*Node {
	all := n.Children
	if len(all) == 0 || all[0].Object.Kind() != workflow.KindAction || b.o.PieceURL == nil || b.total <= onePage {
		return all
	}
	piece := func(text string, from int) {
		r.Pieces = append(r.Pieces, Link{Text: text, URL: b.o.PieceURL(r.Anchor, from)})
	}
	shown := make([]*Node, len(all))
	if r.Anchor == b.o.Piece {
		b.piece = r
		from := min(max(0, b.o.From), len(all))
		to := min(from+pieceLength, len(all))
		copy(shown[from:to], all[from:to])
		if from > 0 {
			piece("Earlier", max(0, from-pieceLength))
		}
		if to < len(all) {
			piece("Later", to)
		}
		return shown
	}
	kept := map[workflow.Status]int{}
	for i, c := range all {
		if looked := c.Status == workflow.Failed || c.Status == workflow.Running; looked && kept[c.Status] < maxProblems {
			kept[c.Status]++
			shown[i] = c
		}
	}
	if left := len(all) - kept[workflow.Failed] - kept[workflow.Running]; left > 0 {
		piece(fmt.Sprintf("All %d actions", len(all)), 0)
	}
	return shown
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

// told reports whether print shows what is below the line of an object: groups, and actions that did not succeed. Among
// few actions, it also shows those that did not succeed at once; their lines say so in any case.
func (b *builder) told(n *Node) bool {
	return n.Object.Kind() != workflow.KindAction || len(n.Attempts) > 1 && b.total <= fewActions || n.Status != workflow.Completed && n.Status != workflow.NotStarted
}

// at returns when an object started: the time, on the day on which the timeline begins.
func (b *builder) at(n *Node) string {
	at := Time(n.Span.Start)
	if b.timed {
		at = strings.TrimPrefix(at, date(b.scale.from))
	}
	return at
}

func newAttemptView(a Attempt) attempt {
	v := attempt{
		Number: a.Number, Outcome: a.Outcome.Label(), Start: precise(a.Span.Start), Took: a.Span.Took(),
		Errors: text(strings.Join(Causes(a.Err), "\ncaused by: ")), Said: a.Said, Response: newData(a.Resp),
	}
	if !a.Span.Open {
		v.End = strings.TrimPrefix(precise(a.Span.End), date(a.Span.Start))
	}
	return v
}

func newData(v any) *data {
	shown, left := payload(v)
	if shown == "" {
		return nil
	}
	return &data{shown, left}
}

// facts returns the facts of an object below a plan.
func facts(n *Node) []fact {
	h := n.Object.Header()
	var list []fact
	add := func(name string, value any) {
		if _, isID := value.(uuid.UUID); !reflect.ValueOf(value).IsZero() {
			list = append(list, fact{Name: name, Value: fmt.Sprint(value), Mono: isID})
		}
	}
	add("ID", *h.ID)
	add("Key", n.key)
	switch o := n.Object.(type) {
	case *workflow.Checks:
		add("Delay", o.Delay)
	case *workflow.Block:
		add("Concurrency", o.Concurrency)
		add("Tolerated failures", tolerated(o.ToleratedFailures))
		add("Entrance delay", o.EntranceDelay)
		add("Exit delay", o.ExitDelay)
	case *workflow.Action:
		add("Timeout", o.Timeout)
		add("Retries", o.Retries)
		add("No retries", o.NoRetries)
		add("Backoff", o.Backoff)
		add("Runs at most", o.AtMost)
		add("Idempotent", o.Idempotent)
	case *workflow.DeferBatch:
		add("A failure", map[bool]string{true: "fails the plan"}[o.FailElement])
	}
	if len(n.Attempts) == 0 { // attempts have their own times
		add("Started", precise(h.State.Start))
		add("Ended", precise(h.State.End))
	}
	return list
}

func tolerated(n int) any {
	if n < 0 {
		return "any number"
	}
	return n
}

// problems lists the actions that failed and those that run.
func (b *builder) problems() {
	for n := range b.root.All() {
		p := problem{Text: line(n.LastError(), 400), Note: attemptsOf(n)}
		switch {
		case n.Object.Kind() != workflow.KindAction:
		case n.Status == workflow.Failed && n.Troubled():
			b.page.Failures = b.addTo(b.page.Failures, n, p, &b.page.MoreFailures)
		case n.Status == workflow.Running && n.Span.Open:
			b.page.Running = b.addTo(b.page.Running, n, p, &b.page.MoreRunning)
		}
	}
}

func (b *builder) addTo(list []problem, n *Node, p problem, more *int) []problem {
	if len(list) == maxProblems {
		*more++
		return list
	}
	p.Anchor, p.Path = b.rows[n].Anchor, line(n.Path, 0)
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
	if took := n.Span.Took(); took != "" {
		s += ", " + took
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
	for _, o := range []Outcome{Succeeded, Failed, InProgress, Interrupted, Skipped} {
		if used := o.Label(); b.used[used] {
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
		if b.rows[c] == nil {
			continue // left out
		}
		row := b.lane(c)
		l.Rows = append(l.Rows, row)
		for _, bar := range row.Bars {
			bar.Text = row.Name + ", " + bar.Text
			l.Bars = append(l.Bars, bar)
		}
	}
	if l.Open = b.rows[n].Open && len(l.Bars) > 0; l.Open {
		l.Bars = nil // its actions show them
	}
	return []*lane{l}
}

func (b *builder) lane(n *Node) *lane {
	r := b.rows[n]
	l := &lane{Anchor: r.Anchor, Name: r.Name, Status: r.Status, Took: r.Took, Text: r.Status.Word, Context: n.Role, Span: b.scale.span(n), Bars: b.scale.bars(n)}
	if r.Note != "" {
		l.Text += ", " + r.Note
	}
	for _, bar := range l.Bars {
		b.used[bar.Outcome] = true
	}
	return l
}
