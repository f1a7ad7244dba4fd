package web

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/planvault/azblob/cmd/planvault/internal/human"
	"github.com/planvault/azblob/fleet"
)

const (
	// fewPlans is how many stuck plans, and how many others, the first page shows in full.
	fewPlans = 20
	// firstPlans is how many plans of each group it shows if more are stuck.
	firstPlans = 3
	// groupPage is how many plans a page of one group has.
	groupPage = 25
)

// others is the group of plans that are not stuck, in place of a reason.
const others fleet.Reason = "others"

// reasons returns the groups that a viewer may choose.
func reasons() []fleet.Reason { return append(fleet.Reasons(), fleet.ReasonUnknown, others) }

// choice is what a viewer wants to see of the open plans.
type choice struct {
	Reason      fleet.Reason // one of reasons(), or all of them
	Owner, Name string       // parts of texts
	Page        int          // from 1
}

func parseChoice(form url.Values) choice {
	c := choice{Owner: clean(form.Get("owner")), Name: clean(form.Get("name")), Page: 1}
	if reason := fleet.Reason(form.Get("reason")); slices.Contains(reasons(), reason) {
		c.Reason = reason
	}
	if n, err := strconv.Atoi(form.Get("page")); err == nil && c.Reason != "" {
		c.Page = min(max(n, 1), maxPlans)
	}
	return c
}

// address returns the address of a page of a group with the same filters.
func (c choice) address(reason fleet.Reason, page int) string {
	v := url.Values{}
	for name, text := range map[string]string{"reason": string(reason), "owner": c.Owner, "name": c.Name} {
		if text != "" {
			v.Set(name, text)
		}
	}
	if page > 1 {
		v.Set("page", strconv.Itoa(page))
	}
	if len(v) == 0 {
		return "/"
	}
	return "/?" + v.Encode()
}

// String says what was chosen, such as "owner gone, name contains checkout".
func (c choice) String() string {
	var parts []string
	for _, part := range []struct{ before, text string }{{"", c.Reason.String()}, {"owner contains ", c.Owner}, {"name contains ", c.Name}} {
		if part.text != "" {
			parts = append(parts, part.before+human.Line(part.text, 60))
		}
	}
	return strings.Join(parts, ", ")
}

// takes reports whether the filters let a plan through.
func (c choice) takes(r planRow) bool {
	return strings.Contains(r.Plan.Name, c.Name) &&
		(c.Owner == "" || strings.Contains(r.OwnerName, c.Owner) || strings.Contains(r.Plan.Owner.String(), strings.ToLower(c.Owner)))
}

// group are the plans that are stuck for one reason, as far as a page shows them.
type group struct {
	ID, Title, Remedy string // without a title, plans of all reasons
	Stuck             bool
	Rows              []planRow
	Total, Unread     int
	Span              string // which of them a page of the group shows
	All, Older, Newer string // addresses; empty if there is no such page
}

// openView is the page of open plans as a viewer wants it.
type openView struct {
	*state
	Choice  choice
	Reasons []fleet.Reason
	Many    bool // so many that filters help
	Detail  bool // whether each plan says why it is stuck
	Groups  []group
	Others  []group // one or none
}

// view chooses what a page shows.
func (s *state) view(c choice) openView {
	v := openView{state: s, Choice: c, Reasons: reasons(), Many: c.String() != "" || len(s.Plans) > 2*fewPlans}
	var stuck, rest []planRow
	byReason := map[fleet.Reason][]planRow{}
	for _, r := range s.Plans {
		switch {
		case !c.takes(r):
		case r.Stuck || r.Unread:
			if c.Reason == "" || c.Reason == r.Reason {
				stuck = append(stuck, r)
				byReason[r.Reason] = append(byReason[r.Reason], r)
			}
		case c.Reason == "" || c.Reason == others:
			rest = append(rest, r)
		}
	}
	switch v.Detail = len(stuck) <= fewPlans; {
	case v.Detail && len(stuck) > 0:
		v.Groups = []group{{ID: "stuck", Stuck: true, Rows: stuck, Total: len(stuck)}}
	case !v.Detail:
		for reason, rows := range byReason {
			v.Groups = append(v.Groups, c.groupOf(reason, rows))
		}
		slices.SortFunc(v.Groups, func(a, b group) int { return cmp.Or(b.Total-a.Total, strings.Compare(a.ID, b.ID)) })
	}
	if len(rest) > 0 {
		g := group{ID: "open", Total: len(rest)}
		c.fill(&g, rest, others, fewPlans)
		v.Others = []group{g}
	}
	return v
}

// groupOf returns the group of a reason.
func (c choice) groupOf(reason fleet.Reason, rows []planRow) group {
	g := group{ID: string(reason), Stuck: true, Remedy: reason.Remedy(), Total: len(rows)}
	for _, r := range rows {
		if r.Unread {
			g.Unread++
		}
	}
	plans := "plans"
	if len(rows) == 1 {
		plans = "plan"
	}
	g.Title = fmt.Sprintf("%d %s: %s", len(rows), plans, reason)
	c.fill(&g, rows, reason, firstPlans)
	return g
}

// fill puts the plans into a group that the page shows: the first ones, or a page of them if the group was chosen.
func (c choice) fill(g *group, rows []planRow, reason fleet.Reason, first int) {
	if c.Reason == "" {
		if g.Rows = rows[:min(first, len(rows))]; len(g.Rows) < len(rows) {
			g.All = c.address(reason, 1)
		}
		return
	}
	last := (len(rows) + groupPage - 1) / groupPage
	page := min(c.Page, last)
	g.Rows = rows[(page-1)*groupPage : min(page*groupPage, len(rows))]
	if last > 1 {
		g.Span = fmt.Sprintf("%d to %d of %d", (page-1)*groupPage+1, (page-1)*groupPage+len(g.Rows), len(rows))
	}
	if page > 1 {
		g.Newer = c.address(reason, page-1)
	}
	if page < last {
		g.Older = c.address(reason, page+1)
	}
}
