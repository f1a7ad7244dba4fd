package driver_test

import (
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// ends makes the methods below return.
var ends chan struct{}

type (
	unread    struct{ N int }
	unwritten struct{ N int }
	exits     struct{ N int }
)

func (*unread) UnmarshalJSON([]byte) error     { <-ends; return nil }
func (unwritten) MarshalJSON() ([]byte, error) { <-ends; return []byte("{}"), nil }
func (*exits) UnmarshalJSON([]byte) (_ error)  { runtime.Goexit(); return }
func newAction(plugin string, req any) *workflow.Action {
	return &workflow.Action{Name: "a", Plugin: plugin, Req: req}
}

// TestBlockedMethods creates plans whose requests have methods that do not return. It says so, and waits once for each type.
func TestBlockedMethods(t *testing.T) {
	reg := registry.Must(typed{"unread", unread{}, ""}, typed{"unwritten", unwritten{}, ""}, typed{"exits", exits{}, ""})
	for plugin, test := range map[string]struct {
		req  any
		want string
	}{
		"unread":    {unread{1}, "can't be read as driver_test.unread: the methods that encode or decode a driver_test.unread did not return within 10s"},
		"unwritten": {unwritten{1}, "can't be encoded: the methods that encode or decode a driver_test.unwritten did not return within 10s"},
		"exits":     {exits{1}, "can't be read as driver_test.exits: panic: runtime.Goexit"},
	} {
		synctest.Test(t, func(t *testing.T) {
			ends = make(chan struct{})
			defer close(ends)
			began := time.Now()
			var actions []*workflow.Action
			for range 20 {
				actions = append(actions, newAction(plugin, test.req))
			}
			p := &workflow.Plan{Name: "p", Blocks: []*workflow.Block{{Name: "b", Sequences: []*workflow.Sequence{{Name: "s", Actions: actions}}}}}
			err := driver.CheckNew(p, reg)
			if !errors.Is(err, storage.ErrInvalid) || !strings.Contains(err.Error(), "Req") || !strings.Contains(err.Error(), test.want) || time.Since(began) > 30*time.Second {
				t.Errorf("%s: after %v: %v", plugin, time.Since(began), err)
			}
		})
	}
}
