package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/pflag"

	"github.com/planvault/azblob/cmd/planvault/human"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// selection is the flags that select plans.
type selection struct {
	statuses       statusList
	groups         groupList
	name, contains string
	created, ended period
}

// addFlags adds the flags that select plans.
func (s *selection) addFlags(flags *pflag.FlagSet) {
	flags.Var(&s.statuses, "status", "plans of these `STATUSES`: notstarted, running (both are open), completed, failed, stopped (all are final)")
	flags.Var(&s.groups, "group", "plans of the groups with these `IDS`")
	flags.StringVar(&s.name, "name", "", "plans whose name begins with `TEXT`")
	flags.StringVar(&s.contains, "contains", "", "plans whose name contains `TEXT`")
	s.created.addFlags(flags, "created", "plans created")
	s.ended.addFlags(flags, "ended", "final plans that ended")
}

// filters returns the filters of the flags. Ages count from now.
func (s *selection) filters(now time.Time) storage.Filters {
	return storage.Filters{
		ByStatus: s.statuses, ByGroupIDs: s.groups, NamePrefix: s.name, NameContains: s.contains,
		After: s.created.after.from(now), Before: s.created.before.from(now),
		EndedAfter: s.ended.after.from(now), EndedBefore: s.ended.before.from(now),
	}
}

// statusList is statuses in a flag, with commas between them.
type statusList []workflow.Status

func (l *statusList) String() string { return "" }
func (l *statusList) Type() string   { return "statuses" }

func (l *statusList) Set(text string) error {
	for word := range strings.SplitSeq(text, ",") {
		statuses, err := parseStatuses(word)
		if err != nil {
			return err
		}
		*l = append(*l, statuses...)
	}
	return nil
}

// groupList is IDs of groups in a flag, with commas between them.
type groupList []uuid.UUID

func (l *groupList) String() string { return "" }
func (l *groupList) Type() string   { return "ids" }

func (l *groupList) Set(text string) error {
	for word := range strings.SplitSeq(text, ",") {
		id, err := parseID("group", word)
		if err != nil {
			return err
		}
		*l = append(*l, id)
	}
	return nil
}

// parsePlanIDs parses the IDs of plans in arguments.
func parsePlanIDs(args []string) (ids []uuid.UUID, err error) {
	for _, text := range args {
		id, err := parseID("plan", text)
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// parseID parses the ID of a plan or a group.
func parseID(of, text string) (uuid.UUID, error) {
	id, err := uuid.Parse(text)
	if err != nil || len(text) != len(uuid.Nil.String()) {
		return uuid.Nil, usageError("%q is not the ID of a %s: IDs look like 0198c0de-0000-7000-8000-000000000001", printable(text, 50), of)
	}
	return id, nil
}

// parseStatuses parses a status, or a word for several.
func parseStatuses(text string) ([]workflow.Status, error) {
	switch strings.ToLower(text) {
	case "notstarted":
		return []workflow.Status{workflow.NotStarted}, nil
	case "running":
		return []workflow.Status{workflow.Running}, nil
	case "completed":
		return []workflow.Status{workflow.Completed}, nil
	case "failed":
		return []workflow.Status{workflow.Failed}, nil
	case "stopped":
		return []workflow.Status{workflow.Stopped}, nil
	case "open":
		return []workflow.Status{workflow.NotStarted, workflow.Running}, nil
	case "final":
		return []workflow.Status{workflow.Completed, workflow.Failed, workflow.Stopped}, nil
	}
	return nil, usageError("%q is not a status: notstarted, running, completed, failed, stopped, open or final", printable(text, 50))
}

// period is the two flags of a period of time.
type period struct{ after, before moment }

// addFlags adds the flags, such as --created-after and --created-before. what says what they select.
func (p *period) addFlags(flags *pflag.FlagSet, event, what string) {
	flags.Var(&p.after, event+"-after", what+" after `TIME`: 2026-11-21, 2026-11-21T03:00Z, or an age: 36h, 7d")
	flags.Var(&p.before, event+"-before", what+" before `TIME`")
}

// moment is a time in a flag, or an age. The zero moment is not set.
type moment struct {
	text string
	at   time.Time
	age  time.Duration
}

func (m *moment) String() string { return m.text }
func (m *moment) Type() string   { return "time" }

func (m *moment) Set(text string) error {
	if at, ok := human.ParseTime(text); ok {
		*m = moment{text: text, at: at}
		return nil
	}
	age, err := parseAge(text)
	if err != nil {
		return fmt.Errorf("%q is not a time: give 2026-11-21, 2026-11-21T03:00:00Z (UTC), or an age such as 36h or 7d", text)
	}
	*m = moment{text: text, age: age}
	return nil
}

// from returns the time if now is now, or the zero time if the flag is not set.
func (m *moment) from(now time.Time) time.Time {
	if m.age > 0 {
		return now.Add(-m.age)
	}
	return m.at
}

// age is a duration in a flag. Unlike time.Duration it has days.
type age time.Duration

func (g *age) String() string { return span(time.Duration(*g)) }
func (g *age) Type() string   { return "age" }

func (g *age) Set(text string) error {
	d, err := parseAge(text)
	*g = age(d)
	return err
}

// parseAge parses a positive duration such as 90s, 15m, 36h, 7d or 2w.
func parseAge(text string) (time.Duration, error) {
	unit := time.Duration(0)
	switch {
	case strings.HasSuffix(text, "d"):
		unit = 24 * time.Hour
	case strings.HasSuffix(text, "w"):
		unit = 7 * 24 * time.Hour
	}
	var d time.Duration
	var err error
	if unit > 0 {
		var n int64
		if n, err = strconv.ParseInt(text[:len(text)-1], 10, 64); n > int64(100*365*24*time.Hour/unit) {
			return 0, fmt.Errorf("%q is longer than a hundred years", text)
		}
		d = time.Duration(n) * unit
	} else {
		d, err = time.ParseDuration(text)
	}
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("%q is not an age: give a number and a unit, such as 90s, 15m, 36h, 7d or 2w", text)
	}
	return d, nil
}
