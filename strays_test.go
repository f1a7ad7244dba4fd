package azblob_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/workflow/plantest"
)

// TestStraysOnAnyService checks a store on services that know where a listing should begin and on older ones. Both find the
// same strays, by as many requests.
func TestStraysOnAnyService(t *testing.T) {
	strays := []string{"0", "blocks", "notes.txt", "plans.bak", "old/1", "old/2", "old/deeper/3", "zz/1"}
	for _, names := range [][]string{nil, strays} {
		inBubbleOf(t, emulator.New(), func(t *testing.T, server *emulator.Server) {
			v := onEmulator(t, server)
			for range 30 {
				created(t, v, plantest.Full())
			}
			for c := range server.Containers() {
				for _, name := range names {
					server.Put(c, name, []byte("hello"), nil)
				}
			}
			time.Sleep(pastGrace)
			check := func(v *azblob.Vault) (found []string, requests int) {
				server.ResetRequests()
				report, err := v.Check(t.Context(), azblob.CheckOptions{})
				if err != nil {
					t.Fatal(err)
				}
				for _, p := range report.Problems {
					_, name, _ := strings.Cut(p.Blob, "/")
					found = append(found, string(p.Kind)+" "+name)
				}
				if n := stored(server); report.Blobs != n || report.Plans != 30 {
					t.Errorf("%d blobs of %d plans were looked at, %d blobs are stored", report.Blobs, report.Plans, n)
				}
				slices.Sort(found)
				return found, len(server.Requests())
			}
			var want []string
			for _, name := range names {
				want = append(want, "stray "+name)
			}
			slices.Sort(want)
			now, requests := check(v)
			if !slices.Equal(now, want) {
				t.Errorf("found %v, want %v", now, want)
			}
			old, oldRequests := check(withToken(t, server, azblob.WithTransport(startless{server.Transport()})))
			if !slices.Equal(old, want) {
				t.Errorf("where startFrom is ignored: found %d problems, want %v", len(old), want)
			}
			if oldRequests != requests {
				t.Errorf("where startFrom is ignored: %d requests, else %d", oldRequests, requests)
			}
		})
	}
}
