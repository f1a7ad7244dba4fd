package emulator_test

import (
	"testing"

	"github.com/planvault/azblob/emulator"
)

// TestSecondary reads from the secondary of an account, which has what was stored at the last Replicate, and
// can't be written.
func TestSecondary(t *testing.T) {
	for _, url := range []string{pathStyle + "-secondary", "https://" + emulator.DefaultAccount + "-secondary.blob.core.windows.net"} {
		s := emulator.New(emulator.Options{})
		s.Put("plans", "a", []byte("old"), nil)
		want := func(line, outcome, body string) {
			t.Helper()
			e := inProcess(s)
			e.url = url
			r, err := parse(newMemory("plans"), line).send(t.Context(), e, inEmulator)
			must(t, err)
			got := (&exchange{reply: [2]*reply{inEmulator: r}}).outcome(inEmulator)
			if got != outcome || body != "" && string(r.body) != body {
				t.Errorf("%s, %s: %s, %s", url, line, got, r.body)
			}
		}
		const refused = "403 InsufficientAccountPermissions"
		want("get /plans/a", refused, "") // there is no secondary yet
		s.Replicate()
		s.Put("plans", "a", []byte("new"), nil)
		s.Put("plans", "b", nil, nil)
		want("get /plans/a", "200", "old")
		want("get /plans/b", "404 BlobNotFound", "")
		want("put /plans/c", refused, "")
		want("create /new", refused, "")
		if s.Len("plans") != 2 {
			t.Error("a write took effect")
		}
		s.Replicate()
		want("get /plans/a", "200", "new")
	}
}
