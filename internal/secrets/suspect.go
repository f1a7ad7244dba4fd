package secrets

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/planvault/azblob/plugins"
)

// The names that look like those of secrets: a word of them, or words next to each other, also in one word. Names that end in
// one of the last list tell of a secret, and are none.
var (
	secretWords = []string{
		"password", "passwords", "passwd", "passphrase", "pwd", "secret", "secrets", "token", "tokens", "credential", "credentials", "creds", "sas",
	}
	secretPhrases = []string{
		"api key", "access key", "account key", "private key", "shared key", "storage key", "master key", "signing key", "encryption key",
		"connection string", "conn string", "connection str", "conn str",
	}
	aboutSecrets = []string{"name", "id", "ref", "url", "uri", "type", "endpoint", "path", "version", "count", "expiry", "expires", "at"}
)

// Suspicious reports whether a name looks like that of a secret. It may be in any case, or have blanks and signs in it.
func Suspicious(name string) bool {
	words := wordsOf(name)
	if len(words) == 0 || slices.Contains(aboutSecrets, words[len(words)-1]) {
		return false
	}
	for i, word := range words {
		next := ""
		if i+1 < len(words) {
			next = words[i+1]
		}
		if slices.Contains(secretWords, word) || slices.ContainsFunc(secretPhrases, func(phrase string) bool {
			return phrase == word+" "+next || strings.Contains(word, strings.ReplaceAll(phrase, " ", ""))
		}) {
			return true
		}
	}
	return false
}

// wordsOf splits a name such as apiKey, API_KEY or APIKeyFile into words in lower case.
func wordsOf(name string) (words []string) {
	runes := []rune(name)
	start := 0
	cut := func(end int) {
		if end > start {
			words = append(words, strings.ToLower(string(runes[start:end])))
		}
	}
	for i, r := range runes {
		switch {
		case !unicode.IsLetter(r) && !unicode.IsDigit(r):
			cut(i)
			start = i + 1
		case i > start && unicode.IsUpper(r) && (!unicode.IsUpper(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1])):
			cut(i)
			start = i
		}
	}
	cut(len(runes))
	return words
}

// Untagged returns the paths, each after root and sorted, of the fields of a type that may hold a text, whose names are
// [Suspicious], and which have no tag.
func Untagged(root string, t reflect.Type) []string {
	if t == nil {
		return nil
	}
	var paths [][]string
	untagged(t, []string{strings.TrimPrefix(root, "/")}, map[reflect.Type]bool{}, &paths)
	return joined(paths)
}

func untagged(t reflect.Type, at []string, seen map[reflect.Type]bool, paths *[][]string) {
	switch t.Kind() {
	case reflect.Pointer:
		untagged(t.Elem(), at, seen, paths)
	case reflect.Slice, reflect.Array, reflect.Map:
		untagged(t.Elem(), append(slices.Clip(at), anyOne), seen, paths)
	case reflect.Struct:
		if seen[t] || plugins.WritesItself(t) {
			return
		}
		seen[t] = true
		defer delete(seen, t)
		for field := range t.Fields() {
			m := memberOf(field)
			_, tagged := field.Tag.Lookup(Tag)
			below := at
			if !m.embedded {
				below = append(slices.Clip(at), m.token)
			}
			switch {
			case tagged, m.absent:
			case !m.embedded && holdsText(field.Type) && (Suspicious(field.Name) || Suspicious(unescaping.Replace(m.token))):
				*paths = append(*paths, below)
			default:
				untagged(field.Type, below, seen, paths)
			}
		}
	}
}

// holdsText reports whether a value of a type may be a text, or a list or a map of texts.
func holdsText(t reflect.Type) bool {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return false
	case t.Kind() == reflect.String, t.Kind() == reflect.Interface, t.Kind() == reflect.Uint8, plugins.WritesItself(t):
		return true
	}
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		return holdsText(t.Elem())
	}
	return false
}

// Suspects returns the paths, each after root and sorted, of the members of JSON that have a text and a [Suspicious] name.
// What [Hide] has hidden is no suspect.
func Suspects(root string, text []byte) []string {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var v any
	if dec.Decode(&v) != nil {
		return nil
	}
	var paths [][]string
	suspects(v, false, []string{strings.TrimPrefix(root, "/")}, &paths)
	return joined(paths)
}

func suspects(v any, named bool, at []string, paths *[][]string) {
	switch v := v.(type) {
	case string:
		if named && v != "" && v != Shown {
			*paths = append(*paths, at)
		}
	case []any:
		for _, e := range v {
			suspects(e, named, append(slices.Clip(at), anyOne), paths)
		}
	case map[string]any:
		for name, e := range v {
			suspects(e, Suspicious(name), append(slices.Clip(at), escape(name)), paths)
		}
	}
}
