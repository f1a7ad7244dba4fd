package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/cmd/planvault/internal/sample"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/internal/settings"
	"github.com/planvault/azblob/internal/sleep"
	"github.com/planvault/azblob/internal/vaulttest"
	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/retention"
	"github.com/planvault/azblob/workflow"
)

// scenes prepare the vaults of the pages.
var scenes = map[string]func(t *testing.T, s *stage){
	"sample": func(t *testing.T, s *stage) {
		s.plugins = nil
		if _, err := sample.Store(t.Context(), s.open(t, prefix), time.Now()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second) // node b falls silent
	},
	"alone":        sceneAlone,
	"hanging":      sceneHanging,
	"dead":         sceneDead,
	"nobody":       sceneNobody,
	"turns":        sceneTurns,
	"many":         sceneMany,
	"corrupt":      sceneCorrupt,
	"deleted":      sceneDeleted,
	"failed":       sceneFailed,
	"year":         sceneYear,
	"policy":       scenePolicy,
	"move":         func(t *testing.T, s *stage) { s.followed(t) },
	"role":         sceneRole,
	"fleet":        sceneFleet,
	"ended":        sceneEnded,
	"damaged":      damage,
	"denied-reads": sceneDenied(emulator.GetBlob),
	"denied-lists": sceneDenied(emulator.ListBlobs),
	"lost":         sceneLost,
	"outage": func(t *testing.T, s *stage) { // nothing answers at the account
		s.production(t)
		s.network = fails(errors.New("no route to host"))
	},
	"away": sceneAway,
}

// accounts are the accounts of a scene by their names. A server knows none of these names, only its own.
type accounts map[string]policy.Transporter

func (a accounts) Do(req *http.Request) (*http.Response, error) {
	for name, account := range a {
		if host, ok := strings.CutPrefix(req.URL.Host, name); ok {
			req = req.Clone(req.Context())
			req.URL.Host = emulator.DefaultAccount + host
			req.Host = req.URL.Host
			return account.Do(req)
		}
	}
	return nil, fmt.Errorf("no account is at %s", req.URL.Host)
}

// loginTo returns a connection string of a server for an account of a scene.
func loginTo(server *emulator.Server, name string) string {
	login, _, _ := strings.Cut(server.ConnectionString(), "BlobEndpoint=")
	return login + "BlobEndpoint=https://" + name + ".blob.core.windows.net"
}

// production makes the stage the vault ci in the account prod.
func (s *stage) production(t *testing.T) {
	t.Helper()
	s.plugins = nil
	s.vault = s.open(t, "ci")
	s.network = accounts{"prod": s.server.Transport()}
	s.env["PLANVAULT_CONNECTION_STRING"], s.env["PLANVAULT_PREFIX"] = loginTo(s.server, "prod"), "ci"
}

// task is the request of an action: where it works, and for how long.
type task struct {
	Target string `json:"target"`
	Takes  string `json:"takes"`
}

// work runs an action.
type work func(ctx context.Context, s task) error

// takesItsTime works for as long as the task says.
func takesItsTime(ctx context.Context, s task) error {
	d, err := time.ParseDuration(s.Takes)
	if err != nil {
		return err
	}
	sleep.For(ctx, d)
	return ctx.Err()
}

// engine starts a node that runs up to n plans. It lives until kill is called, or the scene ends.
func (s *stage) engine(t *testing.T, name string, n int, run work) (e *engine.Engine, kill func()) {
	t.Helper()
	plugin := engine.Task("deploy", func(ctx context.Context, _ engine.Call, t task) (map[string]bool, error) {
		err := run(ctx, t)
		return map[string]bool{"ok": err == nil}, err
	})
	plugins := registry.Must(plugin)
	network := s.server.Transport()
	vault, err := azblob.NewFromConnectionString(t.Context(), "ci", s.server.ConnectionString(), plugins, settings.Over(network))
	must(t, err)
	e, err = engine.New(vault, engine.Options{Plans: n, Fleet: &fleet.Options{Name: name}})
	must(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = e.Run(ctx) }()
	t.Cleanup(func() { stop(); <-ended })
	time.Sleep(time.Second) // it joins
	return e, func() { network.Crash(); stop() }
}

// release returns a plan that installs a service in regions at the same time.
func release(name string, takes time.Duration, regions ...string) *workflow.Plan {
	p := &workflow.Plan{Name: name, Blocks: []*workflow.Block{{Name: "roll out", Concurrency: len(regions)}}}
	for _, region := range regions {
		q := &workflow.Sequence{Name: region}
		for _, name := range []string{"drain", "install", "warm the cache", "undrain"} {
			q.Actions = append(q.Actions, &workflow.Action{
				Name: name, Plugin: "deploy", Timeout: 2 * time.Hour, Req: task{region + ", " + name, takes.String()},
			})
		}
		p.Blocks[0].Sequences = append(p.Blocks[0].Sequences, q)
	}
	return p
}

// submit submits a plan and waits until a node has claimed it.
func submit(t *testing.T, e *engine.Engine, plans ...*workflow.Plan) {
	t.Helper()
	for _, p := range plans {
		_, err := e.Submit(t.Context(), p)
		must(t, err)
		time.Sleep(20 * time.Second)
	}
}

// sceneAlone: an action hangs on host-3, the only node.
func sceneAlone(t *testing.T, s *stage) {
	s.production(t)
	e, _ := s.engine(t, "host-3", 1, func(ctx context.Context, s task) error {
		if s.Target == "us-east, install" {
			<-t.Context().Done() // it does not look at ctx
			return t.Context().Err()
		}
		return takesItsTime(ctx, s)
	})
	submit(t, e, release("release checkout 2.1.0", 9*time.Second, "eu-west", "us-east"))
	time.Sleep(50 * time.Minute)
}

// sceneHanging: an action hangs on host-3, and a plan on host-7 takes longer than anybody wants to wait.
func sceneHanging(t *testing.T, s *stage) {
	sceneAlone(t, s)
	e, _ := s.engine(t, "host-7", 4, takesItsTime)
	submit(t, e, release("load test", 5*time.Minute, "eu-west"))
	time.Sleep(2 * time.Minute)
}

// sceneDead: host-3 has died half a minute ago.
func sceneDead(t *testing.T, s *stage) {
	s.production(t)
	e, kill := s.engine(t, "host-3", 2, takesItsTime)
	submit(t, e, release("release checkout 2.1.0", 10*time.Minute, "eu-west", "us-east"), release("release search 4.12.0", 10*time.Minute, "eu-west"))
	e, _ = s.engine(t, "host-7", 8, takesItsTime)
	submit(t, e, release("release web 1.9.0", 10*time.Minute, "eu-west"))
	time.Sleep(4 * time.Minute)
	kill()
	time.Sleep(28950 * time.Millisecond) // host-7 is about to see it
}

// sceneNobody: the only node has died. Another one starts in ten minutes.
func sceneNobody(t *testing.T, s *stage) {
	s.production(t)
	e, kill := s.engine(t, "host-3", 2, takesItsTime)
	submit(t, e, release("release checkout 2.1.0", 10*time.Minute, "eu-west", "us-east"), release("release search 4.12.0", 10*time.Minute, "eu-west"))
	time.Sleep(4 * time.Minute)
	kill()
	time.Sleep(17 * time.Minute)
	time.AfterFunc(10*time.Minute, func() { s.engine(t, "host-4", 8, takesItsTime) })
}

// sceneTurns: three plans take turns for a cluster. The first one has it.
func sceneTurns(t *testing.T, s *stage) {
	s.production(t)
	e, _ := s.engine(t, "host-3", 8, takesItsTime)
	for _, name := range []string{"checkout 2.1.0", "search 4.12.0", "web 1.9.0"} {
		p := release("release "+name, 10*time.Minute, "eu-west")
		p.Keys = []workflow.Key{{Name: "cluster west"}}
		submit(t, e, p)
	}
	time.Sleep(18 * time.Minute)
}

// sceneMany: the only node that runs checkouts has died, and host-7 is full.
func sceneMany(t *testing.T, s *stage) {
	s.production(t)
	host7, host3 := storage.Member{ID: workflow.NewV7(), Name: "host-7", TTL: time.Hour}, workflow.NewV7()
	if _, err := s.vault.Control().AddMember(t.Context(), host7); err != nil {
		t.Fatal(err)
	}
	for n := range 500 {
		id := workflow.NewV7At(time.Now().Add(time.Duration(n-3600) * time.Second))
		copy(id[6:], []byte{0x70, 0, 0x80, 0, 0, 0, 0, 0, byte(n), 0})
		p := planOf(id, workflow.NotStarted, fmt.Sprintf("release search 5.%d", n))
		if n < 312 {
			p.Name, p.Owner, p.Epoch = fmt.Sprintf("release checkout 3.%d", n), host3, 1
			p.State.Status, p.State.Start = workflow.Running, p.SubmitTime
		}
		must(t, s.vault.Restore(t.Context(), p))
	}
}

// history stores some final plans of the sample, and exports them to a bundle.
func (s *stage) history(t *testing.T) []*workflow.Plan {
	t.Helper()
	s.production(t)
	var final []*workflow.Plan
	for _, p := range sample.At(time.Now()) {
		if !p.State.Status.Final() || len(final) == 12 {
			continue
		}
		must(t, s.vault.Restore(t.Context(), p))
		final = append(final, p)
	}
	s.must(t, "export", "-o", "nightly.bundle")
	time.Sleep(time.Hour)
	return final
}

// planNamed returns the newest plan with a name.
func planNamed(t *testing.T, plans []*workflow.Plan, name string) *workflow.Plan {
	t.Helper()
	for _, p := range plans {
		if p.Name == name {
			return p
		}
	}
	t.Fatalf("there is no plan %s", name)
	return nil
}

// sceneCorrupt: somebody has overwritten the object of a plan, and removed the blob of an action of another one.
func sceneCorrupt(t *testing.T, s *stage) {
	plans := s.history(t)
	day := func(p *workflow.Plan) string { return "ci-" + date(p.SubmitTime) }
	cut, lost := planNamed(t, plans, "release web 1.8.7"), planNamed(t, plans, "nightly report")
	s.server.Put(day(cut), "plans/"+cut.ID.String()+"-object.json", []byte(`{"schema":`), nil)
	if !s.server.Remove(day(lost), "actions/"+lost.ID.String()+"/"+lost.Blocks[0].Sequences[0].Actions[1].ID.String()+".json") {
		t.Fatal("there is no such blob")
	}
}

// sceneDeleted: somebody has removed the plans of a group.
func sceneDeleted(t *testing.T, s *stage) {
	plans := s.history(t)
	s.must(t, "purge", "--group", planNamed(t, plans, "release web 1.8.7").GroupID.String(), "--yes")
	time.Sleep(20 * time.Minute)
}

// sceneFailed: a plan failed, because a cache was cold.
func sceneFailed(t *testing.T, s *stage) {
	s.production(t)
	failed := false
	e, _ := s.engine(t, "host-7", 4, func(ctx context.Context, s task) error {
		if s.Target == "us-east, warm the cache" && !failed {
			failed = true
			return errors.New("the cache is cold")
		}
		return takesItsTime(ctx, s)
	})
	submit(t, e, release("release checkout 2.1.0", 9*time.Second, "eu-west", "us-east"))
	time.Sleep(10 * time.Minute)
}

// sceneYear: ten days of more than a year ago, one of them with an open plan, and a night of last week on which
// all failed. Purges are slow, so that budgets matter.
func sceneYear(t *testing.T, s *stage) {
	s.production(t)
	night := func(day time.Time, n int, status func(n int) workflow.Status) {
		for n := range n {
			id := workflow.NewV7At(day.Add(time.Duration(n) * time.Minute))
			copy(id[6:], []byte{0x70, 0, 0x80, 0, 0, 0, 0, 0, byte(n), 0})
			s.store(t, id, status(n), "nightly report "+strconv.Itoa(n))
		}
	}
	for day := range 10 {
		night(time.Date(2025, 11, 1+day, 1, 0, 0, 0, time.UTC), 3+day%4, func(n int) workflow.Status {
			if day == 7 && n == 2 {
				return workflow.Running
			}
			return workflow.Completed
		})
	}
	night(time.Date(2026, 11, 14, 1, 0, 0, 0, time.UTC), 24, func(int) workflow.Status { return workflow.Failed })
	s.slow(time.Second)
}

// scenePolicy: the days of sceneYear, of which one is held, and a node that looks for a policy in half an hour.
func scenePolicy(t *testing.T, s *stage) {
	sceneYear(t, s)
	s.slow(10 * time.Millisecond)
	s.must(t, "hold", "2025-11-05", "--yes")
	time.AfterFunc(30*time.Minute, func() {
		if _, _, err := retention.NewEnforcer(vaulttest.Offered[retention.Vault](s.vault), "host-7").Look(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// followed makes a copy of the account prod in the account next, which follows it, with a node that works on prod. Three
// minutes later, host-4 starts on the copy. It returns what ends the node on prod.
func (s *stage) followed(t *testing.T) (kill func()) {
	t.Helper()
	s.history(t)
	next := emulator.New(emulator.Options{Latency: 10 * time.Millisecond})
	s.network.(accounts)["next"] = next.Transport()
	delete(s.env, "PLANVAULT_PREFIX")
	delete(s.env, "PLANVAULT_CONNECTION_STRING")
	for name, server := range map[string]*emulator.Server{"prod": s.server, "next": next} {
		s.must(t, "profile", "set", name, "--connection-string", loginTo(server, name), "--prefix", "ci")
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.run(ctx, "mirror", "--profile", "prod", "--to-profile", "next", "--follow", "--yes")
	}()
	t.Cleanup(func() { stop(); <-ended })
	e, kill := s.engine(t, "host-3", 4, takesItsTime)
	submit(t, e, release("release checkout 2.1.0", 5*time.Minute, "eu-west", "us-east"))
	time.Sleep(10 * time.Minute)
	other := &stage{server: next}
	time.AfterFunc(3*time.Minute, func() { other.engine(t, "host-4", 4, takesItsTime) })
	return kill
}

// sceneAway: the account prod does not answer any more. It is back in an hour.
func sceneAway(t *testing.T, s *stage) {
	kill := s.followed(t)
	kill()
	all := s.network.(accounts)
	prod := all["prod"]
	all["prod"] = fails(errors.New("dial tcp: lookup prod.blob.core.windows.net: no such host"))
	time.AfterFunc(time.Hour, func() { all["prod"] = prod })
}

// sceneRole: the login may read and not write.
func sceneRole(t *testing.T, s *stage) {
	s.production(t)
	if _, err := sample.Store(t.Context(), s.vault, time.Now()); err != nil {
		t.Fatal(err)
	}
	delete(s.env, "PLANVAULT_CONNECTION_STRING")
	s.env["PLANVAULT_ENDPOINT"] = "https://prod.blob.core.windows.net/?" + s.server.AccountSAS(emulator.Permissions{Allowed: "rl"})
}

// sceneFleet: an engine without a fleet, a node that is gone, one that has left a plan damaged, and one that is alive own
// plans, and one plan has no owner.
func sceneFleet(t *testing.T, s *stage) {
	s.claimed(t, nil, "alone")
	s.orphaned(t, "orphan \u202e")
	damaged := s.orphaned(t, "damaged")
	block := "blocks/" + damaged.ID.String() + "/" + damaged.Blocks[0].ID.String() + ".json"
	s.server.Put(prefix+"-"+date(damaged.SubmitTime), block, []byte("{"), nil)
	n := s.join(t, "host\x1b[2J")
	s.claimed(t, n, "hangs")
	time.Sleep(20 * time.Minute)
	s.claimed(t, n, "works")
	must(t, s.vault.Create(t.Context(), plantest.Small()))
}

// sceneEnded: a plan runs, and one has failed.
func sceneEnded(t *testing.T, s *stage) {
	s.claimed(t, nil, "running")
	failed := s.claimed(t, nil, "failed")
	failed.Blocks[0].Sequences[0].Actions[1].State.Status = workflow.Failed
	failed.State.Status = workflow.Failed
	must(t, s.vault.UpdatePlan(t.Context(), failed))
}
