package driver_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// typed is a plugin with given types of request and response.
type typed struct {
	name      string
	req, resp any
}

func (p typed) Name() string  { return p.name }
func (p typed) Request() any  { return p.req }
func (p typed) Response() any { return p.resp }

func TestBind(t *testing.T) {
	type value struct{ N int }
	reg := registry.New()
	for _, p := range []typed{
		{"value", value{}, value{}},
		{"pointer", &value{}, &value{}},
		{"map", map[string]int{}, []int{}},
		{"raw", json.RawMessage{}, json.RawMessage{}},
		{"nothing", nil, nil},
	} {
		must(t, reg.Register(p))
	}
	raw := func(s string) any { return json.RawMessage(s) }
	for _, test := range []struct {
		plugin            string
		req, resp         any
		wantReq, wantResp any
		fault             string // part of the error; "" for none
	}{
		{"value", raw(`{"N":1}`), raw(`{"N":2}`), value{1}, value{2}, ""},
		{"pointer", raw(`{"N":1}`), raw(`{"N":2}`), &value{1}, &value{2}, ""},
		{"pointer", raw(`null`), raw(`null`), (*value)(nil), (*value)(nil), ""},
		{"map", raw(`{"a":1}`), raw(`[1]`), map[string]int{"a": 1}, []int{1}, ""},
		{"raw", raw(`{"N": 1}`), raw(`2`), raw(`{"N": 1}`), raw(`2`), ""},
		{"nothing", raw(`1`), raw(`2`), raw(`1`), raw(`2`), ""},
		{"value", nil, nil, nil, nil, ""},
		{"value", value{1}, &value{2}, value{1}, &value{2}, ""}, // decoded already
		{"other", raw(`1`), nil, nil, nil, `"other"`},
		{"other", nil, nil, nil, nil, `"other"`},
		{"value", raw(`{"N":"one"}`), nil, nil, nil, "request"},
		{"value", raw(`{"N":1}`), raw(`[]`), nil, nil, "response 0"},
	} {
		a := &workflow.Action{ID: workflow.NewV7(), Plugin: test.plugin, Req: test.req, Attempts: []workflow.Attempt{{Resp: test.resp}}}
		plan := &workflow.Plan{Blocks: []*workflow.Block{{Sequences: []*workflow.Sequence{{Actions: []*workflow.Action{a}}}}}}
		err := errors.Join(driver.Bind(plan, nil), driver.Bind(plan, reg)) // without a registry, everything stays as it is
		switch {
		case test.fault != "":
			if !errors.Is(err, storage.ErrSchema) || !strings.Contains(err.Error(), test.fault) || !strings.Contains(err.Error(), a.ID.String()) {
				t.Errorf("%+v: %v", test, err)
			}
		case err != nil || !reflect.DeepEqual(a.Req, test.wantReq) || !reflect.DeepEqual(a.Attempts[0].Resp, test.wantResp):
			t.Errorf("%+v: request %#v, response %#v, %v", test, a.Req, a.Attempts[0].Resp, err)
		}
	}
}

func FuzzVersion(f *testing.F) {
	for s := workflow.NotStarted; s.Valid(); s++ {
		version := driver.Version("0x8DE", &workflow.Action{State: workflow.State{Status: s}})
		if etag, status, ok := driver.SplitVersion(version); etag != "0x8DE" || status != s || !ok {
			f.Errorf("the version of %s is read as %q, %s, %v", s, etag, status, ok)
		}
	}
	for _, s := range []string{"", "@", "0x8DE", "0x8DE@", "0x8DE@running", "0x8DE@Running", "0x8DE@Gone", "a@b@Running", "0x8DE@Running@children"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, v string) {
		etag, status, ok := driver.SplitVersion(v)
		again := driver.Version(etag, &workflow.Action{State: workflow.State{Status: status}})
		if ok && (!status.Valid() || v != again && !strings.HasPrefix(v, again+"@")) {
			t.Errorf("%q is read as %q, %s", v, etag, status)
		}
		if !strings.HasPrefix(v, etag) || strings.Contains(etag, "@") {
			t.Errorf("%q has the ETag %q", v, etag)
		}
	})
}

// must fails the test if err is not nil.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
