package engine_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/plugins"
	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/storage/memvault"
)

// TestFuncThatCannotRun makes plugins that no engine could run.
func TestFuncThatCannotRun(t *testing.T) {
	for want, make := range map[string]func(){
		`engine: Task "f": the function is nil`: func() { engine.Task[job, string]("f", nil) },
		`engine: Task "f": requests are the interface interface {}, which can't be decoded`: func() {
			engine.Task("f", func(context.Context, engine.Call, any) (string, error) { return "", nil })
		},
		`engine: Task "f": responses are the interface error, which can't be decoded`: func() {
			engine.Task("f", func(context.Context, engine.Call, string) (error, error) { return nil, nil })
		},
	} {
		func() {
			defer func() {
				if got := fmt.Sprint(recover()); got != want {
					t.Errorf("it panics with %s, want %s", got, want)
				}
			}()
			make()
		}()
	}
}

// TestFunc checks what passes between the function of a plugin and the engine.
func TestFunc(t *testing.T) {
	failure := errors.New("no")
	for name, test := range map[string]struct {
		req, resp any
		err       error
		answer    any // of the plugin
		permanent bool
	}{
		"a response":                {req: job{Name: "a"}, resp: "a", answer: "a"},
		"no request":                {req: nil, resp: "", answer: ""},
		"another type":              {req: 7, answer: nil, permanent: true},
		"a pointer":                 {req: &job{}, answer: nil, permanent: true},
		"a failure":                 {req: job{}, err: failure, answer: nil},
		"a failure with a response": {req: job{Name: "a"}, resp: "a", err: failure, answer: "a"},
	} {
		t.Run(name, func(t *testing.T) {
			p := engine.Task("f", func(_ context.Context, _ engine.Call, j job) (string, error) { return j.Name, test.err })
			answer, err := p.Run(t.Context(), engine.Call{}, test.req)
			var own *plugins.Error
			if answer != test.answer || !test.permanent && !errors.Is(err, test.err) || test.permanent != (errors.As(err, &own) && own.Permanent) {
				t.Errorf("%#v, %v", answer, err)
			}
		})
	}
}

// TestCall checks what a plugin is given.
func TestCall(t *testing.T) {
	var calls []engine.Call
	reg := registry.Must(engine.Task("job", func(_ context.Context, call engine.Call, _ job) (string, error) {
		calls = append(calls, call)
		return "", map[bool]error{true: errors.New("once")}[len(calls) == 1]
	}))
	vault := memvault.NewStore().Open(reg, memvault.Options{})
	a := do(job{})
	a.Retries = 1
	p := plan(block("", sequence("", a)))
	e, err := engine.New(vault, engine.Options{UntilIdle: true, RetryDelay: 1, Poll: 1})
	if err == nil {
		_, err = e.Submit(t.Context(), p)
	}
	if err == nil {
		err = e.Run(t.Context())
	}
	must(t, err)
	for i, c := range calls {
		if c.Action != a.ID || c.Plan != p.ID || c.Epoch != 0 || c.Attempt != i+1 || len(calls) != 2 {
			t.Errorf("%+v", calls)
		}
	}
}
