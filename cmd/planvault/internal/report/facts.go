package report

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/cmd/planvault/internal/human"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// Listed is what a listing knows of a plan. As in [Facts], a field is a fact wherever it is shown: the tag json is its name
// in JSON, help says what it means there, and tree, page, or shown for both, is its name on a terminal and on a page.
type Listed struct {
	ID          uuid.UUID         `shown:"ID" json:"id" help:"the plan's ID"`
	Group       uuid.UUID         `shown:"Group" json:"group,omitzero" help:"the ID of its group"`
	Name        string            `json:"name" help:"its name"`
	Descr       string            `tree:"Description" json:"descr,omitempty" help:"its description"`
	Labels      map[string]string `shown:"Labels" json:"labels,omitempty" help:"its labels"`
	Status      string            `json:"status" help:"NotStarted, Running, Completed, Failed or Stopped"`
	Submitted   time.Time         `shown:"Submitted" json:"submitted,omitzero" help:"when it was submitted"`
	SubmittedBy string            `json:"submittedBy,omitempty" help:"who submitted it, as they said"`
	Started     time.Time         `shown:"Started" json:"started,omitzero" help:"when it began"`
	Ended       time.Time         `shown:"Ended" json:"ended,omitzero" help:"when it ended"`
	Took        Span              `shown:"Took" json:"tookSeconds,omitzero" help:"how long it took"`
	Owner       uuid.UUID         `shown:"Owner" json:"owner,omitzero" help:"the node that owns it, or owned it last"`
	Epoch       int64             `shown:"Epoch" json:"epoch,omitempty" help:"how often an owner has taken it"`
	SleepsUntil time.Time         `shown:"Sleeps until" json:"sleepsUntil,omitzero" help:"when it goes on, if it sleeps, or may begin"`
	External    string            `shown:"Placed by" json:"external,omitempty" help:"the engine of another kind that places it, while it is open"`
	Keys        []string          `json:"keys,omitempty" help:"the keys that it takes turns for, while it is open"`
	KeepTurn    string            `shown:"Turns" json:"keepTurn,omitempty" help:"KeepWhileAwake: it gives its turns back while it sleeps"`
	Unique      string            `shown:"Unique" json:"unique,omitempty" help:"the text that only one open plan may have"`
	WaitsFor    string            `shown:"Has no turn for" json:"waitsFor,omitempty" help:"a key that it has no turn for while it sleeps"`
	ForkedFrom  uuid.UUID         `shown:"Forked from" json:"forkedFrom,omitzero" help:"the plan that it was forked from"`
}

// Facts is all that is known of a plan as a whole.
type Facts struct {
	Listed
	Submitter     string    `shown:"Submitted by" json:"-"`
	SubmittedFrom string    `json:"submittedFrom,omitempty" help:"from where it was submitted, as they said"`
	Reason        string    `json:"reason,omitempty" help:"why it failed"`
	Forked        *Said     `shown:"Forked by" json:"forked,omitempty" help:"who asked for the fork, and why"`
	Stopped       *Said     `shown:"Stopped by" json:"stopped,omitempty" help:"who asked for the stop, and why"`
	EndedHook     string    `shown:"Ended hook" json:"endedHook,omitempty" help:"what became of the engine's hook for ended plans"`
	ExternalAsk   string    `shown:"Ask it" json:"externalAsk,omitempty" help:"how to ask that engine"`
	Turns         []string  `shown:"Keys" json:"-"`
	Limits        []int     `json:"limits,omitempty" help:"for each of the keys, how many plans may have a turn at once, as this plan says"`
	Paused        *Said     `shown:"Paused by" json:"paused,omitempty" help:"who paused it, and why, while it sleeps for that"`
	NotBefore     time.Time `shown:"Not before" json:"notBefore,omitzero" help:"when it may begin"`
	Deadline      time.Time `shown:"Deadline" json:"deadline,omitzero" help:"when it is stopped at the latest"`
	LastProgress  time.Time `page:"Last progress" json:"-"`
	Actions       Counts    `tree:"Actions" json:"actions" help:"actions by status; NotApplied: bypass checks that failed"`
}

// ListedOf returns what a listing knows of a plan.
func ListedOf(r storage.ListResult) Listed {
	return Listed{
		ID: r.ID, Group: r.GroupID, Name: r.Name, Descr: r.Descr, Labels: r.Labels, Status: r.State.Status.String(),
		Submitted: human.UTC(r.SubmitTime), SubmittedBy: r.SubmittedBy, Started: human.UTC(r.State.Start), Ended: human.UTC(r.State.End),
		Took: Span{Start: r.State.Start, End: r.State.End}, Owner: r.Owner, Epoch: r.Epoch, SleepsUntil: human.UTC(r.WakeAt), External: r.External, Keys: r.Keys, KeepTurn: turnsOf(r.KeepTurn), Unique: r.Unique, WaitsFor: r.WaitsFor, ForkedFrom: r.ForkedFrom,
	}
}

// FactsOf returns what is known of the plan of an outline.
func FactsOf(root *Node) Facts {
	p := root.Object.(*workflow.Plan)
	f := Facts{
		Listed: ListedOf(driver.Listed(p)), Submitter: submitterOf(p.Submitted), SubmittedFrom: p.Submitted.From, Forked: saidOf(p.Forked), Stopped: saidOf(p.Stopped), Paused: saidOf(p.Paused), NotBefore: human.UTC(p.NotBefore), Deadline: human.UTC(p.Deadline),
		LastProgress: p.RuntimeUpdate, Actions: root.Counts(),
	}
	f.Took = root.Span
	if p.Reason != workflow.NoFailure {
		f.Reason = p.Reason.String()
	}
	f.EndedHook = hookOf(p)
	f.External, f.ExternalAsk = p.External.Name, p.External.Ask
	f.Keys, f.KeepTurn, f.WaitsFor, f.Unique = nil, turnsOf(p.KeepTurn), p.WaitsFor, p.Unique
	for _, k := range p.Keys {
		most := max(1, k.Limit)
		f.Keys, f.Limits, f.Turns = append(f.Keys, k.Name), append(f.Limits, most), append(f.Turns, fmt.Sprintf("%s (%d)", k.Name, most))
	}
	return f
}

// turnsOf names the rule for turns, unless it is what plans do anyway.
func turnsOf(k workflow.KeepTurn) string {
	if k == workflow.KeepAlways {
		return ""
	}
	return k.String()
}

// hookOf says what became of the hook for ended plans, if the plan has one.
func hookOf(p *workflow.Plan) string {
	switch e := p.Ending; {
	case e == (workflow.Ending{}):
		return ""
	case e.Trouble != "":
		return e.Trouble
	case p.State.Status.Final():
		return "has returned"
	}
	return "is called since " + Time(p.Ending.At)
}

// Fact is a fact for people.
type Fact struct {
	Name  string
	Value any
}

// In returns the facts that are shown in a place, "tree" or "page", and known.
func (f Facts) In(place string) (list []Fact) {
	facts := reflect.ValueOf(f)
	for _, field := range reflect.VisibleFields(facts.Type()) {
		name, value := cmp.Or(field.Tag.Get("shown"), field.Tag.Get(place)), facts.FieldByIndex(field.Index)
		zero, ok := value.Interface().(interface{ IsZero() bool })
		if name != "" && !value.IsZero() && !(ok && zero.IsZero()) {
			list = append(list, Fact{name, value.Interface()})
		}
	}
	return list
}

// Text returns the value, and times as at does. Texts of the plan are as they are.
func (f Fact) Text(at func(time.Time) string) string {
	switch v := f.Value.(type) {
	case time.Time:
		return at(v)
	case map[string]string:
		return workflow.FormatLabels(v)
	case []string:
		return joined(v)
	case []int:
		return joined(v)
	}
	return fmt.Sprint(f.Value)
}

// joined joins the values of a list with commas.
func joined[T any](list []T) string {
	var text []string
	for _, v := range list {
		text = append(text, fmt.Sprint(v))
	}
	return strings.Join(text, ", ")
}

// Said is who did something to a plan, as they said.
type Said struct {
	By  string    `json:"by" help:"who it was, as they said"`
	Why string    `json:"why,omitempty" help:"why"`
	At  time.Time `json:"at,omitzero" help:"when"`
}

// submitterOf says who submitted a plan, and from where.
func submitterOf(a workflow.Actor) string {
	if a.From == "" {
		return a.By
	}
	return cmp.Or(a.By, "somebody") + ", from " + a.From
}

// saidOf returns nil if nobody said anything.
func saidOf(d workflow.Attribution) *Said {
	if d.By+d.Why == "" {
		return nil
	}
	return &Said{d.By, d.Why, human.UTC(d.At)}
}

// String says who it was, when and why, in one line.
func (s *Said) String() string {
	words := cmp.Or(line(s.By, workflow.MaxBy), "somebody")
	if at := Time(s.At); at != "" {
		words += ", " + at
	}
	if s.Why != "" {
		words += ": " + line(s.Why, workflow.MaxWhy)
	}
	return words
}

// Counts is how many actions have each status.
type Counts []Count

// Count is how many actions have a status. Key is its name in JSON.
type Count struct {
	Label
	Key string
	N   int
}

// String returns the counts in words, in their order.
func (c Counts) String() string {
	var counts []string
	for _, of := range c {
		counts = append(counts, human.Count(of.N)+" "+of.Word)
	}
	return strings.Join(counts, ", ")
}

// MarshalJSON writes an object with the number for each key.
func (c Counts) MarshalJSON() ([]byte, error) {
	numbers := map[string]int{}
	for _, of := range c {
		numbers[of.Key] = of.N
	}
	return json.Marshal(numbers)
}
