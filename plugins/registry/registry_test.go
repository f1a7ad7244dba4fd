package registry_test

import (
	"fmt"
	"testing"

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

func ExampleRegister() {
	reg := registry.New()
	fmt.Println(reg.Register(echo{"echo"}))
	_, known := reg.Plugin("echo")
	fmt.Println(known)
	// Output:
	// <nil>
	// true
}
