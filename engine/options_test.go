package engine_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/memvault"
)

// TestNegativeOptions sets each number of the options to -1: all faults are named, each by its field.
func TestNegativeOptions(t *testing.T) {
	var opts engine.Options
	var numbers []string
	for field, v := range reflect.ValueOf(&opts).Elem().Fields() {
		if v.CanInt() {
			v.SetInt(-1)
			numbers = append(numbers, field.Name)
		}
	}
	_, err := engine.New(memvault.New(registry.New(), memvault.Options{}), opts)
	if !errors.Is(err, storage.ErrInvalid) || len(numbers) != 10 {
		t.Fatalf("%v: %v", numbers, err)
	}
	for _, name := range numbers {
		if !strings.Contains(err.Error(), "Options."+name+": ") {
			t.Errorf("the error does not name %s: %v", name, err)
		}
	}
}
