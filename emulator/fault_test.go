package emulator_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/efforttest"
)

// TestRules sends the same ten puts under different rules and checks which of them fail.
func TestRules(t *testing.T) {
	busy := emulator.Answer(503, "ServerBusy")
	for _, tc := range []struct {
		rule  *emulator.Rule
		fails string // one letter per put; x means failed
		text  string
	}{
		{emulator.On(emulator.PutBlob).Do(busy), "xxxxxxxxxx", "on PutBlob: answer 503 ServerBusy"},
		{emulator.On().Do(busy), "xxxxxxxxxx", "on any: answer 503 ServerBusy"},
		{emulator.On(emulator.GetBlob, emulator.HeadBlob).Do(busy), "..........", "on GetBlob|HeadBlob: answer 503 ServerBusy"},
		{emulator.On().Method("PUT").Do(busy), "xxxxxxxxxx", "on any method PUT: answer 503 ServerBusy"},
		{emulator.On().Method("GET").Do(busy), "..........", "on any method GET: answer 503 ServerBusy"},
		{emulator.On().Nth(3).Do(busy), "..x.......", "on any nth 3: answer 503 ServerBusy"},
		{emulator.On().Range(3, 5).Do(busy), "..xxx.....", "on any range 3-5: answer 503 ServerBusy"},
		{emulator.On().Range(9, 0).Do(busy), "........xx", "on any from 9: answer 503 ServerBusy"},
		{emulator.On().Every(4).Do(busy), "...x...x..", "on any every 4: answer 503 ServerBusy"},
		{emulator.On().Times(2).Do(busy), "xx........", "on any times 2: answer 503 ServerBusy"},
		{emulator.On().Path("open/*").Do(busy), "x.x.x.x.x.", `on any path "open/*": answer 503 ServerBusy`},
		{emulator.On().Path("plans/open/*").Do(busy), "x.x.x.x.x.", `on any path "plans/open/*": answer 503 ServerBusy`},
		{emulator.On().Path("*").Do(busy), "..........", `on any path "*": answer 503 ServerBusy`},
		{emulator.On().Path("/9").Do(busy), ".........x", `on any path "/9": answer 503 ServerBusy`},
		{emulator.On().Path("open/*").Nth(2).Do(busy), "..x.......", `on any path "open/*" nth 2: answer 503 ServerBusy`},
		{emulator.On().Client("one").Do(busy), "xxxxx.....", "on any client one: answer 503 ServerBusy"},
		{emulator.On().Where(func(r emulator.Request) bool { return r.In > 8 }).Do(busy), ".........x", "on any where func: answer 503 ServerBusy"},
		{emulator.On().Chance(0, 1).Do(busy), "..........", "on any chance 0 seed 1: answer 503 ServerBusy"},
		{emulator.On().Chance(1, 1).Do(busy), "xxxxxxxxxx", "on any chance 1 seed 1: answer 503 ServerBusy"},
		{emulator.Random(1, 1, busy, emulator.Reset()), "xxxxxxxxxx", "on any chance 1 seed 1: answer 503 ServerBusy or reset"},
		{emulator.Random(0, 1, busy, emulator.Reset()), "..........", "on any chance 0 seed 1: answer 503 ServerBusy or reset"},
		{emulator.Random(1, 1, busy, emulator.Reset()).Method("GET"), "..........", "on any method GET chance 1 seed 1: answer 503 ServerBusy or reset"},
	} {
		t.Run(tc.text, func(t *testing.T) {
			s := emulator.New(emulator.Options{})
			s.Inject(tc.rule)
			got := tenPuts(t, s)
			if got != tc.fails || tc.rule.Fired() != strings.Count(tc.fails, "x") {
				t.Errorf("got %s, want %s; fired %d", got, tc.fails, tc.rule.Fired())
			}
			if tc.rule.String() != tc.text {
				t.Errorf("String returned %s", tc.rule)
			}
		})
	}
}

// tenPuts puts ten blobs, half of them by each of two clients, and returns which puts failed.
func tenPuts(t *testing.T, s *emulator.Server) string {
	t.Helper()
	one, two := plans(t, s.NamedTransport("one")), plans(t, s.NamedTransport("two"))
	var got strings.Builder
	for i := range 10 {
		c := one
		if i >= 5 {
			c = two
		}
		dir := "open"
		if i%2 == 1 {
			dir = "plans"
		}
		if _, err := upload(t.Context(), c, fmt.Sprintf("%s/%d", dir, i), strings.Repeat("x", i), nil); err != nil {
			got.WriteByte('x')
		} else {
			got.WriteByte('.')
		}
	}
	return got.String()
}

// TestSeedsChoose counts how often each fault is applied to a thousand requests, and compares the choices of the same seed and of
// others.
func TestSeedsChoose(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	four := []emulator.Effect{emulator.Answer(503, "ServerBusy"), emulator.Reset(), emulator.LostRequest(), emulator.LostAnswer()}
	for what, test := range map[string]struct {
		rules func(seed uint64) []*emulator.Rule
		want  map[string]int // "any" counts all faults
	}{
		"chance": {func(seed uint64) []*emulator.Rule {
			return []*emulator.Rule{emulator.On().Chance(0.5, seed).Do(emulator.LostRequest())}
		}, map[string]int{"lost request": 500}},
		"random": {func(seed uint64) []*emulator.Rule { return []*emulator.Rule{emulator.Random(0.5, seed, four...)} }, map[string]int{
			"answer 503 ServerBusy": 125, "reset": 125, "lost request": 125, "lost answer": 125,
		}},
		"lies": {func(seed uint64) []*emulator.Rule {
			return []*emulator.Rule{emulator.Lies(0.19, seed), emulator.FalseAbsences(0.1, seed)}
		}, map[string]int{"any": 200}},
	} {
		faults := func(seed uint64, rounds int) (list []string) {
			s := emulator.New(emulator.Options{})
			s.Inject(test.rules(seed)...)
			for range rounds {
				tenPuts(t, s)
			}
			for _, r := range s.Requests() {
				list = append(list, r.Fault)
			}
			return list
		}
		one := faults(1, 100)
		if !slices.Equal(one[:200], faults(1, 20)) || slices.Equal(one[:200], faults(2, 20)) {
			t.Errorf("%s: the seed does not choose", what)
		}
		count := make(map[string]int)
		for _, f := range one {
			if count[f]++; f != "" {
				count["any"]++
			}
		}
		for f, n := range test.want {
			if count[f] < n/2 || count[f] > 2*n {
				t.Errorf("%s: %s was applied %d times, want about %d", what, f, count[f], n)
			}
		}
	}
}

// TestChanceIsNotShifted checks that other criteria don't change the random choices.
func TestChanceIsNotShifted(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	for seed := range uint64(10) {
		all, some := emulator.New(emulator.Options{}), emulator.New(emulator.Options{})
		all.Inject(emulator.On().Chance(0.5, seed).Do(emulator.LostRequest()))
		some.Inject(emulator.On().Range(6, 0).Chance(0.5, seed).Do(emulator.LostRequest()))
		if a, b := tenPuts(t, all), tenPuts(t, some); b != "....."+a[5:] {
			t.Errorf("seed %d: %s, from the sixth on %s", seed, a, b)
		}
	}
}

// TestFirstRuleWins injects several rules for the same request.
func TestFirstRuleWins(t *testing.T) {
	s := emulator.New(emulator.Options{})
	tr := s.NamedTransport("one")
	c := plans(t, tr)
	second := emulator.On().Do(emulator.Answer(500, "InternalError"))
	third := emulator.On().Nth(2).Do(emulator.Answer(429, "TooMany"))
	first := emulator.On().Nth(1).Do(emulator.Answer(503, "ServerBusy"))
	s.Inject(second, third)
	tr.Inject(first)
	want(t, errOf(upload(t.Context(), c, "a", "", nil)), 503, "ServerBusy")
	want(t, errOf(upload(t.Context(), c, "a", "", nil)), 500, "InternalError")
	if first.Fired() != 1 || second.Fired() != 1 || third.Fired() != 0 || third.Seen() != 2 {
		t.Errorf("fired: %d, %d, %d", first.Fired(), second.Fired(), third.Fired())
	}
	tr.ClearFaults()
	s.ClearFaults()
	mustUpload(t, c, "a", "", nil)
}

func TestRuleMatchesBatchByItem(t *testing.T) {
	s := emulator.New(emulator.Options{})
	c := plans(t, s.Transport())
	alphabet(s)
	rule := emulator.On(emulator.BatchDelete).Path("b/07").Do(emulator.LostAnswer())
	s.Inject(rule)
	for _, name := range []string{"b/06", "b/07"} {
		_, err := deleteBatch(t, c, name)
		if (err != nil) != (name == "b/07") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
