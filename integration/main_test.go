package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/azurite"
	"github.com/planvault/azblob/internal/azurite/azuritetest"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/storage/storagetest"
)

// withOAuth is the Azurite of these tests. It accepts account keys and tokens, over TLS.
var withOAuth = azuritetest.Holder{Options: []azurite.Option{azurite.WithOAuth()}}

func TestMain(m *testing.M) {
	if isSoakClient(os.Args[1:]) {
		os.Exit(runSoakClient(os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(withOAuth.Run(m))
}

// lastLine returns the last line of an output.
func lastLine(s string) string {
	lines := strings.Split(strings.TrimSuffix(s, "\n"), "\n")
	return lines[len(lines)-1]
}

// sampled matches the steps that TestJSON leaves out or that need time, and a sample of the suite's cases with deaths
// and faults.
const sampled = `^life/(small|large)$|^(crash|delete)$|^suite/read/an ID|a death at any request leaves the plan|\(seed 1\)`

// TestRun plays a sample of the story and of the suite, or with PLANVAULT_LONG=1 what a first run plays, in virtual
// time. TestJSON plays the other steps, and the vault's own tests run the whole suite in the same way.
func TestRun(t *testing.T) {
	efforttest.NotShort(t, "the race detector sees the story in TestJSON, and the suite in the vault's own tests")
	t.Parallel()
	sample := []string{"-run", sampled}
	args := efforttest.Pick(sample, sample, nil)
	cfg, err := parse(args, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	cases := slices.DeleteFunc(suiteCases(), func(c storagetest.Case) bool { return !cfg.playsCase(c) })
	synctest.Test(t, func(t *testing.T) {
		var out, notes strings.Builder
		if code := run(t.Context(), args, &out, &notes); code != exitPass || lastLine(out.String()) != "PASS" {
			t.Fatalf("exit code %d:\n%s%s", code, out.String(), notes.String())
		}
		if notes.Len() > 0 {
			t.Errorf("a run without problems prints notes: %s", notes.String())
		}
		first, _, _ := strings.Cut(out.String(), "\n")
		if first != "Target: the emulator in this process" {
			t.Errorf("the first line is %q", first)
		}
		if n, want := strings.Count(out.String(), "\n== "), 1+len(names(cfg, nil)); n != want {
			t.Errorf("%d steps and the suite, want %d", n, want)
		}
		for _, want := range []string{
			"\n== crash: ", "\n   Delete (6 requests)\n", " no answer\n", "x 300", "\nDeleted it-",
			fmt.Sprintf("\n%d cases, 0 skipped\n", len(cases)),
		} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("the output lacks %q", want)
			}
		}
	})
}

func TestJSON(t *testing.T) {
	target, _ := inEmulator(t)
	notLarge := func(name string) bool { return name != "life/large" }
	var out strings.Builder
	if code := conduct(t.Context(), config{prefix: "mine", seed: 7, picks: notLarge}, target, &machines{encoder(&out), t.Output()}, nil); code != exitPass {
		t.Fatalf("exit code %d:\n%s", code, out.String())
	}
	d := json.NewDecoder(strings.NewReader(out.String()))
	d.DisallowUnknownFields()
	requests := 0
	for i, st := range story(config{}) {
		if !notLarge(st.name) {
			continue
		}
		var s sum
		if err := d.Decode(&s); err != nil {
			t.Fatal(err)
		}
		if s.Step != st.name || s.Result != "ok" || len(s.Acts) == 0 || s.Requests == 0 {
			t.Errorf("object %d is %+v, want a success of %s", i, s, st.name)
		}
		inActs := 0
		for _, a := range s.Acts {
			inLines := 0
			for _, l := range a.Lines {
				inLines += l.Count
			}
			if inLines != a.Requests && a.Finding == nil {
				t.Errorf("%s: %s: %d requests, %d in its lines", s.Step, a.Name, a.Requests, inLines)
			}
			inActs += a.Requests
		}
		if inActs != s.Requests {
			t.Errorf("%s: %d requests, %d in its acts", s.Step, s.Requests, inActs)
		}
		requests += s.Requests
	}
	var v verdict
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	if v.Result != "PASS" || v.Prefix != "mine" || v.Seed != 7 || v.Requests != requests || len(v.Deleted) != listedDays+1+1+oldDays+1 {
		// The days and today; what is left of the two vaults of history.
		t.Errorf("the last object is %+v", v)
	}
	if d.More() {
		t.Error("there is more after the result")
	}
	if n := strings.Count(out.String(), "\n"); n != v.Steps+1 {
		t.Errorf("%d lines for %d steps and the result", n, v.Steps)
	}
}

// unreachable is an account on port 1, where nothing listens.
const unreachable = "AccountName=a;AccountKey=c2VjcmV0;BlobEndpoint=http://127.0.0.1:1/a;"

// conducted runs the named steps, or all steps, and no case. It returns the text output.
func conducted(ctx context.Context, t *testing.T, target *target, args []string, steps ...string) (code int, out string) {
	t.Helper()
	cfg, err := parse(args, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	if len(steps) > 0 {
		cfg.picks = func(name string) bool { return slices.Contains(steps, name) }
	}
	var w strings.Builder
	code = conduct(ctx, cfg, target, &people{w: &w}, nil)
	return code, w.String()
}

// inEmulator returns a target on an emulator with real answers that the test can inspect. Cases run one at a time there.
func inEmulator(t *testing.T) (*target, *emulator.Server) {
	t.Helper()
	server, advance := newEmulator(emulator.WithRealAnswers(1))
	target, err := onEmulator(server, advance)
	if err != nil {
		t.Fatal(err)
	}
	target.casesAtOnce = 1
	return target, server
}

// TestDamage does damage between two steps. The next step must find it.
func TestDamage(t *testing.T) {
	for _, test := range []struct {
		name   string
		before string // this step
		want   string // in the last line
		damage func(server *emulator.Server, container string)
	}{
		{"a lost object", "check", "FAIL: check: ", func(server *emulator.Server, container string) {
			removeOne(server, container, "plans/", "-object.json")
		}},
		{"a lost action", "check", "FAIL: check: Recovery leaves open plans alone: ", func(server *emulator.Server, container string) {
			removeOne(server, container, "actions/", "")
		}},
		{"a stray", "check", "FAIL: check: Check: 1 problem, such as stray: ", func(server *emulator.Server, container string) {
			server.Put(container, "what/is/this", nil, nil)
		}},
		{"the container", "delete", "FAIL: delete: ", func(server *emulator.Server, container string) {
			server.RemoveContainer(container)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			target, server := inEmulator(t)
			target.between = func(step string) {
				if step != test.before {
					return
				}
				containers := slices.Collect(server.Containers())
				test.damage(server, containers[len(containers)-1])
			}
			code, out := conducted(t.Context(), t, target, nil, "list", "check", "delete")
			if last := lastLine(out); code != exitFail || !strings.HasPrefix(last, test.want) {
				t.Errorf("exit code %d, last line %q, want %d and %q", code, last, exitFail, test.want)
			}
			for container := range server.Containers() {
				t.Errorf("container %s is left after a failed run", container)
			}
		})
	}
}

// removeOne removes the first blob whose name begins and ends so.
func removeOne(server *emulator.Server, container, prefix, suffix string) {
	for b := range server.Blobs(container) {
		if strings.HasPrefix(b.Name, prefix) && strings.HasSuffix(b.Name, suffix) {
			server.Remove(container, b.Name)
			return
		}
	}
}

// TestUnreachable checks that a failure before the first step is reported without the key, with -json as an object.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"-connection-string", unreachable}, {"-connection-string", unreachable, "-json"}} {
		var out, notes strings.Builder
		code := run(t.Context(), args, &out, &notes)
		last := lastLine(out.String())
		var v verdict
		if err := json.Unmarshal([]byte(last), &v); err == nil {
			last = v.Result + ": " + v.What
		} else if len(args) > 2 {
			t.Error(err)
		}
		if code != exitFail || !strings.HasPrefix(last, "FAIL: list containers: ") {
			t.Errorf("exit code %d, last line %q", code, last)
		}
		if strings.Contains(out.String()+notes.String(), "c2VjcmV0") {
			t.Error("the key is printed")
		}
	}
}

func TestOthersContainers(t *testing.T) {
	target, server := inEmulator(t)
	others := []string{"mine-2-2026-01-02", "mine-archive", "mine2-2026-01-02", "other"}
	for _, name := range others {
		server.Put(name, "theirs", nil, nil)
	}
	if code, out := conducted(t.Context(), t, target, []string{"-prefix", "mine"}, "life/small", "list", "delete"); code != exitPass {
		t.Fatalf("exit code %d:\n%s", code, out)
	}
	if left := slices.Collect(server.Containers()); !slices.Equal(left, others) {
		t.Errorf("the containers %v are left, want %v", left, others)
	}
	for _, name := range others {
		if server.Len(name) != 1 {
			t.Errorf("container %s was touched", name)
		}
	}

	server.Put("mine-2026-01-02", "theirs", nil, nil)
	code, out := conducted(t.Context(), t, target, []string{"-prefix", "mine"}, "life/small", "list", "delete")
	want := "FAIL: there are containers of prefix mine already, such as mine-2026-01-02: choose another one with -prefix, or delete them"
	if code != exitFail || lastLine(out) != want {
		t.Errorf("exit code %d, last line %q, want %q", code, lastLine(out), want)
	}
	if server.Len("mine-2026-01-02") != 1 {
		t.Error("a container that was there before was touched")
	}
}

func TestKeep(t *testing.T) {
	target, server := inEmulator(t)
	code, out := conducted(t.Context(), t, target, []string{"-keep", "-prefix", "kept"}, "list", "delete")
	if code != exitPass {
		t.Fatalf("exit code %d:\n%s", code, out)
	}
	left := slices.Collect(server.Containers())
	if len(left) != listedDays || !strings.Contains(out, "\nKept "+strings.Join(left, ", ")+".\n") {
		t.Errorf("the containers %v are left, and the output ends with\n%s", left, out[max(0, len(out)-300):])
	}
	for _, name := range left {
		if server.Len(name) == 0 {
			t.Errorf("container %s is empty", name)
		}
	}
}

func TestInterrupt(t *testing.T) {
	steps := []string{"nothing", "life/full", "list"}
	for _, step := range steps {
		target, server := inEmulator(t)
		ctx, interrupt := context.WithCancel(t.Context())
		target.between = func(name string) {
			if name == step {
				interrupt()
			}
		}
		code, out := conducted(ctx, t, target, nil, steps...)
		if last := lastLine(out); code != exitFail || !strings.HasPrefix(last, "FAIL: "+step+": interrupted: ") {
			t.Errorf("%s: exit code %d, last line %q", step, code, last)
		}
		for container := range server.Containers() {
			t.Errorf("%s: container %s is left", step, container)
		}
	}
}

func TestMisuse(t *testing.T) {
	for _, args := range [][]string{
		{"-endpoint", "https://a.example", "-connection-string", "x"},
		{"-azurite", "-endpoint", "https://a.example"},
		{"-azurite", "-real"},
		{"-azurite", "-connection-string", "x"},
		{"-msi", "someone"},
		{"-no-such-flag"},
		{"argument"},
		{"-prefix", "Not-A-Prefix"},
		{"-prefix", strings.Repeat("a", longestPrefix+1)},
		{"-soak", "1s", "-grace", "0.5s"},
		{"-grace", "1m"}, // without -soak
		{"-run", "("},
		{"-all", "-run", "life"},
		{"-all", "-soak", "1s"},
		{"-otel", "-azurite"},
		{"-soak", "-1s"},
		{"-soak", "1s", "-clients", "0"},
		{"-soak", "1s", "-clients", "256"},
		{"-soak", "1s", "-run", "life"},
		{"-run", "no such step", "-list"},
		{"-endpoint", "http://a.example", "-prefix", "p"}, // a token is sent over https only
	} {
		var out, notes strings.Builder
		if code := run(t.Context(), args, &out, &notes); code != exitMisuse || notes.Len() == 0 {
			t.Errorf("%q: exit code %d, want %d and an explanation\n%s%s", args, code, exitMisuse, out.String(), notes.String())
		}
	}
	if code := run(t.Context(), []string{"-h"}, t.Output(), t.Output()); code != exitPass {
		t.Errorf("-h: exit code %d", code)
	}
}

// TestEnvironment sets the variable that Azure's own tools read. No request may reach its account.
func TestEnvironment(t *testing.T) {
	t.Setenv("AZURE_STORAGE_CONNECTION_STRING", unreachable)
	var out strings.Builder
	code := run(t.Context(), []string{"-run", "^nothing$"}, &out, t.Output())
	if code != exitPass || !strings.HasPrefix(out.String(), "Target: the emulator in this process\n") {
		t.Errorf("exit code %d:\n%s", code, out.String())
	}
}

func TestAzurite(t *testing.T) {
	t.Parallel()
	server := withOAuth.Get(t)
	connect := func() policy.Transporter { return server.HTTPClient() }
	var notLarge []string
	for _, st := range story(config{}) {
		if st.name != "life/large" {
			notLarge = append(notLarge, st.name)
		}
	}
	for _, test := range []struct {
		name  string
		open  func() (*target, error)
		steps []string
	}{
		{
			"account key", func() (*target, error) { return onConnectionString(server.ConnectionString(), connect) },
			efforttest.Pick(nil, []string{"nothing"}, notLarge),
		},
		{
			"token", func() (*target, error) { return onEndpoint(server.URL(), madeUp{}, connect) },
			efforttest.Pick(nil, []string{"life/small", "delete"}, notLarge),
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel() // most of the time is spent waiting for the grace period
			target, err := test.open()
			if err != nil {
				t.Fatal(err)
			}
			if code, out := conducted(t.Context(), t, target, nil, test.steps...); code != exitPass {
				t.Errorf("exit code %d:\n%s", code, out)
			}
		})
	}
}

// madeUp is a credential that Azurite accepts.
type madeUp struct{}

func (madeUp) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	expires := time.Now().Add(time.Hour)
	return azcore.AccessToken{Token: azurite.Token(expires), ExpiresOn: expires}, nil
}
