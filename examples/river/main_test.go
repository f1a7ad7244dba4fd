//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/workflow"
)

// The turns are so short that a plan takes several. A step that ends with its turn has drain.
const turn, drain = 4 * time.Second, 2 * time.Second

var step = engine.Task("step", func(ctx context.Context, _ engine.Call, d time.Duration) (string, error) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
	return "", ctx.Err()
})

// The environment of a process that is a worker.
const databaseEnv, accountEnv = "RIVER_DATABASE", "RIVER_ACCOUNT"

func TestMain(m *testing.M) {
	if database := os.Getenv(databaseEnv); database != "" {
		_, client, err := open(context.Background(), database, os.Getenv(accountEnv))
		if err == nil {
			err = client.Start(context.Background())
		}
		fmt.Println(err)
		select {} // until it is killed
	}
	os.Exit(m.Run())
}

func open(ctx context.Context, database, account string) (*azblob.Vault, *river.Client[pgx.Tx], error) {
	vault, err := azblob.NewFromConnectionString(ctx, "river", account, registry.Must(step), azblob.Options{})
	if err != nil {
		return nil, nil, err
	}
	client, err := connect(ctx, database, vault, turn, drain)
	return vault, client, err
}

// TestRiver kills a worker in the middle of a plan. Another process goes on with it, and with plans that take several turns,
// wait, are cancelled, and outlive a shutdown.
func TestRiver(t *testing.T) {
	database := postgres(t)
	server, err := emulator.New(emulator.Options{}).Listen("127.0.0.1:0")
	must(t, err)
	defer server.Close()
	ctx, shutdown := context.WithCancel(t.Context())
	vault, client, err := open(ctx, database, server.ConnectionString())
	must(t, err)
	plan := func(steps ...time.Duration) *workflow.Plan {
		s := &workflow.Sequence{}
		for i, d := range steps {
			s.Actions = append(s.Actions, step.Action(fmt.Sprint(i), d))
		}
		return &workflow.Plan{Name: "plan", Blocks: []*workflow.Block{{Sequences: []*workflow.Sequence{s}}}}
	}
	begin := func(p *workflow.Plan) *workflow.Plan {
		must(t, submit(ctx, vault, client, p))
		must(t, submit(ctx, vault, client, p)) // by a client that got no answer
		return p
	}
	// until waits for the plan, and returns it with how often each step was tried.
	until := func(p *workflow.Plan, done func(*workflow.Plan) bool) (*workflow.Plan, string) {
		t.Helper()
		for late := time.Now().Add(2 * time.Minute); time.Now().Before(late); time.Sleep(50 * time.Millisecond) {
			p, err := vault.Read(t.Context(), p.ID)
			must(t, err)
			if done(p) {
				var tries []int
				for _, a := range p.Blocks[0].Sequences[0].Actions {
					tries = append(tries, len(a.Attempts))
				}
				return p, fmt.Sprint(p.State.Status, " ", tries)
			}
		}
		t.Fatal("it takes too long")
		return nil, ""
	}
	runs := func(i int) func(*workflow.Plan) bool {
		return func(p *workflow.Plan) bool {
			return p.Blocks[0].Sequences[0].Actions[i].State.Status == workflow.Running
		}
	}
	final := func(p *workflow.Plan) bool { return p.State.Status.Final() }
	wants := func(p *workflow.Plan, want string) *workflow.Plan {
		t.Helper()
		p, got := until(p, final)
		if got != want {
			t.Errorf("it is %s, want %s", got, want)
		}
		return p
	}

	short, long := time.Second/2, 3*time.Second/2
	dies := begin(plan(short, long, short))
	worker := exec.CommandContext(t.Context(), os.Args[0])
	worker.Env = append(os.Environ(), databaseEnv+"="+database, accountEnv+"="+server.ConnectionString())
	must(t, worker.Start())
	until(dies, runs(1))
	must(t, worker.Process.Kill())
	killed := time.Now()
	_ = worker.Wait()

	must(t, client.Start(ctx))
	many := begin(plan(long, long, long, long, long, long))
	waits := plan(short)
	waits.NotBefore = time.Now().Add(5 * time.Second)
	begin(waits)
	cancelled := begin(plan(long, short))
	until(cancelled, runs(0))
	jobs, err := client.JobList(ctx, river.NewJobListParams().Where("args->>'plan' = @plan", river.NamedArgs{"plan": cancelled.ID.String()}))
	must(t, err)
	if len(jobs.Jobs) != 1 {
		t.Fatalf("a plan has %d jobs", len(jobs.Jobs))
	}
	_, err = client.JobCancel(ctx, jobs.Jobs[0].ID)
	must(t, err)
	if p := wants(cancelled, "Stopped [1 0]"); p.Stopped.By != "river" {
		t.Errorf("it was stopped by %+v", p.Stopped)
	}
	wants(waits, "Completed [1]")
	if p := wants(many, "Completed [1 1 1 1 1 1]"); p.Epoch < 2 {
		t.Errorf("it took one turn")
	}
	p := wants(dies, "Completed [1 2 1]")
	t.Logf("%v from the kill to the end of the plan, in epoch %d", p.State.End.Sub(killed).Round(time.Second), p.Epoch)

	outlives := begin(plan(short, long, short))
	until(outlives, runs(1))
	shutdown()
	<-client.Stopped()
	if p, got := until(outlives, func(*workflow.Plan) bool { return true }); got != "Running [1 1 0]" || p.Owner != [16]byte{} {
		t.Errorf("after a shutdown it is %s of %s", got, p.Owner)
	}
	_, client, err = open(t.Context(), database, server.ConnectionString())
	must(t, err)
	must(t, client.Start(t.Context()))
	wants(outlives, "Completed [1 1 1]")
	must(t, client.StopAndCancel(t.Context()))
}

// postgres starts PostgreSQL in a temporary folder, for the time of the test, and returns how to connect to it.
func postgres(t *testing.T) (database string) {
	if os.Getenv("PLANVAULT_LONG") == "" {
		t.Skip("it takes a minute: make verify runs it")
	}
	bin := func(name string) string {
		found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
		if path, err := exec.LookPath(name); err == nil {
			found = append(found, path)
		}
		if len(found) == 0 {
			t.Skipf("there is no PostgreSQL on this machine: %s is not in PATH", name)
		}
		return found[len(found)-1]
	}
	dir, err := os.MkdirTemp("", "pg") // the path of a socket is short
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	command := func(name string, args ...string) *exec.Cmd {
		cmd := exec.Command(bin(name), args...)
		cmd.Dir, cmd.SysProcAttr = dir, &syscall.SysProcAttr{Pdeathsig: syscall.SIGQUIT}
		if os.Geteuid() == 0 { // PostgreSQL refuses root
			nobody, err := user.Lookup("nobody")
			must(t, err)
			uid, err := strconv.Atoi(nobody.Uid)
			must(t, err)
			must(t, os.Chown(dir, uid, -1))
			cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}
		}
		return cmd
	}
	data := filepath.Join(dir, "data")
	if out, err := command("initdb", "-U", "postgres", "-A", "trust", "-N", "-D", data).CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, out)
	}
	var logged bytes.Buffer
	server := command("postgres", "-D", data, "-k", dir, "-c", "listen_addresses=", "-c", "fsync=off")
	server.Stdout, server.Stderr = &logged, &logged
	must(t, server.Start())
	t.Cleanup(func() {
		_ = server.Process.Signal(syscall.SIGINT)
		_ = server.Wait()
		if t.Failed() {
			t.Logf("PostgreSQL:\n%s", &logged)
		}
	})
	database = "host=" + dir + " user=postgres"
	for range 100 {
		var conn *pgx.Conn
		if conn, err = pgx.Connect(t.Context(), database); err == nil {
			_ = conn.Close(t.Context())
			return database
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatal(err)
	return ""
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
