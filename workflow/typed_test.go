package workflow_test

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"
)

// plain has a field of each type that is not left to encoding/json.
type plain struct {
	S      string
	Named  word `json:"named,omitempty"`
	B      bool `json:",omitempty"`
	I      int
	I8     int8
	I16    int16 `json:",omitempty"`
	I32    int32
	I64    int64
	U      uint
	U8     uint8
	U16    uint16
	U32    uint32
	U64    uint64
	F      float64 `json:"f,omitempty"`
	At     time.Time
	For    time.Duration
	ID     uuid.UUID `json:"id,omitempty"`
	Bytes  []byte
	Texts  map[string]string `json:"texts,omitempty"`
	In     struct{ A *string }
	To     *[]int `json:",omitempty"`
	List   []struct{ X, Y int8 }
	hidden int
	Out    func() `json:"-"`
}

type (
	word  string
	inner struct{ A int }
)

// readTyped reads the request of an action as a type.
func readTyped(t testing.TB, text string, as reflect.Type) any {
	t.Helper()
	a := new(workflow.Action)
	types := func(string) (request, response reflect.Type) { return as, as }
	must(t, workflow.UnmarshalTyped([]byte(`{"plugin":"p","req":`+text+`}`), a, types))
	return a.Req
}

// sameAsJSON checks that a text is read as a type as encoding/json reads it, if not left to it, and is written again as
// encoding/json writes it.
func sameAsJSON(t testing.TB, text string, as reflect.Type) (typed bool) {
	t.Helper()
	want, got := reflect.New(as), readTyped(t, text, as)
	err := json.Unmarshal([]byte(text), want.Interface())
	if _, raw := got.(json.RawMessage); !raw && (err != nil || !reflect.DeepEqual(got, want.Elem().Interface())) {
		t.Errorf("%s is read as %+v, encoding/json reads %+v, %v", text, got, want.Elem(), err)
	} else if typed = !raw; err != nil {
		return typed
	}
	written, err := workflow.Marshal(&workflow.Action{Req: want.Elem().Interface()})
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if problem := e.Encode(want.Elem().Interface()); (problem == nil) != (err == nil) {
		t.Errorf("%s can be written: %v, encoding/json says %v", text, err, problem)
	}
	if wanted := fmt.Sprintf(`{"req":%s}`, strings.TrimSuffix(b.String(), "\n")); err == nil && string(written) != wanted {
		t.Errorf("it is written as %s, want %s", written, wanted)
	}
	return typed
}

func TestTyped(t *testing.T) {
	type linked struct{ Next *linked }
	type twice struct {
		A int
		B int `json:"A"`
	}
	all := `{"S":"\u00e9\n","named":"x","B":true,"I":-1,"I8":-128,"U8":255,"U64":18446744073709551615,"f":1e-7,"At":"2024-02-29T01:02:03.04+02:00",` +
		`"For":1000,"id":"018f0000-0000-7000-8000-000000000001","Bytes":"AP8=","texts":{"b":"1","a":"\u2028"},"In":{"A":"x"},"To":[1,2],"List":[{"X":1},null]}`
	for _, test := range []struct {
		as    any
		text  string
		typed bool
	}{
		{plain{hidden: 1}, all, true},
		{&plain{}, all, true},
		{plain{}, ` { "Bytes" : null , "texts":{}, "List":[], "To":null, "S":null, "I":null } `, true},
		{[]*plain{}, `[null,{}]`, true},
		{plain{}, `null`, true},
		{&plain{}, `null`, true},
		{map[string]string{}, `{"a":"1","a":"2"}`, true},
		{1.5, `-0`, true},
		{struct {
			A int `json:"b.c-d"`
			B int `json:"-"`
		}{}, `{"b.c-d":2}`, true},
		{plain{}, `{"s":"another case"}`, false},
		{plain{}, `{"new":1}`, false},
		{plain{}, `{"In":{"A":"1"},"In":{}}`, false},
		{plain{}, `{"I8":128}`, false},
		{plain{}, `{"U":-1}`, false},
		{plain{}, `{"I":1.0}`, false},
		{plain{}, `{"Bytes":[1]}`, false},
		{plain{}, `{"At":"2024-02-29T01:02:03\u005a"}`, false},
		{plain{}, `[]`, false},
		{linked{}, `{"Next":{}}`, false},
		{twice{}, `{"A":1}`, false},
		{json.Number(""), `1`, false},
		{json.Number(""), `"1"`, false},
		{struct{ Any any }{}, `{}`, false},
		{struct {
			N int `json:",string"`
		}{}, `{"N":"1"}`, false},
		{struct{ inner }{}, `{}`, false},
		{plantest.Loose{}, `{}`, false},
	} {
		if typed := sameAsJSON(t, test.text, reflect.TypeOf(test.as)); typed != test.typed {
			t.Errorf("%s as %T: typed is %t", test.text, test.as, typed)
		}
	}
	for _, f := range []float64{0, math.Copysign(0, -1), 1e-6, 9.9e-7, 1e21, 9.9e20, math.MaxFloat64, math.NaN(), math.Inf(1)} {
		text, err := workflow.Marshal(&workflow.Action{Req: f})
		if want, bad := json.Marshal(f); (err == nil) != (bad == nil) || err == nil && string(text) != fmt.Sprintf(`{"req":%s}`, want) {
			t.Errorf("%v is written as %s, %v", f, text, err)
		}
	}
	if _, err := workflow.Marshal(&workflow.Action{Req: plain{S: "\xff"}}); err == nil || !strings.Contains(err.Error(), "not valid UTF-8") {
		t.Errorf("text that is not UTF-8: %v", err)
	}
}

// TestTypedByPlugin checks that each value gets the type of its own action's plugin, wherever the name stands.
func TestTypedByPlugin(t *testing.T) {
	reg := plantest.Register()
	const known, raw = `"plugin":"` + plantest.PluginName + `"`, `"req":{"Text":"a"}`
	for _, test := range []struct {
		action string
		req    any
	}{
		{`{` + known + `,` + raw + `}`, plantest.Request{Text: "a"}},
		{`{` + raw + `,` + known + `}`, json.RawMessage(`{"Text":"a"}`)},
		{`{` + raw + `}`, json.RawMessage(`{"Text":"a"}`)},
		{`{"plugin":"other",` + raw + `}`, json.RawMessage(`{"Text":"a"}`)},
		{`{` + known + `,` + raw + `,"plugin":"other"}`, json.RawMessage(`{"Text":"a"}`)},
	} {
		c := new(workflow.Checks)
		must(t, workflow.UnmarshalTyped([]byte(`{"actions":[{`+known+`,"attempts":[{"resp":{"OK":true}}]},`+test.action+`]}`), c, reg.Types))
		if !reflect.DeepEqual(c.Actions[1].Req, test.req) {
			t.Errorf("the request of %s is a %T", test.action, c.Actions[1].Req)
		}
		if resp, ok := c.Actions[0].Attempts[0].Resp.(*plantest.Response); ok != !strings.Contains(test.action, "other\"}") || ok && !resp.OK {
			t.Errorf("before %s, the response is a %T", test.action, c.Actions[0].Attempts[0].Resp)
		}
	}
}

// TestTypedAllocations checks that a type that stands in many places is examined once, and that elements of lists need
// no memory of their own.
func TestTypedAllocations(t *testing.T) {
	run := 0
	for what, read := range map[string]func(){
		"a type in 4,096 places": func() {
			tag := reflect.StructTag(fmt.Sprintf(`json:"run%d"`, run)) // a type that is not known yet
			run++
			tree := reflect.TypeFor[int]()
			for range 12 {
				tree = reflect.StructOf([]reflect.StructField{{Name: "A", Type: tree, Tag: tag}, {Name: "B", Type: reflect.PointerTo(tree)}})
			}
			readTyped(t, `{}`, tree)
		},
		"3,000 elements": func() { readTyped(t, "[0"+strings.Repeat(",0", 2999)+"]", reflect.TypeFor[[]int]()) },
	} {
		if n := testing.AllocsPerRun(1, read); n > 2000 {
			t.Errorf("%s: %.0f allocations", what, n)
		}
	}
}

// FuzzTyped checks that plain types are read and written as encoding/json does it.
func FuzzTyped(f *testing.F) {
	f.Add(`{"S":"\ud83d\ude00","I":-0,"U8":01,"f":-0.10E+7,"At":null,"Bytes":"AP8","texts":{"\ufffd":"<"},"List":[{"X":1,"Y":2}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		if json.Valid([]byte(text)) {
			sameAsJSON(t, text, reflect.TypeFor[plain]())
		}
	})
}
