package fleet

import (
	"testing"
	"time"
	"unicode/utf8"

	"github.com/planvault/azblob/storage"
)

// FuzzCopy reads notes of copies, which may have any text.
func FuzzCopy(f *testing.F) {
	for _, text := range []string{`{"to":"west","caughtUp":"2026-11-23T06:00:00Z"}`, `{"to":7,"caughtUp":"2026-11-23T06:00:00+01:00"}`, `{"caughtUp":{}}`, `[]`, ""} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		c := copyOf(storage.Note{Text: text, Version: "1"})
		if n := utf8.RuneCountInString(c.To); n > mostName+1 || !utf8.ValidString(c.To) || c.version != "1" || c.CaughtUp.Location() != time.UTC {
			t.Errorf("%q is %+v", text, c)
		}
	})
}
