package plugins_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/planvault/azblob/plugins"
)

func TestErrorIncludesWrapped(t *testing.T) {
	inner := &plugins.Error{Code: 8, Message: "disk full"}
	outer := &plugins.Error{Code: 7, Message: "install failed", Wrapped: inner}
	if got, want := outer.Error(), "install failed (code 7): disk full (code 8)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if !errors.Is(outer, inner) {
		t.Error("errors.Is does not find the wrapped error")
	}
	if behind := inner.Unwrap(); behind != nil {
		t.Errorf("an error that wraps nothing unwraps to %v", behind)
	}
}

func TestPermanent(t *testing.T) {
	if err := plugins.Permanent(nil); err != nil {
		t.Errorf("no error has become %v", err)
	}
	full := errors.New("disk full")
	for _, c := range []struct {
		err  error
		code int
		text string
	}{
		{full, 0, "disk full"},
		{fmt.Errorf("install: %w", &plugins.Error{Code: 7, Cause: full}), 7, "install: disk full (code 7)"},
	} {
		err := plugins.Permanent(c.err)
		own, ok := errors.AsType[*plugins.Error](err)
		if !ok || !own.Permanent || own.Code != c.code || err.Error() != c.text || !errors.Is(err, full) {
			t.Errorf("%v has become %+v", c.err, err)
		}
	}
}

func ExampleTyped() {
	type Greet struct{ Whom string }
	type Greeting struct{ Said string }

	var p plugins.Plugin = plugins.Typed[Greet, *Greeting]("greet")
	fmt.Printf("%s: %T, %T\n", p.Name(), p.Request(), p.Response())
	// Output: greet: plugins_test.Greet, *plugins_test.Greeting
}

func ExampleBackoff() {
	fmt.Println(plugins.Backoff{First: 10 * time.Second, Factor: 1.5, Most: time.Hour, Jitter: 0.2})
	fmt.Println(plugins.Backoff{Most: time.Minute})
	// Output:
	// first 10s, factor 1.5, most 1h0m0s, jitter 0.2
	// most 1m0s
}
