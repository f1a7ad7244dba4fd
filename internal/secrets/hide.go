package secrets

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/go-json-experiment/json/jsontext"
)

// Shown is what is shown in the place of a secret.
const Shown = "(secret)"

// shownJSON is Shown as JSON.
var shownJSON = jsontext.Value(strconv.Quote(Shown))

// Hide returns JSON with [Shown] in the place of the values at paths, and their texts. null stays, since it is no value. Of the
// paths, only those below root count. Names match as in encoding/json, without regard to case. JSON that can't be read is
// hidden as a whole, and ok is false.
func Hide(root string, text []byte, paths []string) (hidden []byte, values []string, ok bool) {
	var now []pattern
	for _, path := range paths {
		if p := parse(path); len(p) > 0 && p[0] == strings.TrimPrefix(root, "/") {
			now = open(now, p[1:])
		}
	}
	if len(now) == 0 {
		return text, nil, true
	}
	raw := []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.PreserveRawStrings(true)}
	var b bytes.Buffer
	h := hider{dec: jsontext.NewDecoder(bytes.NewReader(text), raw...), enc: jsontext.NewEncoder(&b, raw...)}
	err := h.value(now)
	if _, end := h.dec.ReadToken(); err != nil || end != io.EOF {
		return shownJSON, h.values, false
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), h.values, true
}

// pattern is what is left of a path.
type pattern []string

func parse(path string) pattern {
	return strings.Split(strings.TrimPrefix(path, "/"), "/")
}

var unescaping = strings.NewReplacer("~2", "*", "~1", "/", "~0", "~")

// open adds a pattern, and what is left of it if ** stands for no level.
func open(all []pattern, p pattern) []pattern {
	all = append(all, p)
	if len(p) > 0 && p[0] == anyDeep {
		all = open(all, p[1:])
	}
	return all
}

// step returns what is left of patterns below a member, or an element, which has no name.
func step(now []pattern, name *string) (next []pattern) {
	for _, p := range now {
		switch {
		case len(p) == 0:
		case p[0] == anyDeep:
			next = open(next, p)
		case p[0] == anyOne, name != nil && strings.EqualFold(unescaping.Replace(p[0]), *name):
			next = open(next, p[1:])
		}
	}
	slices.SortFunc(next, func(a, b pattern) int { return slices.Compare(a, b) })
	return slices.CompactFunc(next, func(a, b pattern) bool { return slices.Equal(a, b) })
}

// hider copies JSON.
type hider struct {
	dec    *jsontext.Decoder
	enc    *jsontext.Encoder
	values []string
}

func (h *hider) value(now []pattern) error {
	secret := slices.ContainsFunc(now, func(p pattern) bool { return len(p) == 0 })
	kind := h.dec.PeekKind()
	if secret || len(now) == 0 || kind != '{' && kind != '[' {
		text, err := h.dec.ReadValue()
		if err != nil {
			return err
		}
		if secret && kind != 'n' {
			h.values = append(h.values, texts(text)...)
			text = shownJSON
		}
		return h.enc.WriteValue(text)
	}
	if err := h.copyToken(); err != nil {
		return err
	}
	for {
		var name *string
		switch h.dec.PeekKind() {
		case '}', ']':
			return h.copyToken()
		}
		if kind == '{' {
			token, err := h.dec.ReadToken()
			if err != nil {
				return err
			}
			name = new(token.String())
			if err := h.enc.WriteToken(token); err != nil {
				return err
			}
		}
		if err := h.value(step(now, name)); err != nil {
			return err
		}
	}
}

func (h *hider) copyToken() error {
	token, err := h.dec.ReadToken()
	if err != nil {
		return err
	}
	return h.enc.WriteToken(token)
}

// texts returns the strings and numbers in a JSON value, and the names of members that are more than letters: those may be
// keys of a map, and others are fields. Of an array of bytes, it also returns the bytes.
func texts(text []byte) (all []string) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var v any
	if dec.Decode(&v) == nil {
		collect(v, &all)
	}
	return all
}

func collect(v any, into *[]string) {
	switch v := v.(type) {
	case string:
		*into = append(*into, v)
	case json.Number:
		*into = append(*into, v.String())
		if n, err := v.Float64(); err == nil { // as package fmt prints it
			*into = append(*into, fmt.Sprint(n))
		}
	case map[string]any:
		for name, e := range v {
			if strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsLetter(r) }) {
				*into = append(*into, name)
			}
			collect(e, into)
		}
	case []any:
		var b []byte
		for _, e := range v {
			collect(e, into)
			n, _ := e.(json.Number)
			if c, err := strconv.ParseUint(n.String(), 10, 8); err == nil {
				b = append(b, byte(c))
			}
		}
		if len(b) == len(v) {
			*into = append(*into, string(b))
		}
	}
}

// shortest is how many bytes a text must have to be looked for in other texts.
const shortest = 4

// Scrub returns a text with [Shown] in the place of values, in all forms in which programs usually print them. Values of less
// than four bytes stay.
func Scrub(text string, values []string) string {
	var found []string
	for _, v := range values {
		for _, form := range forms(v) {
			if strings.Contains(text, form) {
				found = append(found, form)
			}
		}
	}
	slices.SortFunc(found, func(a, b string) int { return len(b) - len(a) }) // the longest wins
	var pairs []string
	for _, form := range found {
		pairs = append(pairs, form, Shown)
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

// forms returns a text as programs print it. What is in base64 may be bytes.
func forms(v string) []string {
	if len(v) < shortest {
		return nil
	}
	all := printed(v)
	if strings.ContainsAny(v, "\n\r") { // another program may have joined, cut or indented its lines
		for line := range strings.Lines(v) {
			all = append(all, printed(strings.TrimSpace(line))...)
		}
	}
	for _, coding := range []*base64.Encoding{base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding} {
		if b, err := coding.DecodeString(v); err == nil && len(b) >= shortest {
			all = append(all, printed(string(b))...)
		}
	}
	return all
}

func printed(v string) []string {
	quoted, ascii := strconv.Quote(v), strconv.QuoteToASCII(v)
	escaped, _ := json.Marshal(v)
	all := []string{
		v, quoted[1 : len(quoted)-1], ascii[1 : len(ascii)-1], string(escaped[1 : len(escaped)-1]), html.EscapeString(v),
		base64.RawStdEncoding.EncodeToString([]byte(v)), base64.RawURLEncoding.EncodeToString([]byte(v)),
		hex.EncodeToString([]byte(v)), strings.ToUpper(hex.EncodeToString([]byte(v))), strings.Trim(fmt.Sprint([]byte(v)), "[]"),
	}
	for _, query := range []string{url.QueryEscape(v), url.PathEscape(v)} {
		all = append(all, query, lowerPercent(query))
	}
	for before := range 3 { // as part of a longer text, such as "user:password"
		first, end := (8*before+5)/6, 8*(before+len(v))/6
		for _, coding := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			all = append(all, coding.EncodeToString(append(make([]byte, before), v...))[first:end])
		}
	}
	return all
}

// lowerPercent returns a text of a URL with its hexadecimal digits in lower case.
func lowerPercent(text string) string {
	parts := strings.Split(text, "%")
	for i := 1; i < len(parts); i++ {
		parts[i] = strings.ToLower(parts[i][:2]) + parts[i][2:]
	}
	return strings.Join(parts, "%")
}
