package driver_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/planvault/azblob/plugins"
	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// picky is a plugin whose requests are lists of numbers.
type picky struct {
	plugins.Typed[[]int, string]
	check func(req any) error
}

func (p picky) Check(req any) error { return p.check(req) }

// looks is a plugin for checks.
type looks struct{ plugins.Typed[string, string] }

func (looks) IsCheck() bool { return true }

// inOrder returns a plan with actions in the sequence s of the block b.
func inOrder(actions ...*workflow.Action) *workflow.Plan {
	return &workflow.Plan{Name: "p", Blocks: []*workflow.Block{{Name: "b", Sequences: []*workflow.Sequence{{Name: "s", Actions: actions}}}}}
}

// TestCheckedRequests creates plans with plugins that check requests, and compares the errors.
func TestCheckedRequests(t *testing.T) {
	const at, refuses = "Blocks[0].Sequences[0].Actions[0].Req", `: plugin "picky" refuses action b/s/a: `
	for name, test := range map[string]struct {
		check func(req any) error
		want  []string
	}{
		"accepted":      {func(any) error { return nil }, nil},
		"an error":      {func(any) error { return errors.New("no\nway") }, []string{at + refuses + "no; way"}},
		"a long error":  {func(any) error { return errors.New(strings.Repeat("x", 5000)) }, []string{at + ": " + (refuses[2:] + strings.Repeat("x", 5000))[:1000]}},
		"a field":       {func(any) error { return &workflow.FieldError{Field: "Sum", Problem: "is odd"} }, []string{at + ".Sum" + refuses + "is odd"}},
		"an element":    {func(any) error { return &workflow.FieldError{Field: "[1]", Problem: "is odd"} }, []string{at + "[1]" + refuses + "is odd"}},
		"no field":      {func(any) error { return &workflow.FieldError{Problem: "is odd"} }, []string{at + refuses + "is odd"}},
		"a circle":      {func(any) error { return circle{} }, []string{at + refuses + "round"}},
		"two errors":    {func(any) error { return errors.Join(&workflow.FieldError{Field: "A", Problem: "x"}, errors.New("y")) }, []string{at + ".A" + refuses + "x", at + refuses + "y"}},
		"two in a text": {func(any) error { return fmt.Errorf("%w, %w", errors.New("x"), errors.New("y")) }, []string{at + refuses + "x, y"}},
		"a panic":       {func(any) error { panic("boom") }, []string{at + refuses + "Check: panic: boom"}},
		"no error's error": {
			func(any) error { return (*workflow.FieldError)(nil) },
			[]string{at + refuses + "the error of Check can't be read: panic: runtime error: invalid memory address or nil pointer dereference"},
		},
		"its own copy": {func(req any) error { req.([]int)[0] = 7; return nil }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			numbers := []int{1, 2}
			err := driver.CheckNew(inOrder(newAction("picky", numbers)), registry.Must(picky{"picky", test.check}))
			var want string
			if len(test.want) > 0 {
				want = storage.ErrInvalid.Error() + ": " + strings.Join(test.want, "\n")
			}
			if got := fmt.Sprint(err); (err != nil) != (want != "") || err != nil && got != want || numbers[0] != 1 {
				t.Errorf("got  %s\nwant %s\nof %v", got, want, numbers)
			}
		})
	}
}

// circle is an error that joins itself.
type circle struct{}

func (circle) Error() string   { return "round" }
func (circle) Unwrap() []error { return []error{circle{}} }

// login is a request with a secret of two lines, and loud refuses it with a text that quotes the secret.
type (
	login struct {
		Password string `vault:"secret"`
	}
	loud struct{ plugins.Typed[login, string] }
)

func (loud) Check(req any) error {
	password := req.(login).Password
	return errors.Join(errors.New(strings.Repeat(" ", 955)+password), &workflow.FieldError{Field: "By." + password, Problem: "is there"})
}

// TestSecretsOfChecks refuses a request with a text that is cut within a secret, and a field that is called like it: no part
// of it is told.
func TestSecretsOfChecks(t *testing.T) {
	err := driver.CheckNew(inOrder(newAction("loud", login{"correct horse\nbattery staple"})), registry.Must(loud{"loud"}))
	if got := fmt.Sprint(err); !strings.Contains(got, "  ") || !strings.Contains(got, "Req.By.(secret)") || strings.Contains(got, "corr") || strings.Contains(got, "batt") {
		t.Errorf("got %s", got)
	}
	var look func(err error)
	look = func(err error) {
		if f, ok := err.(*workflow.FieldError); ok && f.Err != nil {
			t.Errorf("%v has %v", f, f.Err)
		}
		if joined, ok := err.(interface{ Unwrap() []error }); ok {
			for _, err := range joined.Unwrap() {
				look(err)
			}
		}
	}
	look(err)
}

// tooMuch is an error of a plugin's own.
type tooMuch struct{ sum int }

func (e *tooMuch) Error() string { return fmt.Sprint(e.sum, " is too much") }

// TestErrorsOfChecks finds what Check returned in the error of Create, whose kind it does not change.
func TestErrorsOfChecks(t *testing.T) {
	check := func(returned error) error {
		err := driver.CheckNew(inOrder(newAction("picky", []int{})), registry.Must(picky{"picky", func(any) error { return returned }}))
		if !errors.Is(err, storage.ErrInvalid) || errors.Is(err, storage.ErrExists) {
			t.Errorf("%v: %v", returned, err)
		}
		return err
	}
	own := &workflow.FieldError{Field: "Sum", Problem: "is odd"}
	if f, ok := errors.AsType[*workflow.FieldError](check(own)); !ok || f.Err != error(own) {
		t.Errorf("a field: %+v", f)
	}
	much := &tooMuch{7}
	for _, returned := range []error{much, errors.Join(errors.New("odd"), much), fmt.Errorf("%w: %w", storage.ErrExists, much)} {
		if e, ok := errors.AsType[*tooMuch](check(returned)); !ok || e != much {
			t.Errorf("%v: %v", returned, e)
		}
	}
	if e, ok := errors.AsType[*tooMuch](check(errors.New("odd"))); ok {
		t.Errorf("found %v", e)
	}
}

// TestChecksOfForks checks what is to run in a fork, and nothing of a plan that is restored.
func TestChecksOfForks(t *testing.T) {
	var asked []any
	reg := registry.Must(picky{"picky", func(req any) error { asked = append(asked, req); return errors.New("no") }}, looks{"looks"})
	done, open := newAction("picky", []int{1}), newAction("picky", []int{2})
	p := inOrder(done, open)
	p.PreChecks = &workflow.Checks{Actions: []*workflow.Action{newAction("picky", nil)}} // from before there was a looks
	driver.Complete(p)
	if err := driver.CheckRestored(p, reg); err != nil || asked != nil {
		t.Errorf("restored: %v, asked for %v", err, asked)
	}
	now := time.Now()
	done.State = workflow.State{Status: workflow.Completed, Start: now, End: now}
	done.Attempts = []workflow.Attempt{{Start: now, End: now}}
	p.ForkedFrom = workflow.NewV7()
	if err := driver.CheckNew(p, reg); strings.Count(fmt.Sprint(err), "\n") != 1 || fmt.Sprint(asked) != "[<nil> [2]]" {
		t.Errorf("forked: %v, asked for %v", err, asked)
	}
}

// TestStuckCheck creates a plan of many actions whose plugin does not return from its Check: it waits once.
func TestStuckCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ends := make(chan struct{})
		defer close(ends)
		began := time.Now()
		a, b := newAction("picky", []int{}), newAction("picky", []int{})
		err := driver.CheckNew(inOrder(a, b), registry.Must(picky{"picky", func(any) error { <-ends; return nil }}))
		if took := time.Since(began); took != 10*time.Second || !errors.Is(err, storage.ErrInvalid) || !strings.HasSuffix(fmt.Sprint(err), "refuses action b/s/a: Check did not return within 10s") {
			t.Errorf("after %v: %v", took, err)
		}
	})
}

// TestIsCheck creates plans with plugins in Checks, by registries that know checks and that don't.
func TestIsCheck(t *testing.T) {
	work, look := plugins.Typed[string, string]("work"), looks{"looks"}
	for _, test := range []struct {
		reg    *registry.Register
		plugin string
		fault  string
	}{
		{registry.Must(work), "work", ""},
		{registry.Must(work, look), "looks", ""},
		{registry.Must(look, work), "work", `PreChecks.Actions[1].Plugin: plugin "work" does not say IsCheck`},
		{registry.Must(look), "other", `PreChecks.Actions[1].Plugin: the registry lacks plugin "other"`},
		{nil, "work", ""},
	} {
		p := inOrder(newAction("looks", nil)) // a check may work elsewhere
		if test.reg != nil {
			if _, known := test.reg.Plugin("looks"); !known {
				p.Blocks = nil
			}
		}
		p.PreChecks = &workflow.Checks{Actions: []*workflow.Action{newAction(test.plugin, nil), newAction(test.plugin, nil)}}
		err := driver.CheckNew(p, test.reg)
		if got := fmt.Sprint(err); (err != nil) != (test.fault != "") || !strings.Contains(got, test.fault) || strings.Count(got, "\n") > 1 {
			t.Errorf("%s: %v", test.plugin, err)
		}
	}
}
