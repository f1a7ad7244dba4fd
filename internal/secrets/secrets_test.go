package secrets_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/planvault/azblob/internal/secrets"
	"github.com/planvault/azblob/workflow"
)

const canary = `Kanari "ö" <&> 0123`

type login struct {
	User     string
	Password string `json:"password,omitempty" vault:"secret"`
}

type inner struct {
	Token []byte `vault:"secret"`
	Plain int
}

type lists struct {
	Hosts  []login
	ByName map[string]*login
	Two    [2]login
	Any    any
}

type node struct {
	Key      string `vault:"secret"`
	Name     string
	Next     *node
	Children map[string]node
}

type loose struct {
	Key  string `vault:"secret"`
	Next any
}

// sealed writes itself, and says nothing of its fields.
type sealed struct {
	a any
}

func (s sealed) MarshalJSON() ([]byte, error) { return json.Marshal([]any{s.a}) }

type ownText struct {
	hidden string `vault:"secret"`
	self   *ownText
}

func (o ownText) MarshalText() ([]byte, error) { return []byte("text:" + o.hidden), nil }
func (o *ownText) UnmarshalText(text []byte) error {
	o.hidden = strings.TrimPrefix(string(text), "text:")
	return nil
}

type odd struct {
	Dotted string `json:"a/b~c*d" vault:"secret"`
	Quoted string `json:"'x'" vault:"secret"`
	Absent string `json:"-" vault:"secret"`
	//lint:ignore SA5008 this is how encoding/json names a member "-"
	Dash  string            `json:"-," vault:"secret"`
	Extra map[string]string `json:",inline" vault:"secret"`
}

type all struct {
	inner `vault:"secret"`
	Last  string
}

// TestFind checks where the secrets of a type are, and that Hide finds all of them in the JSON of a value.
func TestFind(t *testing.T) {
	cyclic := &lists{}
	cyclic.Any = []any{cyclic, login{Password: canary}}
	deep := any(login{Password: canary})
	for range 100 {
		deep = []any{deep}
	}
	for name, test := range map[string]struct {
		v     any
		empty any
		want  []string
	}{
		"nothing":      {v: map[string]int{"password": 1}},
		"a field":      {v: login{"u", canary}, want: []string{"/req/password"}},
		"a type alone": {v: json.RawMessage(`{"User":"u"}`), empty: login{}, want: []string{"/req/password"}},
		"another case": {v: json.RawMessage(`{"PASSWORD":"` + `Kanari` + `"}`), empty: &login{}, want: []string{"/req/password"}},
		"twice":        {v: json.RawMessage(`{"password":"Kanari","password":"Kanari"}`), empty: &login{}, want: []string{"/req/password"}},
		"embedded":     {v: struct{ *inner }{&inner{Token: []byte(canary)}}, want: []string{"/req/Token"}},
		"embedded with a name": {v: struct {
			inner `json:"in"`
		}{inner{Token: []byte(canary)}}, want: []string{"/req/in/Token"}},
		"all that is embedded": {v: all{inner: inner{Token: []byte(canary)}}, want: []string{"/req/Plain", "/req/Token"}},
		"lists, maps and arrays": {
			v:    lists{Hosts: []login{{"u", canary}}, ByName: map[string]*login{"a": nil, "*": {"u", canary}}, Two: [2]login{{}, {"u", canary}}},
			want: []string{"/req/ByName/*/password", "/req/Hosts/*/password", "/req/Two/*/password"},
		},
		"in an any":        {v: lists{Any: map[string]any{"x": []any{1, &login{"u", canary}}}}, want: []string{"/req/Any/*/*/password", "/req/ByName/*/password", "/req/Hosts/*/password", "/req/Two/*/password"}},
		"any alone":        {v: []any{3, struct{ X login }{login{"u", canary}}}, want: []string{"/req/*/X/password"}},
		"a type in itself": {v: node{Next: &node{Next: &node{Key: canary}}, Children: map[string]node{"a": {Next: &node{Key: canary}}}}, want: []string{"/req/**/Key"}},
		"an any in itself": {v: struct{ L loose }{loose{Next: loose{Next: []any{loose{Key: canary}, login{"u", canary}}}}}, want: []string{"/req/L/**/Key", "/req/L/**/Next/*/password"}},
		"a secret any": {v: struct {
			A any `vault:"secret"`
		}{map[string]any{"k": []string{canary}}}, want: []string{"/req/A"}},
		"a secret map": {v: struct {
			A map[string]string `vault:"secret"`
		}{map[string]string{canary: canary}}, want: []string{"/req/A"}},
		"a secret that writes itself": {v: struct {
			A sealed `vault:"secret"`
		}{sealed{canary}}, want: []string{"/req/A"}},
		"what writes itself":    {v: struct{ A sealed }{sealed{login{"u", canary}}}, want: []string{"/req/A"}},
		"writes itself, tagged": {v: []*ownText{{hidden: canary}}, want: []string{"/req/*"}},
		"as a whole":            {v: &ownText{hidden: canary, self: &ownText{}}, want: []string{"/req"}},
		"odd names":             {v: odd{canary, canary, canary, canary, map[string]string{canary: canary}}, want: []string{"/req/*", "/req/-", "/req/a~1b~0c~2d"}},
		"deep":                  {v: deep, want: []string{"/req" + strings.Repeat("/*", 31)}},
	} {
		got, err := secrets.Find("/req", test.v, test.empty)
		if err != nil || !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, %v; want %q", name, got, err, test.want)
		}
		text, err := workflow.MarshalValue(test.v)
		if err != nil {
			t.Fatal(name, err)
		}
		shown, values, ok := secrets.Hide("/req", text, got)
		if !ok || !json.Valid(shown) || strings.Contains(string(shown), "Kanari") || strings.Contains(string(shown), "S2FuYXJp") {
			t.Errorf("%s: %s is shown as %s", name, text, shown)
		}
		if whole := strings.Contains(string(text), "anari"); whole && !slices.ContainsFunc(values, func(v string) bool { return strings.Contains(v, "Kanari") }) {
			t.Errorf("%s: the values are %q", name, values)
		}
	}
	if _, err := secrets.Find("/req", cyclic, nil); err != nil { // it ends
		t.Error(err)
	}
}

// TestFindKeepsTheRest checks that what is not secret is shown.
func TestFindKeepsTheRest(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{`{"User": "u", "password": "x", "n": [1.50, {"password":"not this one"}]}`, `{"User":"u","password":"(secret)","n":[1.50,{"password":"not this one"}]}`},
		{`{"password": null}`, `{"password":null}`},
		{`{"password": ""}`, `{"password":"(secret)"}`},
		{`{"password": {"a": 1}}`, `{"password":"(secret)"}`},
		{`"` + "\xff" + `"`, `"(secret)"`},
		{`{"password"`, `"(secret)"`},
	} {
		if got, _, _ := secrets.Hide("/req", []byte(test.text), []string{"/req/password", "/resp/User"}); string(got) != test.want {
			t.Errorf("%s is shown as %s, not %s", test.text, got, test.want)
		}
	}
}

func TestWrongTag(t *testing.T) {
	type typo struct {
		A string `vault:"secrt"`
	}
	for name, v := range map[string]any{
		"a field": typo{}, "below": map[string][]*typo{}, "in an any": []any{typo{}}, "in what writes itself": []any{sealed{typo{}}},
		"unexported": struct {
			a string `vault:""`
		}{},
	} {
		if _, err := secrets.Find("/req", v, nil); err == nil || !strings.Contains(err.Error(), `vault:"secret"`) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := secrets.Find("/req", nil, typo{}); err == nil {
		t.Error("a type alone: no error")
	}
}

func TestMerge(t *testing.T) {
	a := []string{"/req/b"}
	if got := secrets.Merge(a, []string{"/req/a", "/req/b"}); !slices.Equal(got, []string{"/req/a", "/req/b"}) || a[0] != "/req/b" {
		t.Errorf("%q", got)
	}
	if got := secrets.Merge(a, a[:1]); &got[0] != &a[0] {
		t.Error("what adds nothing makes a copy")
	}
}

// TestScrub checks that texts do not quote secrets in the forms in which programs print them.
func TestScrub(t *testing.T) {
	text, _ := json.Marshal(map[string]any{"s": canary, "b": []byte(canary), "n": 123456, "a": [4]byte{'a', 'b', 'c', 'd'}, "short": "abc"})
	_, values, _ := secrets.Hide("/req", text, []string{"/req"})
	quoted, _ := json.Marshal(canary)
	for _, text := range []string{
		canary, fmt.Sprintf("%q", canary), fmt.Sprintf("%+q", canary), string(quoted), fmt.Sprintf("%x and %X", canary, canary), fmt.Sprint([]byte(canary)),
		"a=" + canary + canary, "id 123456", "%v of abcd", "S2FuYXJpICLDtiIgPCY+IDAxMjM=", "Kanari+%22%C3%B6%22+%3C%26%3E+0123", "Kanari%20%22%C3%B6%22%20%3C&%3E%200123",
	} {
		got := secrets.Scrub(text, values)
		if !strings.Contains(got, "(secret)") || strings.Contains(got, "Kanari") || strings.ContainsAny(got, "3456") || strings.Contains(got, "abcd") {
			t.Errorf("%s is left as %s", text, got)
		}
	}
	if got := secrets.Scrub("the key first second", []string{"first\nsecond\n"}); got != "the key (secret) (secret)" {
		t.Errorf("a secret of two lines: %s", got)
	}
	if got := secrets.Scrub("the abc of disks", values); got != "the abc of disks" {
		t.Errorf("a secret of three bytes: %s", got)
	}
	if got := secrets.Scrub("tokens: abcdef, abcd", []string{"abcd", "abcdef"}); got != "tokens: (secret), (secret)" {
		t.Errorf("a secret in another one: %s", got)
	}
	_, values, _ = secrets.Hide("/req", []byte(`{"sk_1":{"User":"pass/word"},"n":123456789012}`), []string{"/req"})
	for text, want := range map[string]string{
		"Basic YTpwYXNzL3dvcmQ=": "Basic YTp(secret)Q=", "Basic YWI6cGFzcy93b3Jk": "Basic YWI6(secret)", "Basic YWJjOnBhc3Mvd29yZDox": "Basic YWJjOn(secret)Dox", // a:pass/word, ab:…, abc:…:1
		"map[sk_1:x]": "map[(secret):x]", "User": "User", "1.23456789012e+11": "(secret)", "pass%2fword": "(secret)",
	} {
		if got := secrets.Scrub(text, values); got != want {
			t.Errorf("%s is left as %s, not %s", text, got, want)
		}
	}
	if got := secrets.Scrub("a &lt;tag&gt;", []string{"<tag>"}); got != "a (secret)" {
		t.Errorf("a secret in HTML: %s", got)
	}
}

func FuzzHide(f *testing.F) {
	f.Add(`{"a":[{"b":1}]}`, "/req/a/*/b")
	f.Add(`[[["x"]]]`, "/req/**/x")
	f.Fuzz(func(t *testing.T, text, path string) {
		shown, _, ok := secrets.Hide("/req", []byte(text), []string{path})
		if changed := !reflect.DeepEqual(shown, []byte(text)); changed && !json.Valid(shown) || ok && changed && !json.Valid([]byte(text)) {
			t.Errorf("%q with %q becomes %q", text, path, shown)
		}
	})
}
