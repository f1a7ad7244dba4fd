package workflow_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/workflow"
)

// The types below have what requests and responses may be made of.
type (
	payload struct {
		S     string
		Named word `json:"named,omitempty"`
		B     bool `json:",omitempty"`
		I8    int8
		I     int `json:",string"`
		U64   uint64
		F     float64 `json:"f,omitempty"`
		F32   float32
		At    time.Time
		For   time.Duration
		ID    uuid.UUID `json:"id,omitempty"`
		Bytes []byte
		Octet []octet `json:",omitempty"`
		Array [2]byte
		Texts map[string]string `json:"texts,omitempty"`
		Keys  map[word]int
		Ints  map[int]*int
		In    struct{ A *string }
		To    **[]int `json:",omitempty"`
		List  []struct{ X, Y int8 }
		Any   any
		Raw   json.RawMessage               `json:",omitempty"`
		Num   json.Number                   `json:",omitempty"`
		Nums  map[json.Number][]json.Number `json:",omitempty"`
		Of    generic[word]
		Empty *struct{} `json:",omitempty"`
		Zero  time.Time `json:",omitzero"`
		inner
		*Outer
		Out func() `json:"-"`
	}
	word           string
	octet          byte
	inner          struct{ A, B int }
	Outer          struct{ B, C int }
	generic[T any] struct{ V, W *T }
	self           struct{ text string }
	shouted        string
	twice          struct {
		A int
		B int `json:"A"`
	}
	linked  struct{ Next *linked }
	strange struct {
		Self  self
		To    *self
		Keys  map[shouted]shouted
		Text  *shouted
		Iface fmt.Stringer `json:",omitempty"`
		Twice twice
		Link  *linked
		A     int `json:"a,omitempty,string"`
		Bad   int `json:"b@d c"`
	}
)

func (s self) MarshalJSON() ([]byte, error) { return json.Marshal(s.text) }

func (s *self) UnmarshalJSON(text []byte) error { return json.Unmarshal(text, &s.text) }

func (s shouted) MarshalText() ([]byte, error) { return []byte(strings.ToUpper(string(s))), nil }

func (s *shouted) UnmarshalText(text []byte) error {
	*s = shouted(strings.ToLower(string(text)))
	return nil
}

// samePayload checks that a text is read as encoding/json reads it, and that the value is written as encoding/json
// writes it.
func samePayload[T any](t testing.TB, text string) {
	t.Helper()
	var want, got T
	wrong, err := json.Unmarshal([]byte(text), &want), workflow.UnmarshalValue([]byte(text), &got)
	if (wrong == nil) != (err == nil) || err == nil && !reflect.DeepEqual(want, got) {
		t.Errorf("%s as %T is read as %+v, %v; encoding/json reads %+v, %v", text, got, got, err, want, wrong)
	}
	if wrong == nil {
		sameText(t, want)
	}
}

// sameText checks that a value is written as encoding/json writes it.
func sameText(t testing.TB, v any) {
	t.Helper()
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	wrong := e.Encode(v)
	text, err := workflow.MarshalValue(v)
	if (wrong == nil) != (err == nil) || err == nil && string(text) != strings.TrimSuffix(b.String(), "\n") {
		t.Errorf("%+v is written as %s, %v; encoding/json writes %s, %v", v, text, err, b.String(), wrong)
	}
}

// payloads are texts of payloads, which FuzzPayloads damages.
var payloads = []string{
	`{"S":"\u00e9\n<&>","named":"x","B":true,"I":"-1","I8":-128,"U64":18446744073709551615,"f":1e-7,"F32":3.4e38,"At":"2024-02-29T01:02:03.04+02:00",` +
		`"For":1000,"id":"018f0000-0000-7000-8000-000000000001","Bytes":"AP8=","Octet":[1,2],"Array":[1,2,3],"texts":{"b":"1","a":"\u2028"},"Keys":{"k":1},` +
		`"Ints":{"-1":2},"In":{"A":"x"},"To":[1,2],"List":[{"X":1},null],"Any":{"b":[1.5,null],"a":9007199254740993},"Raw": [ 1 , "\u2028<" ] ,"Num":1e400,"Nums":{"1":[2,"3",null]},` +
		`"Of":{"V":"v"},"Empty":{},"A":1,"B":2,"C":3}`,
	` { "Bytes" : null , "texts":{}, "List":[], "To":null, "S":null, "I":null, "Any":null, "Raw":null, "Num":null, "Outer":null } `,
	`null`, `[]`, `{"s":"another case","NAMED":"x","new":1}`, `{"In":{"A":"1"},"In":{}}`, `{"texts":{"a":"1","a":"2"}}`, `{"I8":128}`, `{"U64":-1}`,
	`{"I":1}`, `{"I":"x"}`, `{"Bytes":[1]}`, `{"Bytes":"AP8"}`, `{"Bytes":"AP\n8="}`, `{"At":"2024-02-29T1:02:03Z"}`, `{"Num":"1"}`, `{"Num":"x"}`,
	`{"S":"\ud83d"}`, `{"Array":[1]}`, `{"Ints":{"x":1}}`, `{"F32":1e39}`, `{"Any":1e400}`,
	`{"Self":"a","To":"b","Keys":{"a":"b"},"Text":"c","Twice":{"A":1},"Link":{"Next":{}},"a":"1","b@d c":2,"Bad":3}`,
	`{"Self":null,"To":null,"Text":null,"Iface":null}`, `{"Iface":"x"}`, `{"Self":1}`,
}

// FuzzPayloads checks that requests and responses are read and written as encoding/json does it.
func FuzzPayloads(f *testing.F) {
	for _, text := range payloads {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		samePayload[payload](t, text)
		samePayload[strange](t, text)
		samePayload[any](t, text)
	})
}
