package main

import (
	"context"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// played plays what needs processes, which are those of the test binary, and returns the stage with its figures.
func played(ctx context.Context, t *testing.T, target *target, args ...string) (code int, s *stage, out string) {
	t.Helper()
	cfg, err := parse(args, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	var w strings.Builder
	s = newStage(cfg, target, &people{w: &w})
	play := s.playSoak
	if cfg.chaos > 0 {
		play = s.playChaos
	}
	err = play(ctx)
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
	code, s, out := played(whenBusy(t, server, 25), t, target, "-soak", "1h", "-clients", "4", "-faults")
	t.Log(out)
	if code != exitPass || lastLine(out) != "PASS" {
		t.Error("the soak fails")
	}
	if f := s.soaked; f.Operations == 0 || f.Kills == 0 || f.Faults == 0 {
		t.Errorf("no operations, kills or faults: %v", f)
	}
}

// TestChaos judges what a short chaos leaves, and no times: a slow machine makes it longer.
func TestChaos(t *testing.T) {
	t.Parallel()
	target, _ := inEmulator(t)
	code, s, out := played(t.Context(), t, target, "-chaos", "4s", "-interval", "1s", "-fleet", "3", "-plans", "16", "-every", "500ms", "-faults")
	t.Log(out)
	if code != exitPass || lastLine(out) != "PASS" {
		t.Error("the chaos fails")
	}
	if f := s.chaosed; f.Kills+f.Freezes+f.Leaves == 0 || f.Requests == 0 || f.Ended != f.Plans {
		t.Errorf("nothing happened: %v", f)
	}
}

// TestDamageIsFound interrupts a soak and a chaos, and does damage before the vault is checked.
func TestDamageIsFound(t *testing.T) {
	t.Parallel()
	soak := []string{"-soak", "1h", "-clients", "2"}
	chaos := []string{"-chaos", "1h", "-interval", "1s", "-fleet", "2", "-plans", "36000", "-every", "1h"}
	remove := func(part string) func(*testing.T, *target, *emulator.Server) {
		return func(_ *testing.T, _ *target, server *emulator.Server) {
			for container := range server.Containers() {
				for b := range server.Blobs(container) {
					if strings.Contains(b.Name, part) {
						server.Remove(container, b.Name)
					}
				}
			}
		}
	}
	stray := func(_ *testing.T, _ *target, server *emulator.Server) {
		for container := range server.Containers() {
			server.Put(container, "what/is/this", nil, nil)
		}
	}
	deadNode := func(t *testing.T, target *target, _ *emulator.Server) {
		v, err := target.dial(t.Context(), "mine")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = v.Close(t.Context()) }()
		if _, err := v.AddMember(t.Context(), storage.Member{ID: workflow.NewV7(), Started: time.Now(), TTL: time.Second}); err != nil {
			t.Error(err)
		}
	}
	for _, test := range []struct {
		name   string
		args   []string
		damage func(*testing.T, *target, *emulator.Server)
		want   string // a kind of finding
	}{
		{"soak, lost plans", soak, remove(""), lost},
		{"soak, half plans", soak, remove("actions/"), half},
		{"soak, strays", soak, stray, leftOver},
		{"chaos, lost plans", chaos, remove(""), lost},
		{"chaos, the record of a dead node", chaos, deadNode, leftOver},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			target, server := inEmulator(t)
			wait := target.wait
			target.wait = func(ctx context.Context, d time.Duration) error {
				if d < tidyAfter { // the processes have ended
					test.damage(t, target, server)
				}
				return wait(ctx, d)
			}
			// Plans are left then: clients of a soak delete no recent ones.
			code, s, out := played(whenBusy(t, server, 5), t, target, append([]string{"-prefix", "mine"}, test.args...)...)
			if code != exitFail || !strings.HasPrefix(lastLine(out), "FAIL: "+test.args[0][1:]+": ") {
				t.Fatalf("exit code %d:\n%s", code, out)
			}
			var f findings
			if s.soaked != nil {
				f = s.soaked.findings
			} else {
				f = s.chaosed.findings
			}
			if f.Violations[test.want] == 0 || len(f.Findings) == 0 {
				t.Errorf("%+v", f)
			}
		})
	}
}

// TestProcessFails checks that a process that ends by itself fails the soak or the chaos with its error.
func TestProcessFails(t *testing.T) {
	t.Parallel()
	for who, args := range map[string][]string{"client": {"-soak", "1h", "-clients", "2"}, "node": {"-chaos", "1h", "-interval", "1s", "-fleet", "2"}} {
		target, _ := inEmulator(t)
		target.reach = reachedBy(order{ConnectionString: "nonsense"})
		code, _, out := played(t.Context(), t, target, args...)
		if last := lastLine(out); code != exitFail || !strings.HasPrefix(last, "FAIL: "+who+" ") || !strings.Contains(last, "it ended by itself: exit status 1: soak client: ") {
			t.Errorf("exit code %d, last line %q", code, last)
		}
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
