package registry_test

import (
	"fmt"
	"slices"
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
