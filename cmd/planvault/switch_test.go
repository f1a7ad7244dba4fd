package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/settings"
	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// runsIn notes where actions begin.
type runsIn struct {
	mu    sync.Mutex
	log   []string // "plan step account", in the order of their beginnings
	moved bool     // an action has begun in the copy
	late  []string // those that began in the vault after that
}

// host keeps an engine running on a vault until ctx ends: where it ends, it is started again.
func (r *runsIn) host(ctx context.Context, t *testing.T, name, account string, network azblob.Options, server *emulator.Server) {
	plugins := registry.Must(engine.Task("deploy", func(ctx context.Context, _ engine.Call, s task) (map[string]bool, error) {
		r.mu.Lock()
		r.log = append(r.log, s.Target+" "+account)
		if r.moved = r.moved || account == "next"; r.moved && account == "prod" {
			r.late = append(r.late, s.Target+" on "+name)
		}
		r.mu.Unlock()
		return nil, takesItsTime(ctx, s)
	}))
	v, err := azblob.NewFromConnectionString(ctx, "ci", server.ConnectionString(), plugins, network)
	if err != nil {
		t.Error(err)
		return
	}
	for ctx.Err() == nil {
		e, err := engine.New(v, engine.Options{Fleet: &fleet.Options{Name: name}, Drain: 5 * time.Second})
		if err != nil {
			t.Error(err)
			return
		}
		if err := e.Run(ctx); err != nil && !errors.Is(err, fleet.ErrSuspended) {
			t.Logf("%s: %v", name, err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(3 * time.Second):
		}
	}
}

// TestSwitchBesideEngines switches from a vault on which one node works and another one freezes, to a copy that is followed
// and on which an engine waits. The switch dies at some request, and is run again. No action begins in the vault after one
// began in the copy, and all plans end in the copy.
func TestSwitchBesideEngines(t *testing.T) {
	efforttest.NotShort(t, twoProcesses)
	for k := 1; k <= efforttest.Pick(1, 130, 400); k += efforttest.Pick(1, 16, 3) {
		synctest.Test(t, func(t *testing.T) { switchBesideEngines(t, k) })
	}
}

func switchBesideEngines(t *testing.T, k int) {
	s := newStage(t, emulator.Options{Latency: 10 * time.Millisecond})
	s.production(t)
	next := emulator.New(emulator.Options{Latency: 10 * time.Millisecond})
	s.network.(accounts)["next"] = next.Transport()
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	runs := &runsIn{}
	freeze, thaw := time.Now().Add(16*time.Second), time.Now().Add(5*time.Minute)
	network := s.server.Transport() // of a node that freezes
	network.Inject(emulator.On().Do(emulator.Before(func() {
		if time.Now().After(freeze) {
			time.Sleep(time.Until(thaw))
		}
	})))
	all.Go(func() { runs.host(ctx, t, "frozen", "prod", settings.Over(network), s.server) })
	all.Go(func() { runs.host(ctx, t, "works", "prod", settings.Over(s.server.Transport()), s.server) })
	args := []string{"--to-connection-string", loginTo(next, "next"), "--to-prefix", "ci", "--yes"}
	all.Go(func() { s.run(ctx, append([]string{"mirror", "--follow", "--every", "10s"}, args...)...) })
	time.Sleep(2 * time.Second)
	for n := range 6 {
		must(t, s.vault.Create(t.Context(), release(fmt.Sprint("release ", n), 25*time.Second, fmt.Sprint("region ", n))))
	}
	time.Sleep(14 * time.Second)
	all.Go(func() { runs.host(ctx, t, "host-4", "next", settings.Over(next.Transport()), next) })
	life, die := context.WithCancel(t.Context())
	defer die()
	mortal := s.server.Transport()
	mortal.Inject(emulator.On().Nth(k).Do(emulator.After(die)))
	dying := &stage{server: s.server, env: s.env, network: accounts{"prod": mortal, "next": next.Transport()}}
	dying.run(life, append([]string{"switch"}, args...)...)
	for tries := 0; ; tries++ {
		r := s.run(t.Context(), append([]string{"switch"}, args...)...)
		if r.code == exitDone {
			break
		}
		if !strings.Contains(r.stderr, "conflict") || tries > 20 {
			t.Fatalf("killed at %d: %+v", k, r)
		}
		time.Sleep(time.Minute)
	}
	time.Sleep(5 * time.Minute)
	runs.mu.Lock()
	defer runs.mu.Unlock()
	if len(runs.late) > 0 || !runs.moved {
		t.Errorf("killed at %d: %v began in the vault after %v", k, runs.late, runs.log)
	}
	v, err := azblob.NewFromConnectionString(t.Context(), "ci", next.ConnectionString(), nil, settings.Over(next.Transport()))
	must(t, err)
	plans, err := storage.Collect(v.List(t.Context(), 0))
	if err != nil || len(plans) != 6 {
		t.Errorf("killed at %d: %d plans, %v", k, len(plans), err)
	}
	for _, p := range plans {
		if p.State.Status != workflow.Completed {
			t.Errorf("killed at %d: plan %s is %s", k, p.Name, p.State.Status)
		}
	}
}

// TestSuspendAndResume suspends a vault on which a node works, looks at who is refused, and resumes it.
func TestSuspendAndResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		s.says(t, exitUsage, "--reason", "suspend", "--yes")
		n := s.join(t, "host-3")
		p := s.claimed(t, n, "hangs")
		r := s.must(t, "suspend", "--as", "ana", "--reason", "the account moves", "--yes")
		if !strings.Contains(r.stdout, "suspended by ana: the account moves") || !strings.Contains(r.stdout, "1 node evicted") {
			t.Errorf("%+v", r)
		}
		if now, err := s.vault.Read(t.Context(), p.ID); err != nil || now.Epoch != p.Epoch+1 {
			t.Errorf("the plan of the node that did not leave is not fenced: %+v, %v", now, err)
		}
		if _, err := fleet.Join(t.Context(), s.vault, fleet.Options{}); !errors.Is(err, fleet.ErrSuspended) || !strings.Contains(err.Error(), "ana") {
			t.Errorf("%v", err)
		}
		if r := s.run(t.Context(), "nodes"); !strings.HasPrefix(r.stderr, "planvault: the vault is suspended since 20") || !strings.HasSuffix(r.stderr, "Z by ana (the account moves): no plan goes on here; planvault resume ends this\n") {
			t.Errorf("%+v", r)
		}
		to := []string{"--to-connection-string", s.server.ConnectionString(), "--to-prefix", "copy", "--yes"}
		s.says(t, exitFailed, "the source is suspended", append([]string{"mirror", "--follow"}, to...)...)
		s.must(t, "resume", "--yes")
		s.says(t, exitUsage, "answers", append([]string{"switch", "--lost"}, to...)...)
		s.says(t, exitUsage, "--follow excludes", append([]string{"mirror", "--follow", "--deep"}, to...)...)
		ctx, stop := context.WithTimeout(t.Context(), 10*time.Minute)
		defer stop()
		r = s.run(ctx, append([]string{"mirror", "--follow", "--output", "json"}, to...)...)
		if r.code != exitDone || strings.Count(r.stdout, "\n") != 1 || !strings.Contains(r.stdout, `"copied":1`) {
			t.Errorf("a follower: %+v", r)
		}
		s.says(t, exitFailed, "planvault help resume", "resume", "--prefix", "copy", "--yes") // a copy
	})
}

// TestMovedBack gives a copy up that the engines have moved to, and opens the vault again. At no time are both open.
func TestMovedBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		s.store(t, workflow.NewV7(), workflow.NotStarted, "stays")
		to := func(prefix string) []string {
			return []string{"--to-connection-string", s.server.ConnectionString(), "--to-prefix", prefix, "--yes"}
		}
		s.must(t, "suspend", "--reason", "before the switch", "--yes")
		s.says(t, exitFailed, "has not moved to that copy", append([]string{"resume", "--moved-back"}, to("copy")...)...)
		s.must(t, append([]string{"switch"}, to("copy")...)...)
		s.says(t, exitFailed, "prefix copy", append([]string{"switch"}, to("other")...)...)
		back := append([]string{"resume", "--moved-back"}, to("copy")...)
		s.says(t, exitFailed, "is not suspended: suspend it first", back...)
		s.says(t, exitFailed, "has not moved to that copy", append([]string{"resume", "--moved-back"}, to("other")...)...)
		s.must(t, "suspend", "--prefix", "copy", "--reason", "it is too slow", "--yes")
		s.says(t, exitFailed, "its plans run in", "resume", "--yes")
		s.must(t, back...)
		s.must(t, back...)
		n, err := fleet.Join(t.Context(), s.vault, fleet.Options{})
		must(t, err)
		must(t, n.Leave(t.Context()))
		s.says(t, exitFailed, "its plans run in", "resume", "--prefix", "copy", "--yes")
		s.says(t, exitUsage, "the copy has moved itself", append([]string{"switch"}, to("copy")...)...)
	})
}

// TestSwitchThereAndBack switches to a copy that still has an open plan which was deleted in the vault, and back to a new
// prefix. A mirror that is left running from the vault does nothing any more.
func TestSwitchThereAndBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		s.store(t, workflow.NewV7(), workflow.NotStarted, "stays")
		gone := s.store(t, workflow.NewV7(), workflow.NotStarted, "gone")
		there := []string{"--to-connection-string", s.server.ConnectionString(), "--to-prefix", "copy", "--yes"}
		s.must(t, append([]string{"mirror"}, there...)...)
		if err := s.vault.Delete(t.Context(), gone.ID); err != nil {
			t.Fatal(err)
		}
		r := s.run(t.Context(), append([]string{"switch"}, there...)...)
		if _, err := fleet.Join(t.Context(), s.open(t, "copy"), fleet.Options{}); r.code != exitFailed || !strings.Contains(r.stderr, "1 open plan") || !errors.Is(err, fleet.ErrSuspended) {
			t.Errorf("a deleted plan would run: %+v; %v", r, err)
		}
		s.must(t, append([]string{"switch", "--delete"}, there...)...)
		into := there[:len(there)-1]
		s.says(t, exitFailed, "its plans run in http://blob.emulator.invalid/devstoreaccount1, prefix copy", "resume", "--yes")
		for _, command := range []string{"nodes", "stuck"} {
			if r := s.run(t.Context(), command); strings.Contains(r.stdout+r.stderr, "planvault resume") || !strings.Contains(r.stdout+r.stderr, "prefix copy") {
				t.Errorf("%s of a vault that has moved: %+v", command, r)
			}
		}
		s.says(t, exitFailed, "is not suspended", append([]string{"resume", "--moved-back", "--yes"}, into...)...)
		s.says(t, exitFailed, "it is a vault of its own now", append([]string{"mirror", "--delete"}, there...)...)
		s.says(t, exitFailed, "is no copy, and has plans", "mirror", "--delete", "--prefix", "new", "--allow-empty", "--to-connection-string", s.server.ConnectionString(), "--to-prefix", prefix, "--yes")
		back := []string{"--prefix", "copy", "--to-connection-string", s.server.ConnectionString(), "--to-prefix", "back", "--yes"}
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		s.run(ctx, append([]string{"mirror", "--follow"}, back...)...)
		s.must(t, append([]string{"switch"}, back...)...)
		n, err := fleet.Join(t.Context(), s.open(t, "back"), fleet.Options{})
		if err != nil {
			t.Fatalf("engines are to be started there: %v", err)
		}
		if err := n.Leave(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := fleet.Join(t.Context(), s.open(t, "copy"), fleet.Options{}); !errors.Is(err, fleet.ErrSuspended) {
			t.Errorf("both are open: %v", err)
		}
	})
}
