package main

import (
	"context"
	"flag"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/planvault/azblob/emulator"
)

var soakAzurite = flag.Duration("soak.azurite", 0, "how long TestSoak runs on Azurite; 0 skips it")

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

// onTargets runs a test on the emulator, and on Azurite if a flag says for how long.
func onTargets(t *testing.T, emulated, azurite time.Duration, run func(t *testing.T, target *target, d time.Duration)) {
	for name, open := range map[string]func(t *testing.T) (*target, time.Duration){
		"emulator": func(t *testing.T) (*target, time.Duration) {
			target, _ := inEmulator(t)
			return target, emulated
		},
		"azurite": func(t *testing.T) (*target, time.Duration) {
			if azurite == 0 {
				t.Skip("-soak.azurite or -chaos.azurite, which says for how long, is not set")
			}
			target, err := onAzurite(t.Context(), t.Output())
			if err != nil {
				t.Fatal(err)
			}
			return target, azurite
		},
	} {
		t.Run(name, func(t *testing.T) {
			target, d := open(t)
			defer func() {
				if err := target.close(); err != nil {
					t.Error(err)
				}
			}()
			run(t, target, d)
		})
	}
}

func TestSoak(t *testing.T) {
	t.Parallel()
	onTargets(t, 6*time.Second, *soakAzurite, func(t *testing.T, target *target, d time.Duration) {
		code, f, out := soaked(t.Context(), t, target, "-soak", d.String(), "-clients", "4", "-faults")
		t.Log(out)
		if code != exitPass || lastLine(out) != "PASS" {
			t.Error("the soak fails")
		}
		if f.Operations == 0 || f.Kills == 0 || f.Requests > 1000 && f.Faults == 0 {
			t.Errorf("no operations, kills or faults: %v", f)
		}
	})
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
			ctx, interrupt := context.WithCancel(t.Context())
			reach := target.reach
			target.reach = func() (order, func() error, error) {
				o, end, err := reach()
				// Plans are left then: clients delete no recent ones.
				go func() {
					for ctx.Err() == nil && plansIn(server) < 5 {
						time.Sleep(10 * time.Millisecond)
					}
					interrupt()
				}()
				return o, end, err
			}
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
			code, f, out := soaked(ctx, t, target, "-soak", "1h", "-clients", "2")
			if code != exitFail || !strings.HasPrefix(lastLine(out), "FAIL: soak: ") || test.want(f) == 0 || len(f.Findings) == 0 {
				t.Errorf("exit code %d:\n%s", code, out)
			}
		})
	}
}

// plansIn counts the plans with actions.
func plansIn(server *emulator.Server) int {
	busy := map[string]bool{}
	n := 0
	for container := range server.Containers() {
		for b := range server.Blobs(container) { // sorted: actions come before plans
			dir, rest, _ := strings.Cut(b.Name, "/")
			switch id := rest[:min(len(rest), 36)]; {
			case dir == "actions":
				busy[id] = true
			case strings.HasSuffix(rest, "-object.json") && busy[id]:
				n++
			}
		}
	}
	return n
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
