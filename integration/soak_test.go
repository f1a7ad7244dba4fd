package main

import (
	"context"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/planvault/azblob/emulator"
)

// soaked runs a soak. Its clients are processes of the test binary.
func soaked(ctx context.Context, t *testing.T, target *target, args ...string) (code int, f figures, out string) {
	t.Helper()
	code, s, out := played(ctx, t, target, (*stage).playSoak, args...)
	if s.soaked != nil {
		f = *s.soaked
	}
	return code, f, out
}

// played plays what needs processes, and returns the stage with its figures.
func played(ctx context.Context, t *testing.T, target *target, play func(*stage, context.Context) error, args ...string) (code int, s *stage, out string) {
	t.Helper()
	cfg, err := parse(args, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	var w strings.Builder
	s = newStage(cfg, target, &people{w: &w})
	err = play(s, ctx)
	s.out.end(s.verdict(err))
	if err != nil {
		code = exitFail
	}
	return code, s, w.String()
}

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

// TestSoak interrupts a soak when there were kills: the first lives of clients are shorter than their share of
// these plans.
func TestSoak(t *testing.T) {
	t.Parallel()
	target, server := inEmulator(t)
	code, f, out := soaked(whenBusy(t, server, 25), t, target, "-soak", "1h", "-clients", "4", "-faults")
	t.Log(out)
	if code != exitPass || lastLine(out) != "PASS" {
		t.Error("the soak fails")
	}
	if f.Operations == 0 || f.Kills == 0 || f.Faults == 0 {
		t.Errorf("no operations, kills or faults: %v", f)
	}
}

// TestSoakFinds interrupts a soak and does damage before the vault is checked.
func TestSoakFinds(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		remove string // a part of the names of the blobs to remove; "" for all
		put    string // a blob to add
		want   func(f figures) int
	}{
		{"lost plans", "", "", func(f figures) int { return f.Lost }},
		{"half plans", "actions/", "", func(f figures) int { return f.Half }},
		{"strays", "nothing", "what/is/this", func(f figures) int { return f.LeftOver }},
	} {
		t.Run(test.name, func(t *testing.T) {
			target, server := inEmulator(t)
			wait := target.wait
			target.wait = func(ctx context.Context, d time.Duration) error {
				for container := range server.Containers() {
					for b := range server.Blobs(container) {
						if strings.Contains(b.Name, test.remove) {
							server.Remove(container, b.Name)
						}
					}
					if test.put != "" {
						server.Put(container, test.put, nil, nil)
					}
				}
				return wait(ctx, d)
			}
			// Plans are left then: clients delete no recent ones.
			code, f, out := soaked(whenBusy(t, server, 5), t, target, "-soak", "1h", "-clients", "2")
			if code != exitFail || !strings.HasPrefix(lastLine(out), "FAIL: soak: ") || test.want(f) == 0 || len(f.Findings) == 0 {
				t.Errorf("exit code %d:\n%s", code, out)
			}
		})
	}
}

// TestSoakClientFails checks that a client that ends by itself fails the soak with its error.
func TestSoakClientFails(t *testing.T) {
	t.Parallel()
	target, _ := inEmulator(t)
	target.reach = reachedBy(order{ConnectionString: "nonsense"})
	code, _, out := soaked(t.Context(), t, target, "-soak", "1h", "-clients", "2")
	if last := lastLine(out); code != exitFail || !strings.HasPrefix(last, "FAIL: client ") || !strings.Contains(last, "it ended by itself: exit status 1: soak client: ") {
		t.Errorf("exit code %d, last line %q", code, last)
	}
}

// TestSoakClientEnds checks that a client ends when its soak does.
func TestSoakClientEnds(t *testing.T) {
	t.Parallel()
	_, server := inEmulator(t)
	l, err := server.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	text := `{"connectionString":"` + l.ConnectionString() + `","prefix":"mine","grace":5000000000}`
	var said strings.Builder
	if err := soakClient(strings.NewReader(text), &said); err != nil {
		t.Error(err)
	}
	if !strings.HasPrefix(said.String(), `{"op":"recovery"`) || strings.Count(said.String(), "\n")%2 != 0 {
		t.Errorf("it said %q", said.String())
	}
	open, end := io.Pipe()
	defer func() { _ = end.Close() }()
	deaf, pipe := io.Pipe()
	_ = deaf.Close()
	if err := soakClient(io.MultiReader(strings.NewReader(text), open), pipe); err == nil {
		t.Error("the client continues after its output is closed")
	}
}
