package driver_test

import (
	"encoding/json"
	"errors"
	"net/url"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/plugins"
	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

type (
	// closed has nothing that is stored.
	closed struct{ id int }
	// nested has closed in many places.
	nested struct {
		P *closed
		L []twice
		U *url.URL
	}
	twice struct{ Z *closed }
	// covered hides a field of what it embeds, and guarded embeds what is not stored.
	covered struct {
		Base
		Name string
	}
	// Base is embedded.
	Base    struct{ Name, Other string }
	guarded struct {
		sync.Mutex
		level
		N int
	}
	level int
	open  struct{ V any }
	times struct {
		At  map[time.Time]int
		On  time.Time
		Raw json.RawMessage
		IDs []uuid.UUID
		P   **int
	}
	secret string
)

func (secret) MarshalText() ([]byte, error) { return []byte("***"), nil }

func (s *secret) UnmarshalText(text []byte) error {
	*s = secret(text)
	return nil
}

// TestValuesThatAreNotReadBack checks that Create refuses a request of which something is lost, and a plugin whose responses
// lose something, and names the field.
func TestValuesThatAreNotReadBack(t *testing.T) {
	number := reflect.TypeFor[int]()
	twins := reflect.StructOf([]reflect.StructField{{Name: "A", Type: number, Tag: `json:"x"`}, {Name: "B", Type: number, Tag: `json:"x"`}}) // go vet refuses it
	for _, test := range []struct {
		req   any
		field string // within the request; "-" if nothing is lost
	}{
		{closed{7}, ""},
		{&closed{7}, ""},
		{[]closed{{7}}, ""},
		{json.RawMessage(`{"id":7}`), "-"}, // of no plugin's type
		{struct{ C closed }{}, ".C"},
		{struct{ M map[string]closed }{}, ".M"},
		{reflect.Zero(twins).Interface(), ".B"},
		{reflect.New(twins).Interface(), ".B"},
		{reflect.Zero(reflect.SliceOf(twins)).Interface(), ".B"},
		{nested{}, "-"},
		{nested{P: &closed{7}}, ".P"},
		{nested{L: []twice{{}, {&closed{7}}}}, ".L[1].Z"},
		{nested{U: &url.URL{Host: "h"}}, "-"},
		{nested{U: &url.URL{User: url.User("me")}}, ".U.User"},
		{covered{Base{Other: "a"}, "b"}, "-"},
		{covered{Base{Name: "a"}, "b"}, ".Base.Name"},
		{&guarded{N: 1, level: 3}, "-"},
		{open{int64(7)}, "-"},
		{open{int64(1)<<53 + 1}, ".V"},
		{open{map[string]any{"a": []any{1, uint64(1)<<63 + 1}}}, ".V[a][1]"},
		{open{[]int64{-1<<53 - 1}}, ".V[0]"},
		{open{json.Number("9007199254740993")}, ".V"},
		{open{json.Number("0.10")}, "-"},
		{open{struct{ A int }{1}}, "-"},
		{times{map[time.Time]int{time.Now(): 1}, time.Now(), json.RawMessage("null"), []uuid.UUID{uuid.New()}, new(*int)}, "-"},
		{secret("hunter2"), ""},
		{map[string]secret{"a": "hunter2"}, "[a]"},
		{secret("***"), "-"},
		{struct{ _ int }{}, "-"},
	} {
		reg := registry.New()
		must(t, reg.Register(of{test.req}))
		plan := plantest.Small()
		a := plan.Blocks[0].Sequences[0].Actions[0]
		a.Plugin, a.Req = "of", test.req
		err := driver.CheckNew(plan, reg)
		if test.field == "-" {
			if err != nil {
				t.Errorf("%#v: %v", test.req, err)
			}
		} else if !errors.Is(err, storage.ErrInvalid) || !strings.Contains(err.Error(), "Actions[0].Req"+test.field+": ") {
			t.Errorf("%#v: %v, want a loss in Req%s", test.req, err, test.field)
		}
		if err := driver.CheckRestored(complete(plan), reg); err != nil {
			t.Errorf("%#v: restored: %v", test.req, err)
		}
	}
	plan := plantest.Small()
	plan.Blocks[0].Sequences[0].Actions[0].Plugin = "of"
	plan.Blocks[0].Sequences[0].Actions[0].Req = nil
	err := driver.CheckNew(plan, registry.Must(plugins.Typed[string, *struct{ Receipt closed }]("of")))
	if !errors.Is(err, storage.ErrInvalid) || !strings.Contains(err.Error(), `Actions[0].Plugin: the field "Receipt" of the response of plugin of can't be stored`) {
		t.Errorf("a response that is lost: %v", err)
	}
}

func complete(plan *workflow.Plan) *workflow.Plan {
	driver.Complete(plan)
	return plan
}
