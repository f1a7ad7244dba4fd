package main

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// whenBusy returns a context that ends when clients have begun to create a number of plans with actions.
func whenBusy(t *testing.T, server *emulator.Server, plans int) context.Context {
	ctx, interrupt := context.WithCancel(t.Context())
	var mu sync.Mutex
	begun := map[string]bool{}
	server.Inject(emulator.On(emulator.PutBlob).Do(emulator.LostAnswer()).Where(func(r emulator.Request) bool {
		if rest, is := strings.CutPrefix(r.Blob, "actions/"); is {
			mu.Lock()
			defer mu.Unlock()
			if begun[rest[:36]] = true; len(begun) > plans {
				interrupt()
			}
		}
		return false // the rule only looks
	}))
	return ctx
}

// TestSoakAndChaos interrupts a soak when there were kills: the first lives of clients are shorter than their share of
// these plans. It judges what a short chaos leaves, and no times: a slow machine makes it longer.
func TestSoakAndChaos(t *testing.T) {
	for args, busy := range map[string]int{
		"-soak 1h -clients 4 -faults":                                            25,
		"-chaos 4s -interval 1s -fleet 3 -plans 16 -keys 3 -every 500ms -faults": 0,
	} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			s, server := inEmulator(t, &out, strings.Fields(args)...)
			ctx := t.Context()
			want := []string{" ended", " plans,", " created", " joined"}
			if busy > 0 {
				ctx, want = whenBusy(t, server, busy), []string{" operations", " kills", " faults"}
			}
			code := conduct(ctx, s, nil)
			t.Log(out.String())
			for _, what := range append(want, "violations: none\n", "\nPASS\n") {
				if code != exitPass || !strings.Contains(out.String(), what) {
					t.Errorf("exit code %d, and the output lacks %q", code, what)
				}
			}
		})
	}
}

// TestFindings does damage when the processes have ended. It must be found.
func TestFindings(t *testing.T) {
	remove := func(part string) func(*stage, *emulator.Server) error {
		return func(_ *stage, server *emulator.Server) error {
			for container := range server.Containers() {
				for b := range server.Blobs(container) {
					if strings.Contains(b.Name, part) {
						server.Remove(container, b.Name)
					}
				}
			}
			return nil
		}
	}
	deadNode := func(s *stage, _ *emulator.Server) error {
		_, err := s.vault.Control().AddMember(context.Background(), storage.Member{ID: workflow.NewV7(), Started: time.Now(), TTL: time.Second})
		return err
	}
	const soak, chaos = "-soak 1h -clients 3", "-chaos 1h -interval 1s -fleet 2 -plans 36000 -every 1h"
	for _, test := range []struct {
		name, args string
		damage     func(*stage, *emulator.Server) error
		want       string // a kind of finding
	}{
		{"lost plans", soak, remove(""), lost},
		{"half plans", soak, remove("actions/"), half},
		{"lost plans of a fleet", chaos, remove(""), lost},
		{"the record of a dead node", chaos, deadNode, leftOver},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			s, server := inEmulator(t, &out, strings.Fields(test.args)...)
			wait := s.wait
			s.wait = func(ctx context.Context, d time.Duration) error {
				if d < tidyAfter {
					if err := test.damage(s, server); err != nil {
						t.Error(err)
					}
				}
				return wait(ctx, d)
			}
			// Plans are left then: clients of a soak delete no recent ones.
			code := conduct(whenBusy(t, server, 5), s, nil)
			if last := lastLine(out.String()); code != exitFail || !strings.HasPrefix(last, "FAIL: "+test.args[1:5]) || !strings.Contains(last, test.want) {
				t.Errorf("exit code %d:\n%s", code, out.String())
			}
		})
	}
}

// TestProcessFails checks that a process that ends by itself fails the soak or the chaos with its error.
func TestProcessFails(t *testing.T) {
	t.Parallel()
	for who, args := range map[string]string{"soak: client": "-soak 1h -clients 2", "chaos: node": "-chaos 1h -interval 1s -fleet 2"} {
		var out strings.Builder
		s, _ := inEmulator(t, &out, strings.Fields(args)...)
		s.reach = func() (account, func() error, error) {
			return account{ConnectionString: "nonsense"}, func() error { return nil }, nil
		}
		code := conduct(t.Context(), s, nil)
		if last := lastLine(out.String()); code != exitFail || !strings.HasPrefix(last, "FAIL: "+who+" ") || !strings.Contains(last, "it ended by itself: exit status 1: worker: ") {
			t.Errorf("exit code %d, last line %q", code, last)
		}
	}
}
