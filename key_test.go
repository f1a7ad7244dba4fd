package azblob

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/internal/listing"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// The IDs of the examples: a plan of 2026-01-02 and a sub-object of it.
var (
	examplePlan = uuid.MustParse("019b7c5a-1c80-7000-8000-00000000000a")
	examplePart = uuid.MustParse("019b7c5a-1c80-7000-8000-00000000000b")
)

func Example_day() {
	fmt.Println(prefix("prod").day(workflow.Time(examplePlan)))
	// Output: prod-2026-01-02
}

func Example_parseDay() {
	for _, container := range []string{"prod-2026-01-02", "prod-2-2026-01-02"} {
		day, ok := prefix("prod").parseDay(container)
		fmt.Println(container, ok, day.Format(time.RFC3339))
	}
	// Output:
	// prod-2026-01-02 true 2026-01-02T00:00:00Z
	// prod-2-2026-01-02 false 0001-01-01T00:00:00Z
}

func Example_marker() {
	fmt.Println(prefix("prod").plan(examplePlan).marker())
	// Output: prod-2026-01-02/open/019b7c5a-1c80-7000-8000-00000000000a
}

func Example_deleteMarker() {
	fmt.Println(prefix("prod").plan(examplePlan).deleteMarker())
	// Output: prod-2026-01-02/open/019b7c5a-1c80-7000-8000-00000000000a-delete
}

func Example_entry() {
	fmt.Println(prefix("prod").plan(examplePlan).entry())
	// Output: prod-2026-01-02/plans/019b7c5a-1c80-7000-8000-00000000000a-entry.json
}

func Example_object() {
	fmt.Println(prefix("prod").plan(examplePlan).object())
	// Output: prod-2026-01-02/plans/019b7c5a-1c80-7000-8000-00000000000a-object.json
}

func Example_partsPrefix() {
	for _, kind := range kinds {
		fmt.Println(prefix("prod").plan(examplePlan).partsPrefix(kind))
	}
	// Output:
	// blocks/019b7c5a-1c80-7000-8000-00000000000a/
	// sequences/019b7c5a-1c80-7000-8000-00000000000a/
	// checks/019b7c5a-1c80-7000-8000-00000000000a/
	// actions/019b7c5a-1c80-7000-8000-00000000000a/
	// deferredactions/019b7c5a-1c80-7000-8000-00000000000a/
	// deferbatches/019b7c5a-1c80-7000-8000-00000000000a/
}

func Example_part() {
	fmt.Println(prefix("prod").plan(examplePlan).part(&workflow.DeferBatch{ID: examplePart}))
	// Output: prod-2026-01-02/deferbatches/019b7c5a-1c80-7000-8000-00000000000a/019b7c5a-1c80-7000-8000-00000000000b.json
}

func Example_of() {
	keys := prefix("prod").plan(examplePlan)
	fmt.Println(keys.of(&workflow.Plan{ID: examplePlan}).Name)
	fmt.Println(keys.of(&workflow.Action{ID: examplePart}).Name)
	// Output:
	// plans/019b7c5a-1c80-7000-8000-00000000000a-entry.json
	// actions/019b7c5a-1c80-7000-8000-00000000000a/019b7c5a-1c80-7000-8000-00000000000b.json
}

func Example_parseName() {
	name, ok := parseName("blocks/019b7c5a-1c80-7000-8000-00000000000a/019b7c5a-1c80-7000-8000-00000000000b.json")
	fmt.Println(ok, name.role == rolePart, name.kind.of, name.plan, name.id)
	// Output: true true block 019b7c5a-1c80-7000-8000-00000000000a 019b7c5a-1c80-7000-8000-00000000000b
}

// rebuild returns the name that the builders make from a parsed name.
func rebuild(p parsed) string {
	k := keys{"any", p.plan}
	switch p.role {
	case roleMarker:
		return k.marker().Name
	case roleDeleteMarker:
		return k.deleteMarker().Name
	case roleEntry:
		return k.entry().Name
	case roleObject:
		return k.object().Name
	case rolePart:
		o := p.kind.empty()
		*o.Header().ID = p.id
		return k.part(o).Name
	}
	return fmt.Sprintf("no role %d", p.role)
}

func TestNamesParseToWhatTheyWereBuiltFrom(t *testing.T) {
	k := prefix("prod").plan(examplePlan)
	type built struct {
		ref  blob.Ref
		role role
		kind workflow.Kind
		id   uuid.UUID
	}
	tests := []built{
		{ref: k.marker(), role: roleMarker},
		{ref: k.deleteMarker(), role: roleDeleteMarker},
		{ref: k.entry(), role: roleEntry},
		{ref: k.object(), role: roleObject},
	}
	for _, row := range kinds {
		o := row.empty()
		*o.Header().ID = examplePart
		tests = append(tests, built{k.part(o), rolePart, row.of, examplePart})
	}
	seen := map[string]bool{}
	for _, test := range tests {
		p, ok := parseName(test.ref.Name)
		if !ok || p.role != test.role || p.plan != examplePlan || p.kind.of != test.kind || p.id != test.id {
			t.Errorf("%s was parsed to %v, %+v", test.ref, ok, p)
		}
		if test.ref.Container != "prod-2026-01-02" {
			t.Errorf("%s is in the wrong container", test.ref)
		}
		if seen[test.ref.Name] {
			t.Errorf("two blobs are named %s", test.ref.Name)
		}
		seen[test.ref.Name] = true
	}
}

func TestForeignNamesAreRefused(t *testing.T) {
	const id, part = "019b7c5a-1c80-7000-8000-00000000000a", "019b7c5a-1c80-7000-8000-00000000000b"
	bare := strings.ReplaceAll(id, "-", "")
	for what, names := range map[string][]string{
		"nothing":             {"", "/", "//", "open", "plans", "blocks", "open/", "plans/", "blocks/", "blocks//"},
		"upper case":          {"open/" + strings.ToUpper(id), "plans/" + strings.ToUpper(id) + "-entry.json", "blocks/" + strings.ToUpper(id) + "/" + part + ".json", "blocks/" + id + "/" + strings.ToUpper(part) + ".json", "OPEN/" + id, "Plans/" + id + "-entry.json", "plans/" + id + "-ENTRY.json"},
		"braces":              {"open/{" + id + "}", "plans/{" + id + "}-object.json", "actions/{" + id + "}/" + part + ".json", "actions/" + id + "/{" + part + "}.json"},
		"urn":                 {"open/urn:uuid:" + id, "plans/urn:uuid:" + id + "-entry.json", "actions/" + id + "/urn:uuid:" + part + ".json"},
		"no hyphens":          {"open/" + bare, "plans/" + bare + "-entry.json", "actions/" + bare + "/" + part + ".json"},
		"missing tails":       {"plans/" + id, "plans/" + id + ".json", "plans/" + id + "-entry", "actions/" + id + "/" + part, "actions/" + id + "/.json", "actions/" + id + "/"},
		"wrong tails":         {"open/" + id + ".json", "open/" + id + "-deleted", "open/" + id + "-entry.json", "open/" + id + "-delete-delete", "plans/" + id + "-delete", "plans/" + id + "-entry.json.json", "plans/" + id + "-entry.json-object.json", "actions/" + id + "/" + part + ".JSON", "actions/" + id + "/" + part + ".json "},
		"extra slashes":       {"/open/" + id, "open//" + id, "open/" + id + "/", "plans/" + id + "-entry.json/", "plans/" + id + "/-entry.json", "actions/" + id + "//" + part + ".json", "actions/" + id + "/x/" + part + ".json", "actions/" + id + "/" + part + ".json/", "//actions/" + id + "/" + part + ".json"},
		"unknown directories": {id, "x/" + id, "action/" + id + "/" + part + ".json", "plan/" + id + "-entry.json", "/" + id + "/" + part + ".json", "checks2/" + id + "/" + part + ".json", "open /" + id},
		"no plan":             {"actions/" + part + ".json", "actions//" + part + ".json", "plans/-entry.json", "open/-delete"},
		"blanks":              {" open/" + id, "open/ " + id, "open/" + id + " ", "open/" + id + "\n"},
		"cut IDs":             {"open/" + id[:35], "open/" + id + "0", "plans/" + id[1:] + "-entry.json"},
	} {
		for _, name := range names {
			if p, ok := parseName(name); ok {
				t.Errorf("%s: %q was taken for %q", what, name, rebuild(p))
			}
		}
	}
}

func FuzzParseName(f *testing.F) {
	k := prefix("p").plan(examplePlan)
	for _, ref := range []blob.Ref{k.marker(), k.deleteMarker(), k.entry(), k.object(), k.part(&workflow.Action{ID: examplePart})} {
		f.Add(ref.Name)
	}
	f.Add("")
	f.Add("open/" + strings.ToUpper(examplePlan.String()))
	f.Fuzz(func(t *testing.T, name string) {
		if p, ok := parseName(name); ok && rebuild(p) != name {
			t.Errorf("%q was parsed to what is named %q", name, rebuild(p))
		}
	})
}

func TestParseDay(t *testing.T) {
	for _, test := range []struct {
		prefix    prefix
		container string
		ok        bool
	}{
		{"prod", "prod-2026-01-02", true},
		{"prod", "prod-2024-02-29", true},
		{"prod", "prod-0001-01-01", true},
		{"prod-2", "prod-2-2026-01-02", true},
		{"prod-2026-01-02", "prod-2026-01-02-2026-01-02", true},
		{"prod", "prod-2-2026-01-02", false},
		{"prod-2", "prod-2026-01-02", false},
		{"prod", "prod-2026-01-02-2026-01-02", false},
		{"prod", "production-2026-01-02", false},
		{"prod", "prod2026-01-02", false},
		{"prod", "2026-01-02", false},
		{"prod", "prod", false},
		{"prod", "prod-", false},
		{"prod", "", false},
		{"prod", "prod-2026-1-2", false},
		{"prod", "prod-2026-01-2", false},
		{"prod", "prod-26-01-02", false},
		{"prod", "prod-02026-01-02", false},
		{"prod", "prod-20260102", false},
		{"prod", "prod-2026-02-30", false},
		{"prod", "prod-2026-02-29", false},
		{"prod", "prod-2026-00-01", false},
		{"prod", "prod-2026-13-01", false},
		{"prod", "prod--2026-01-02", false},
		{"prod", "prod-2026-01-02 ", false},
		{"prod", "prod-2026-01-02x", false},
		{"prod", "prod-+026-01-02", false},
		{"prod", "Prod-2026-01-02", false},
	} {
		day, ok := test.prefix.parseDay(test.container)
		if ok != test.ok {
			t.Errorf("prefix %q, container %q: %v", test.prefix, test.container, ok)
		}
		if ok && test.prefix.day(day) != test.container {
			t.Errorf("prefix %q, container %q: the day is %v", test.prefix, test.container, day)
		}
	}
}

func FuzzParseDay(f *testing.F) {
	f.Add("prod", "prod-2026-01-02")
	f.Add("prod", "prod-2-2026-01-02")
	f.Add("prod", "prod-2026-02-30")
	f.Add("", "-0000-01-01")
	f.Fuzz(func(t *testing.T, p, container string) {
		day, ok := prefix(p).parseDay(container)
		if !ok {
			return
		}
		if got := prefix(p).day(day); got != container {
			t.Errorf("%q was parsed to the day of %q", container, got)
		}
		if day.Location() != time.UTC || !day.Equal(day.Truncate(24*time.Hour)) {
			t.Errorf("%q is %v, which is no start of a day in UTC", container, day)
		}
	})
}

func TestDaysChangeAtMidnightUTC(t *testing.T) {
	midnight := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		after time.Duration
		want  string
	}{
		{-time.Millisecond, "p-2026-02-28"},
		{0, "p-2026-03-01"},
		{time.Millisecond, "p-2026-03-01"},
		{24*time.Hour - time.Millisecond, "p-2026-03-01"},
		{24 * time.Hour, "p-2026-03-02"},
	} {
		at := midnight.Add(test.after)
		if got := prefix("p").plan(idAt(at, 1)).container; got != test.want {
			t.Errorf("a plan of %v belongs to %s", at, got)
		}
		for _, zone := range []*time.Location{time.FixedZone("east", 14*3600), time.FixedZone("west", -12*3600)} {
			if got := prefix("p").day(at.In(zone)); got != test.want {
				t.Errorf("the day of %v is %s", at.In(zone), got)
			}
		}
	}
}

// idAt returns the nth UUIDv7 of a millisecond.
func idAt(at time.Time, n byte) uuid.UUID {
	id := uuid.UUID{6: 0x70, 8: 0x80, 15: n}
	ms := at.UnixMilli()
	for i := range 6 {
		id[i] = byte(ms >> (40 - 8*i))
	}
	return id
}

func TestPrefixCheck(t *testing.T) {
	for _, test := range []struct {
		prefix prefix
		// problem is part of the error; "" for a valid prefix.
		problem string
	}{
		{"p", ""},
		{"0", ""},
		{"prod", ""},
		{"prod-2", ""},
		{"a-b-c-1-2-3", ""},
		{"2026-01-02", ""},
		{prefix(strings.Repeat("a", 52)), ""},
		{prefix(strings.Repeat("a", 53)), "at most 52 are allowed"},
		{"", "is empty"},
		{"-", "none at either end"},
		{"-prod", "none at either end"},
		{"prod-", "none at either end"},
		{"pr--od", "single hyphens"},
		{"Prod", "lower-case"},
		{"pr_od", "lower-case"},
		{"pr.od", "lower-case"},
		{"pr od", "lower-case"},
		{"prod ", "lower-case"},
		{"prod/", "lower-case"},
		{"$root", "lower-case"},
		{"prød", "lower-case"},
		{"план", "lower-case"},
		{"prod\x00", "lower-case"},
		{"prod\n", "lower-case"},
		{"p\xffd", "lower-case"},
	} {
		problem := test.prefix.check()
		if test.problem == "" && problem != "" || !strings.Contains(problem, test.problem) {
			t.Errorf("prefix %q: %q", test.prefix, problem)
		}
		if problem != "" {
			continue
		}
		if name := test.prefix.day(time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)); len(name) > 63 {
			t.Errorf("prefix %q makes a container's name of %d characters", test.prefix, len(name))
		}
	}
}

// TestStretches cuts days as filters want.
func TestStretches(t *testing.T) {
	date := time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)
	noon := date.Add(12 * time.Hour)
	id := listing.IDOf(listing.KeyOf(listing.FirstID(noon)) + 12345)
	next := date.AddDate(0, 0, 1)
	firstTime, lastTime := time.Unix(-1<<63, 0), time.Unix(1<<63-62135596801, 999_999_999)
	for name, c := range map[string]struct {
		f        storage.Filters
		from, to uuid.UUID
	}{
		"no bounds":               {storage.Filters{}, listing.FirstID(date), listing.FirstID(next)},
		"after a whole time":      {storage.Filters{After: noon}, listing.FirstID(noon.Add(time.Millisecond)), listing.FirstID(next)},
		"after a broken time":     {storage.Filters{After: noon.Add(1)}, listing.FirstID(noon.Add(time.Millisecond)), listing.FirstID(next)},
		"after a time before":     {storage.Filters{After: date.Add(-1)}, listing.FirstID(date), listing.FirstID(next)},
		"after long ago":          {storage.Filters{After: time.Date(1800, 1, 1, 0, 0, 0, 0, time.UTC)}, listing.FirstID(date), listing.FirstID(next)},
		"before a whole time":     {storage.Filters{Before: noon}, listing.FirstID(date), listing.FirstID(noon)},
		"before a broken time":    {storage.Filters{Before: noon.Add(1)}, listing.FirstID(date), listing.FirstID(noon.Add(time.Millisecond))},
		"before far ahead":        {storage.Filters{Before: time.Date(20000, 1, 1, 0, 0, 0, 0, time.UTC)}, listing.FirstID(date), listing.FirstID(next)},
		"before IDs end":          {storage.Filters{Before: time.UnixMilli(1<<48 + 1000)}, listing.FirstID(date), listing.FirstID(next)},
		"after all times":         {storage.Filters{After: lastTime}, uuid.Nil, uuid.Nil},
		"after the first time":    {storage.Filters{After: firstTime}, listing.FirstID(date), listing.FirstID(next)},
		"before all times":        {storage.Filters{Before: firstTime}, uuid.Nil, uuid.Nil},
		"before the last time":    {storage.Filters{Before: lastTime}, listing.FirstID(date), listing.FirstID(next)},
		"after an overflow":       {storage.Filters{After: time.Unix(1<<61, 0)}, uuid.Nil, uuid.Nil},
		"before an overflow":      {storage.Filters{Before: time.Unix(1<<61, 0)}, listing.FirstID(date), listing.FirstID(next)},
		"after an underflow":      {storage.Filters{After: time.Unix(-1<<61, 0)}, listing.FirstID(date), listing.FirstID(next)},
		"before an underflow":     {storage.Filters{Before: time.Unix(-1<<61, 0)}, uuid.Nil, uuid.Nil},
		"before an ID":            {storage.Filters{BeforeID: id}, listing.FirstID(date), id},
		"before an ID and a time": {storage.Filters{BeforeID: id, Before: noon}, listing.FirstID(date), listing.FirstID(noon)},
		"after the day":           {storage.Filters{After: next}, uuid.Nil, uuid.Nil},
		"before the day":          {storage.Filters{Before: date}, uuid.Nil, uuid.Nil},
		"before an ID of before":  {storage.Filters{BeforeID: listing.IDOf(listing.KeyOf(listing.FirstID(date)) - 1)}, uuid.Nil, uuid.Nil},
	} {
		list := stretches([]day{{date: date}}, c.f)
		if c.from == uuid.Nil {
			if len(list) != 0 {
				t.Errorf("%s: %v", name, list)
			}
			continue
		}
		if len(list) != 1 || list[0].From != c.from || list[0].To != c.to {
			t.Errorf("%s: %v, want %v to %v", name, list, c.from, c.to)
		}
	}
}

// TestParseGroup reads what the names of a minute's or a millisecond's plans begin with, and nothing else.
func TestParseGroup(t *testing.T) {
	for name, want := range map[string][2]uint64{
		"plans/019aa0b3-":      {0x019aa0b3 << 32, listing.Minute},
		"plans/019aa0b3-12ef-": {0x019aa0b312ef << 16, listing.Millisecond},
	} {
		if from, size, ok := parseGroup(plansDir, name); !ok || from != want[0] || size != want[1] {
			t.Errorf("%q is %d, %d, %v", name, from, size, ok)
		}
	}
	for _, name := range []string{
		"open/019aa0b3-", "019aa0b3-", "plans/019aa0b3", "plans/019AA0B3-", "plans/019aa0-", "plans/019aa0b3ff-", "plans/019aa0bx-", "plans/019aa0b-", "plans/-", "",
		"plans/019aa0b3-12e-", "plans/019aa0b3-12ef", "plans/019aa0b3-12eg-", "plans/019aa0b3-12ef-7", "plans/019aa0b312ef--",
	} {
		if from, size, ok := parseGroup(plansDir, name); ok {
			t.Errorf("%q is %d, %d", name, from, size)
		}
	}
}
