package main

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/planvault/azblob/storage/storagetest"
	"github.com/planvault/azblob/workflow/plantest"
)

func TestCaseT(t *testing.T) {
	for _, test := range []struct {
		name     string
		run      func(t storagetest.T)
		failures []string // how each begins
		skipped  string
	}{
		{"nothing", func(storagetest.T) {}, nil, ""},
		{"errors", func(t storagetest.T) { t.Errorf("one %d", 1); t.Errorf("two") }, []string{"one 1", "two"}, ""},
		{"fatal", func(t storagetest.T) { t.Fatalf("one"); t.Errorf("not reached") }, []string{"one"}, ""},
		{"skip", func(t storagetest.T) { t.Skipf("for %s", "a reason"); t.Errorf("not reached") }, nil, "for a reason"},
		{"panic", func(storagetest.T) { panic("oh") }, []string{"panic: oh\ngoroutine "}, ""},
		{"fatal in a cleanup", func(t storagetest.T) {
			t.Cleanup(func() { t.Errorf("two") })
			t.Cleanup(func() { t.Fatalf("one") })
		}, []string{"one", "two"}, ""},
		{"panic in a cleanup", func(t storagetest.T) {
			t.Cleanup(func() { t.Errorf("two") })
			t.Cleanup(func() { panic("oh") })
		}, []string{"panic: oh", "two"}, ""},
	} {
		got := runCase(t.Context(), test.name, test.run)
		same := slices.EqualFunc(got.failures, test.failures, strings.HasPrefix)
		if !same || got.skipped != (test.skipped != "") || got.reason != test.skipped || got.Name() != test.name {
			t.Errorf("%s: failures %q, skipped %t (%q)", test.name, got.failures, got.skipped, got.reason)
		}
		if test.name == "panic" && same && !strings.Contains(got.failures[0], "TestCaseT") {
			t.Errorf("the stack of a panic does not say where: %s", got.failures[0])
		}
	}
}

// TestCaseTCleanup checks that cleanups run last to first, after the context of the case has ended.
func TestCaseTCleanup(t *testing.T) {
	var order []string
	runCase(t.Context(), "x", func(t storagetest.T) {
		note := func(what string) func() {
			return func() { order = append(order, fmt.Sprint(what, " ", t.Context().Err())) }
		}
		t.Cleanup(note("first"))
		t.Cleanup(func() { t.Cleanup(note("of a cleanup")) })
		t.Cleanup(note("last"))
		note("case")()
		t.Fatalf("over")
	})
	if want := []string{"case <nil>", "last context canceled", "of a cleanup context canceled", "first context canceled"}; !slices.Equal(order, want) {
		t.Errorf("%q, want %q", order, want)
	}
}

// creates returns a case that stores a plan and then calls a function.
func creates(name string, then func(t storagetest.T, s storagetest.Store)) storagetest.Case {
	return storagetest.Case{Name: name, Run: func(t storagetest.T, h storagetest.Harness) {
		s := h.New(t)
		if err := s.Open(t).Create(t.Context(), plantest.Small()); err != nil {
			t.Fatalf("%v", err)
		}
		then(t, s)
	}}
}

func fine(storagetest.T, storagetest.Store) {}

// mixed holds a case of every outcome.
var mixed = []storagetest.Case{
	creates("a/fine", fine),
	creates("a/fails", func(t storagetest.T, _ storagetest.Store) { t.Logf("before"); t.Fatalf("it fails") }),
	creates("b/panics", func(storagetest.T, storagetest.Store) { panic("oh") }),
	creates("b/skips", func(t storagetest.T, _ storagetest.Store) { t.Skipf("no reason") }),
}

func TestCases(t *testing.T) {
	target, server := inEmulator(t)
	server.Put("mine-s1-other", "theirs", nil, nil)
	server.Put("mine-s12-2026-01-02", "theirs", nil, nil) // s12 is not s1
	var out strings.Builder
	s := newStage(config{prefix: "mine"}, target, &people{w: &out})
	tooLong := creates("a/long", func(t storagetest.T, _ storagetest.Store) { t.Fatalf("played") })
	tooLong.Long = true
	err := s.playCases(t.Context(), append([]storagetest.Case{tooLong}, mixed...))
	if err == nil || !strings.HasPrefix(err.Error(), "2 cases, such as suite/a/fails: it fails") {
		t.Errorf("the error is %v", err)
	}
	s.out.end(s.verdict(err))
	for _, want := range []string{
		"request", "  suite/a/fine\n", "suite/a/fails\n      before\n      it fails\n", "suite/b/panics\n      panic: oh\n",
		"suite/b/skips: no reason\n", "\n4 cases, 2 failed, 1 skipped\n",
		"\nLeft out: 1 long case of the suite; -all plays them too.\n", "\nFAIL: 2 cases, such as suite/a/fails: it fails\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output lacks %q:\n%s", want, out.String())
		}
	}
	if left := slices.Collect(server.Containers()); !slices.Equal(left, []string{"mine-s1-other", "mine-s12-2026-01-02"}) {
		t.Errorf("the containers %v are left", left)
	}
}

func TestCasesJSON(t *testing.T) {
	target, server := inEmulator(t)
	var out strings.Builder
	cfg := config{prefix: "mine", keep: true, picks: func(name string) bool { return strings.HasPrefix(name, "suite/") }}
	if code := conduct(t.Context(), cfg, target, &machines{encoder(&out), t.Output()}, mixed[:2]); code != exitFail {
		t.Errorf("exit code %d", code)
	}
	d := json.NewDecoder(strings.NewReader(out.String()))
	d.DisallowUnknownFields()
	requests := 0
	for i, want := range []outcome{{Case: "suite/a/fine", Result: "ok"}, {Case: "suite/a/fails", Result: "failed", Error: "it fails", Log: []string{"before"}}} {
		var got outcome
		if err := d.Decode(&got); err != nil {
			t.Fatal(err)
		}
		if got.Case != want.Case || got.Result != want.Result || got.Error != want.Error || !slices.Equal(got.Log, want.Log) || got.Requests < 6 {
			t.Errorf("object %d is %+v, want %+v with requests", i, got, want)
		}
		requests += got.Requests
	}
	var v verdict
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	if v.Result != "FAIL" || v.What != "suite/a/fails: it fails" || v.Cases != 2 || v.Failed != 1 || v.Skipped != 0 || v.Requests != requests {
		t.Errorf("the result is %+v", v)
	}
	// Only the containers of the failed case are kept.
	if left := slices.Collect(server.Containers()); len(left) != 1 || !strings.HasPrefix(left[0], "mine-s2-") || !slices.Equal(left, v.Kept) {
		t.Errorf("the containers %v are left, %v are said to be kept", left, v.Kept)
	}
}

// TestCasesAtOnce checks that cases run concurrently.
func TestCasesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		target, _ := inEmulator(t)
		target.casesAtOnce = 2
		meet := make(chan struct{}) // cases that run one at a time deadlock here
		meeting := func(do func()) storagetest.Case {
			return creates("meets", func(storagetest.T, storagetest.Store) { do() })
		}
		var out strings.Builder
		s := newStage(config{prefix: "mine"}, target, &people{w: &out})
		err := s.playCases(t.Context(), []storagetest.Case{
			meeting(func() { meet <- struct{}{}; <-meet }),
			meeting(func() { <-meet; meet <- struct{}{} }),
		})
		if err != nil || len(s.outcomes) != 2 {
			t.Errorf("%v\n%s", err, out.String())
		}
	})
}

func TestCasesInterrupted(t *testing.T) {
	target, server := inEmulator(t)
	ctx, interrupt := context.WithCancel(t.Context())
	var out strings.Builder
	s := newStage(config{prefix: "mine"}, target, &people{w: &out})
	err := s.playCases(ctx, []storagetest.Case{creates("one", func(storagetest.T, storagetest.Store) { interrupt() }), creates("two", fine)})
	if err == nil || !strings.HasPrefix(err.Error(), "suite: interrupted: ") || len(s.outcomes) != 1 {
		t.Errorf("%v\n%s", err, out.String())
	}
	for container := range server.Containers() {
		t.Errorf("container %s is left", container)
	}
}

func TestList(t *testing.T) {
	var want []string
	for _, st := range story(config{}) {
		want = append(want, st.name)
	}
	for _, c := range suiteCases() {
		want = append(want, "suite/"+c.Name)
	}
	listed := func(args ...string) []string {
		var out strings.Builder
		// No service answers there, so the run would fail if it sent a request.
		if code := run(t.Context(), append(args, "-list", "-connection-string", unreachable), &out, t.Output()); code != exitPass {
			t.Errorf("%q: exit code %d", args, code)
		}
		return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	}
	if got := listed(); !slices.Equal(got, want) {
		t.Errorf("-list names %q, want %q", got, want)
	}
	if len(slices.Compact(slices.Sorted(slices.Values(want)))) != len(want) {
		t.Error("two steps or cases have the same name")
	}
	picked := slices.DeleteFunc(slices.Clone(want), func(name string) bool {
		return !strings.Contains(name, "life/small") && !strings.HasPrefix(name, "suite/read/")
	})
	if got := listed("-run", "life/small|^suite/read/"); !slices.Equal(got, picked) {
		t.Errorf("-run picks %q, want %q", got, picked)
	}
}

// TestLong checks that a first run leaves out the long cases, and that -all and -run play them.
func TestLong(t *testing.T) {
	plays := func(args ...string) []string {
		c, err := parse(args, t.Output())
		if err != nil {
			t.Fatal(err)
		}
		return names(c, suiteCases())
	}
	all := plays("-all")
	if want := len(story(config{})) + len(suiteCases()); len(all) != want {
		t.Errorf("-all plays %d steps and cases, want %d", len(all), want)
	}
	short := plays()
	long := 0
	for _, c := range suiteCases() {
		if !c.Long {
			continue
		}
		long++
		name := suiteName(c)
		if slices.Contains(short, name) {
			t.Errorf("a first run plays %q", name)
		}
		if !slices.Equal(plays("-run", "^"+regexp.QuoteMeta(name)+"$"), []string{name}) {
			t.Errorf("-run does not pick %q", name)
		}
	}
	if long == 0 || len(short)+long != len(all) {
		t.Errorf("a first run plays %d of %d steps and cases, without %d", len(short), len(all), long)
	}
}
