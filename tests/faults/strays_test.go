package faults_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow/plantest"

	"github.com/planvault/azblob/tests/vaulttest"
)

// TestStraysOnAnyService checks a store on services that support startFrom and on older ones. Both find the
// same strays with the same number of requests.
func TestStraysOnAnyService(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	strays := []string{"0", "blocks", "notes.txt", "plans.bak", "old/1", "old/2", "old/deeper/3", "zz/1"}
	for _, names := range [][]string{nil, strays} {
		vaulttest.InBubbleOf(t, emulator.New(), func(t *testing.T, server *emulator.Server) {
			v := vaulttest.OnEmulator(t, server)
			for range 30 {
				vaulttest.Created(t, v, vaulttest.EachKind())
			}
			for c := range server.Containers() {
				for _, name := range names {
					server.Put(c, name, []byte("hello"), nil)
				}
			}
			time.Sleep(vaulttest.PastGrace)
			check := func(v *azblob.Vault) (found []string, requests int) {
				server.ResetRequests()
				report, err := v.Check(t.Context(), azblob.CheckOptions{})
				vaulttest.Must(t, err)
				for _, p := range report.Problems {
					_, name, _ := strings.Cut(p.Blob, "/")
					found = append(found, string(p.Kind)+" "+name)
				}
				if n := vaulttest.Stored(server); report.Blobs != n || report.Plans != 30 {
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
			old, oldRequests := check(vaulttest.WithToken(t, server, azblob.WithTransport(vaulttest.Startless(server.Transport()))))
			if !slices.Equal(old, want) {
				t.Errorf("where startFrom is ignored: found %d problems, want %v", len(old), want)
			}
			if oldRequests != requests {
				t.Errorf("where startFrom is ignored: %d requests, else %d", oldRequests, requests)
			}
		})
	}
}

// TestListingsThatAreRefused refuses each listing of a Check and of a thorough Recover in turn, the later pages of a
// directory too. Neither takes the first page for everything.
func TestListingsThatAreRefused(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	vaulttest.InBubbleOf(t, emulator.New(emulator.WithPageLimit(3)), func(t *testing.T, server *emulator.Server) {
		for range 4 {
			vaulttest.Created(t, vaulttest.OnEmulator(t, server), plantest.Full())
		}
		server.Put(vaulttest.ContainerOf(time.Now().UTC()), "old/1", []byte("hello"), nil)
		time.Sleep(vaulttest.PastGrace)
		for name, call := range map[string]func(v *azblob.Vault) error{
			"Check": func(v *azblob.Vault) error { return vaulttest.ErrOf(v.Check(t.Context(), azblob.CheckOptions{})) },
			"a thorough Recover": func(v *azblob.Vault) error {
				return vaulttest.ErrOf(v.Repair(t.Context(), azblob.RepairOptions{Thorough: true}))
			},
		} {
			all := emulator.On(emulator.ListBlobs).Do(emulator.Duplicate(0)) // harmless
			vaulttest.Must(t, call(vaulttest.Faulty(t, server, all)))
			if all.Seen() < 30 {
				t.Fatalf("%s: %d listings", name, all.Seen())
			}
			for n := range all.Seen() {
				v := vaulttest.Faulty(t, server, emulator.On(emulator.ListBlobs).Nth(n+1).Do(emulator.Answer(403, "AuthorizationFailure")))
				if err := call(v); !errors.Is(err, storage.ErrDenied) {
					t.Errorf("%s: listing %d of %d is refused: %v", name, n+1, all.Seen(), err)
				}
			}
		}
	})
}
