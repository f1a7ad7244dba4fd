package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/pflag"

	"github.com/planvault/azblob/cmd/planvault/internal/human"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// selection is the flags that select plans.
type selection struct {
	storage.Filters
	created, ended period
}

// addFlags adds the flags that select plans.
func (s *selection) addFlags(flags *pflag.FlagSet) {
	addList(flags, "status", "plans of these `STATUSES`: notstarted, running (both are open), completed, failed, stopped (all are final)", &s.ByStatus, parseStatuses)
	ids := func(of string) func(string) ([]uuid.UUID, error) {
		return func(text string) ([]uuid.UUID, error) {
			id, err := parseID(of, text)
			return []uuid.UUID{id}, err
		}
	}
	addList(flags, "group", "plans of the groups with these `IDS`", &s.ByGroupIDs, ids("group"))
	addList(flags, "forked-from", "forks of the plans with these `IDS`", &s.ByForkedFrom, ids("plan"))
	flags.StringArrayVar(&s.BySubmitter, "submitted-by", nil, "plans that `NAME` submitted; give several for those of any of them")
	flags.Func("key", "open plans that have the key `NAME`", func(name string) error {
		if s.ByKey != "" {
			return errors.New("give it once, for one key")
		}
		s.ByKey = name
		return workflow.CheckKey(workflow.Key{Name: name})
	})
	flags.Var((*given)(&s.IDContains), "id", "plans whose ID contains these `DIGITS`")
	flags.Var((*given)(&s.NamePrefix), "name", "plans whose name begins with `TEXT`")
	flags.Var((*given)(&s.NameContains), "contains", "plans whose name contains `TEXT`")
	flags.Func("label", "plans that have the label `KEY=VALUE`; give several for plans that have all of them", func(text string) (err error) {
		s.Labels, err = workflow.ParseLabels(strings.TrimPrefix(workflow.FormatLabels(s.Labels)+","+text, ","))
		return err
	})
	s.created.addFlags(flags, "created", "plans created")
	s.ended.addFlags(flags, "ended", "final plans that ended")
}

// addList adds a flag of values with commas between them, which may be given several times.
func addList[T any](flags *pflag.FlagSet, name, usage string, list *[]T, parse func(string) ([]T, error)) {
	flags.Func(name, usage, func(text string) error {
		for word := range strings.SplitSeq(text, ",") {
			values, err := parse(word)
			if err != nil {
				return err
			}
			*list = append(*list, values...)
		}
		return nil
	})
}

// filters returns the filters of the flags. Ages count from now.
func (s *selection) filters(now time.Time) storage.Filters {
	f := s.Filters
	f.After, f.Before = s.created.from(now)
	f.EndedAfter, f.EndedBefore = s.ended.from(now)
	return f
}

// check returns an error if the flags can select no plan.
func (s *selection) check() error {
	if s.ByKey != "" && len(s.ByStatus) > 0 && !slices.ContainsFunc(s.ByStatus, isOpen) {
		return usageError("--key selects open plans, and --status only final ones: leave one of them out")
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
func parseStatuses(text string) (statuses []workflow.Status, err error) {
	word := strings.ToLower(text)
	for _, s := range []workflow.Status{workflow.NotStarted, workflow.Running, workflow.Completed, workflow.Failed, workflow.Stopped} {
		if word == strings.ToLower(s.String()) || word == "open" && !s.Final() || word == "final" && s.Final() {
			statuses = append(statuses, s)
		}
	}
	if len(statuses) == 0 {
		return nil, usageError("%q is not a status: notstarted, running, completed, failed, stopped, open or final", printable(text, 50))
	}
	return statuses, nil
}

// period is the two flags of a period of time.
type period struct{ after, before moment }

// moment is a time, or an age if the time is zero. The zero moment is not set.
type moment struct {
	at  time.Time
	age time.Duration
}

// addFlags adds the flags, such as --created-after and --created-before. what says what they select.
func (p *period) addFlags(flags *pflag.FlagSet, event, what string) {
	flags.Func(event+"-after", what+" after `TIME`: 2026-11-21, 2026-11-21T03:00Z, or an age: 36h, 7d", p.after.set)
	flags.Func(event+"-before", what+" before `TIME`", p.before.set)
}

// from returns the times if now is now. A flag that is not set is the zero time.
func (p *period) from(now time.Time) (after, before time.Time) {
	return p.after.from(now), p.before.from(now)
}

// days returns the first and the last day that have any time of the period. A flag that is not set is the zero Day.
func (p *period) days(now time.Time) (from, to storage.Day, err error) {
	after, before := p.from(now)
	if !after.IsZero() && !before.IsZero() && !after.Before(before) {
		return from, to, usageError("%s is not before %s", after.Format(time.RFC3339), before.Format(time.RFC3339))
	}
	if !after.IsZero() {
		from = storage.DayOf(after.Add(time.Millisecond)) // IDs have whole milliseconds
	}
	if !before.IsZero() {
		to = storage.DayOf(before.Add(-1))
	}
	return from, to, nil
}

func (m *moment) set(text string) (err error) {
	var ok bool
	*m = moment{}
	if m.at, ok = human.ParseTime(text); ok {
		return nil
	}
	if m.age, err = parseAge(text); err != nil {
		return fmt.Errorf("%q is not a time: give 2026-11-21, 2026-11-21T03:00:00Z (UTC), or an age such as 36h or 7d", text)
	}
	return nil
}

func (m *moment) from(now time.Time) time.Time {
	if m.age > 0 {
		return now.Add(-m.age)
	}
	return m.at
}

// age is a duration in a flag. Unlike time.Duration it has days.
type age time.Duration

// String returns the age, or nothing for none: the help shows no default then.
func (g *age) String() string {
	if *g == 0 {
		return ""
	}
	return span(time.Duration(*g))
}
func (g *age) Type() string { return "age" }

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
