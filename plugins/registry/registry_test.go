package registry_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/planvault/azblob/plugins"
	"github.com/planvault/azblob/plugins/registry"
)

type echo struct{ name string }

func (e echo) Name() string  { return e.name }
func (e echo) Request() any  { return "" }
func (e echo) Response() any { return "" }

func TestRegister(t *testing.T) {
	reg := registry.New()
	if err := reg.Register(echo{"echo"}); err != nil {
		t.Fatal(err)
	}
	if p, ok := reg.Plugin("echo"); !ok || p.Name() != "echo" {
		t.Errorf("Plugin(echo) = %v, %v", p, ok)
	}
	if _, ok := reg.Plugin("other"); ok {
		t.Error("Plugin(other) found a plugin that was never registered")
	}
	if err := reg.Register(echo{"echo"}); err == nil {
		t.Error("Register accepted a name twice")
	}
	if err := reg.Register(echo{""}); err == nil {
		t.Error("Register accepted a plugin without a name")
	}
	if err := reg.Register(nil); err == nil {
		t.Error("Register accepted a nil plugin")
	}
}

// tried is a plugin that says how it is retried.
type tried struct {
	echo
	retries int
	backoff plugins.Backoff
}

func (t tried) Retries() int             { return t.retries }
func (t tried) Backoff() plugins.Backoff { return t.backoff }

func TestRegisterRetries(t *testing.T) {
	for want, p := range map[string]tried{
		"":                                {backoff: plugins.Backoff{First: 1, Factor: 1, Most: 1, Jitter: 1}, retries: 1},
		"Retries: -1 is negative":         {retries: -1},
		"Backoff.First: -1ns is negative": {backoff: plugins.Backoff{First: -1}},
		"Backoff.Most: -1ns is negative":  {backoff: plugins.Backoff{Most: -1}},
		"Backoff.Most: 1ns is below First, which is 2ns": {backoff: plugins.Backoff{First: 2, Most: 1}},
		"Backoff.Factor: 0.9 is not between 1 and 100":   {backoff: plugins.Backoff{Factor: 0.9}},
		"Backoff.Factor: 101 is not between 1 and 100":   {backoff: plugins.Backoff{Factor: 101}},
		"Backoff.Factor: NaN is not between 1 and 100":   {backoff: plugins.Backoff{Factor: math.NaN()}},
		"Backoff.Jitter: -0.1 is not between 0 and 1":    {backoff: plugins.Backoff{Jitter: -0.1}},
		"Backoff.Jitter: 1.1 is not between 0 and 1":     {backoff: plugins.Backoff{Jitter: 1.1}},
		"Backoff.Jitter: NaN is not between 0 and 1":     {backoff: plugins.Backoff{Jitter: math.NaN()}},
	} {
		if want != "" {
			want = `registry: plugin "echo": ` + want
		}
		p.name = "echo"
		if err := registry.New().Register(p); (err != nil || want != "") && fmt.Sprint(err) != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestAll(t *testing.T) {
	reg := registry.Must(echo{"b"}, echo{"a"})
	var names []string
	for name, p := range reg.All() {
		if p.Name() != name {
			t.Errorf("%s is the plugin %s", name, p.Name())
		}
		if err := reg.Register(echo{name + name}); err != nil { // it does not hold the lock
			t.Fatal(err)
		}
		names = append(names, name)
	}
	if !slices.Equal(names, []string{"a", "b"}) {
		t.Errorf("got %v", names)
	}
}

func TestMust(t *testing.T) {
	defer func() {
		if err, _ := recover().(error); err == nil || err.Error() != `registry: a plugin named "echo" is registered already` {
			t.Errorf("Must panicked with %v", err)
		}
	}()
	registry.Must(echo{"echo"}, echo{"other"}, echo{"echo"})
}

func ExampleMust() {
	reg := registry.Must(plugins.Typed[string, int]("length"))
	_, known := reg.Plugin("length")
	fmt.Println(known)
	// Output: true
}

// TestTags refuses a tag that is none, and finds fields that need one.
func TestTags(t *testing.T) {
	type wrong struct {
		Password string `vault:"secrt"`
	}
	type login struct {
		Password string
		Token    string `vault:"secret"`
		Key      string
	}
	if err := registry.New().Register(plugins.Typed[wrong, string]("p")); err == nil || !strings.Contains(err.Error(), `vault:"secrt"`) {
		t.Errorf("a wrong tag in a request: %v", err)
	}
	if err := registry.New().Register(plugins.Typed[string, *wrong]("p")); err == nil {
		t.Error("a wrong tag in a response: no error")
	}
	reg := registry.Must(plugins.Typed[login, string]("b"), plugins.Typed[string, []login]("a"))
	if got, want := reg.Untagged(), []string{"a: /resp/*/Password", "b: /req/Password"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
