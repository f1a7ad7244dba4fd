package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/planvault/azblob/fleet"
)

const (
	// fewStuck is how many stuck plans are shown with why each is stuck.
	fewStuck = 20
	// mostStuck is the default of stuck --limit.
	mostStuck = 50
	// mostReads is that of stuck --reads.
	mostReads = 50
)

// printReasons prints, if many plans are stuck, how many are stuck for each reason, and what to do. It returns the plans
// that the table shows: at most limit then, without why each is stuck.
func (a *app) printReasons(rows []openRow, limit int) ([]openRow, error) {
	if len(rows) <= fewStuck || a.output == outputJSON {
		return rows, nil
	}
	reasons, unread := map[fleet.Reason]int{}, map[fleet.Reason]int{}
	for _, r := range rows {
		if reasons[r.Reason]++; r.Unread {
			unread[r.Reason]++
		}
	}
	byCount := func(a, b fleet.Reason) int {
		return cmp.Or(reasons[b]-reasons[a], strings.Compare(string(a), string(b)))
	}
	for _, reason := range slices.SortedFunc(maps.Keys(reasons), byCount) {
		text := fmt.Sprintf("%s: %s. %s", plural(reasons[reason], "plan"), reason, reason.Remedy())
		if n := unread[reason]; n > 0 {
			text += fmt.Sprintf(" Not read: %s of them.", count(n))
		}
		if err := a.summarize(wrap(text, a.width()) + "\n"); err != nil {
			return nil, err
		}
	}
	if limit > 0 && limit < len(rows) {
		if err := a.summarize(fmt.Sprintf("The first %s of %s:", count(limit), count(len(rows)))); err != nil {
			return nil, err
		}
		rows = rows[:limit]
	}
	rows = slices.Clone(rows)
	for n := range rows {
		rows[n].Why = ""
	}
	return rows, nil
}
