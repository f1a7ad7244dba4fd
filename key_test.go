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

func Example_names() {
	p, keys := prefix("prod"), prefix("prod").plan(examplePlan)
	fmt.Println(p.day(workflow.Time(examplePlan)))
	fmt.Println(keys.marker())
	fmt.Println(keys.deleteMarker())
	fmt.Println(keys.entry())
	fmt.Println(keys.object())
	for _, kind := range kinds {
		fmt.Println(keys.partsPrefix(kind))
	}
	fmt.Println(keys.part(&workflow.DeferBatch{ID: examplePart}))
	fmt.Println(keys.of(&workflow.Plan{ID: examplePlan}))
	fmt.Println(keys.of(&workflow.Action{ID: examplePart}))
	fmt.Println(p.member(examplePart))
	fmt.Println(p.stop(examplePlan))
	fmt.Println(p.auditEntry(examplePlan))
	// Output:
	// prod-2026-01-02
	// prod-2026-01-02/open/019b7c5a-1c80-7000-8000-00000000000a
	// prod-2026-01-02/open/019b7c5a-1c80-7000-8000-00000000000a-delete
	// prod-2026-01-02/plans/019b7c5a-1c80-7000-8000-00000000000a-entry.json
	// prod-2026-01-02/plans/019b7c5a-1c80-7000-8000-00000000000a-object.json
	// blocks/019b7c5a-1c80-7000-8000-00000000000a/
	// sequences/019b7c5a-1c80-7000-8000-00000000000a/
	// checks/019b7c5a-1c80-7000-8000-00000000000a/
	// actions/019b7c5a-1c80-7000-8000-00000000000a/
	// deferredactions/019b7c5a-1c80-7000-8000-00000000000a/
	// deferbatches/019b7c5a-1c80-7000-8000-00000000000a/
	// prod-2026-01-02/deferbatches/019b7c5a-1c80-7000-8000-00000000000a/019b7c5a-1c80-7000-8000-00000000000b.json
	// prod-2026-01-02/plans/019b7c5a-1c80-7000-8000-00000000000a-entry.json
	// prod-2026-01-02/actions/019b7c5a-1c80-7000-8000-00000000000a/019b7c5a-1c80-7000-8000-00000000000b.json
	// prod-control/nodes/019b7c5a-1c80-7000-8000-00000000000b
	// prod-control/signals/019b7c5a-1c80-7000-8000-00000000000a-stop
	// prod-log/deeds/fe6483a5e37f8fff-019b7c5a-1c80-7000-8000-00000000000a.json
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

// FuzzParseName parses all names that the builders make, and no others, such as these seeds.
func FuzzParseName(f *testing.F) {
	k := prefix("p").plan(examplePlan)
	refs := []blob.Ref{k.marker(), k.deleteMarker(), k.entry(), k.object()}
	for _, row := range kinds {
		o := row.empty()
		*o.Header().ID = examplePart
		refs = append(refs, k.part(o))
	}
	for _, ref := range refs {
		f.Add(ref.Name)
		if _, ok := parseName(ref.Name); !ok {
			f.Errorf("%s is no name", ref.Name)
		}
	}
	const id, part = "019b7c5a-1c80-7000-8000-00000000000a", "019b7c5a-1c80-7000-8000-00000000000b"
	ids := strings.NewReplacer("ID", id, "PART", part, "UPPER", strings.ToUpper(id), "BARE", strings.ReplaceAll(id, "-", ""), "CUT", id[:35], "TAIL", id[1:])
	for _, name := range []string{
		"", "/", "//", "open", "plans", "blocks", "open/", "plans/", "blocks/", "blocks//", "open/UPPER",
		"plans/UPPER-entry.json", "blocks/UPPER/PART.json", "blocks/ID/UPPER.json", "OPEN/ID", "Plans/ID-entry.json",
		"plans/ID-ENTRY.json", "open/{ID}", "plans/{ID}-object.json", "actions/{ID}/PART.json", "actions/ID/{PART}.json",
		"open/urn:uuid:ID", "plans/urn:uuid:ID-entry.json", "actions/ID/urn:uuid:PART.json", "open/BARE", "plans/BARE-entry.json",
		"actions/BARE/PART.json", "plans/ID", "plans/ID.json", "plans/ID-entry", "actions/ID/PART", "actions/ID/.json",
		"actions/ID/", "open/ID.json", "open/ID-deleted", "open/ID-entry.json", "open/ID-delete-delete", "plans/ID-delete",
		"plans/ID-entry.json.json", "plans/ID-entry.json-object.json", "actions/ID/PART.JSON", "actions/ID/PART.json ",
		"/open/ID", "open//ID", "open/ID/", "plans/ID-entry.json/", "plans/ID/-entry.json", "actions/ID//PART.json",
		"actions/ID/x/PART.json", "actions/ID/PART.json/", "//actions/ID/PART.json", "ID", "x/ID", "action/ID/PART.json",
		"plan/ID-entry.json", "/ID/PART.json", "checks2/ID/PART.json", "open /ID", "actions/PART.json", "actions//PART.json",
		"plans/-entry.json", "open/-delete", " open/ID", "open/ ID", "open/ID ", "open/ID\n", "open/CUT", "open/ID0",
		"plans/TAIL-entry.json",
	} {
		f.Add(ids.Replace(name))
	}
	f.Fuzz(func(t *testing.T, name string) {
		if p, ok := parseName(name); ok && rebuild(p) != name {
			t.Errorf("%q was parsed to what is named %q", name, rebuild(p))
		}
	})
}

// FuzzParseDay takes no container for a day's that the builder doesn't make, such as some of these seeds.
func FuzzParseDay(f *testing.F) {
	for _, own := range [][2]string{
		{"prod", "prod-2026-01-02"},
		{"prod", "prod-2024-02-29"},
		{"prod", "prod-0001-01-01"},
		{"prod-2", "prod-2-2026-01-02"},
		{"prod-2026-01-02", "prod-2026-01-02-2026-01-02"},
		{"prod-control", "prod-control-2026-01-02"},
	} {
		f.Add(own[0], own[1])
		if _, ok := prefix(own[0]).parseDay(own[1]); !ok {
			f.Errorf("%s is no day of prefix %s", own[1], own[0])
		}
	}
	for _, container := range []string{
		"prod-2-2026-01-02", "prod-2026-01-02-2026-01-02", "prod-control", "prod-control-2026-01-02", "production-2026-01-02", "prod2026-01-02", "2026-01-02", "prod", "prod-", "",
		"prod-2026-1-2", "prod-2026-01-2", "prod-26-01-02", "prod-02026-01-02", "prod-20260102", "prod-2026-02-30", "prod-2026-02-29",
		"prod-2026-00-01", "prod-2026-13-01", "prod--2026-01-02", "prod-2026-01-02 ", "prod-2026-01-02x", "prod-+026-01-02", "Prod-2026-01-02",
	} {
		f.Add("prod", container)
	}
	f.Add("prod-2", "prod-2026-01-02")
	f.Add("", "-0000-01-01")
	f.Fuzz(func(t *testing.T, p, container string) {
		owner, of, owned := parseContainer(container)
		if owned && container != owner.control() && (container != owner.day(of) || owner.check() != "") {
			t.Errorf("%q was parsed to that of prefix %q for %v", container, owner, of)
		}
		day, ok := prefix(p).parseDay(container)
		if !ok {
			return
		}
		if prefix(p).check() == "" && (owner != prefix(p) || !of.Equal(day)) {
			t.Errorf("%q is of prefix %q, and was parsed to that of %q for %v", container, p, owner, of)
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
	for after, want := range map[time.Duration]string{
		-time.Millisecond: "p-2026-02-28", 0: "p-2026-03-01", 24*time.Hour - time.Millisecond: "p-2026-03-01", 24 * time.Hour: "p-2026-03-02",
	} {
		at := midnight.Add(after)
		east, west := at.In(time.FixedZone("east", 14*3600)), at.In(time.FixedZone("west", -12*3600))
		if got := [3]string{prefix("p").plan(idAt(at, 1)).container, prefix("p").day(east), prefix("p").day(west)}; got != [3]string{want, want, want} {
			t.Errorf("plans of %v belong to %v", at, got)
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

// TestPrefixCheck looks for the problem of each prefix. A prefix without a problem makes a name that a container may have.
func TestPrefixCheck(t *testing.T) {
	for problem, prefixes := range map[string][]string{
		"":                       {"p", "0", "prod", "prod-2", "a-b-c-1-2-3", "2026-01-02", strings.Repeat("a", 52)},
		"at most 52 are allowed": {strings.Repeat("a", 53)},
		"is empty":               {""},
		"none at either end":     {"-", "-prod", "prod-"},
		"single hyphens":         {"pr--od"},
		"lower-case":             {"Prod", "pr_od", "pr.od", "pr od", "prod ", "prod/", "$root", "prød", "план", "prod\x00", "prod\n", "p\xffd"},
	} {
		for _, p := range prefixes {
			if got := prefix(p).check(); (got == "") != (problem == "") || !strings.Contains(got, problem) {
				t.Errorf("prefix %q: %q", p, got)
			}
			if name := prefix(p).day(time.UnixMilli(0)); problem == "" && len(name) > 63 {
				t.Errorf("prefix %q makes a container's name of %d characters", p, len(name))
			}
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
