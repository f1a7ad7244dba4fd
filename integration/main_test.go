package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
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
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/storage/storagetest"
)

// withOAuth is the Azurite of these tests. It accepts account keys and tokens, over TLS.
var withOAuth = azuritetest.Holder{Options: []azurite.Option{azurite.WithOAuth()}}

func TestMain(m *testing.M) {
	if isWorker(os.Args[1:]) {
		os.Exit(runWorker(os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(withOAuth.Run(m))
}

// lastLine returns the last line of an output.
func lastLine(s string) string {
	lines := strings.Split(strings.TrimSuffix(s, "\n"), "\n")
	return lines[len(lines)-1]
}

// sampled matches all steps, and a sample of the suite's cases with deaths and faults.
const sampled = `^[^s]|^suite/read/an ID|a death at any request leaves the plan|\(seed 1\)`

// TestRun plays the story and a sample of the suite, or with PLANVAULT_LONG=1 what a first run plays, in virtual
// time. The vault's own tests run the whole suite in the same way.
func TestRun(t *testing.T) {
	t.Parallel()
	sample := []string{"-run", sampled}
	args := efforttest.Pick(sample, sample, nil)
	cfg, err := parse(args, t.Output())
	must(t, err)
	synctest.Test(t, func(t *testing.T) {
		var out, notes strings.Builder
		if code := run(t.Context(), args, &out, &notes); code != exitPass || lastLine(out.String()) != "PASS" || notes.Len() > 0 {
			t.Fatalf("exit code %d:\n%s%s", code, out.String(), notes.String())
		}
		steps := len(names(cfg, nil))
		cases := len(names(cfg, suiteCases())) - steps
		if n := strings.Count(out.String(), "\n== "); n != steps+1 || cases == 0 {
			t.Errorf("%d steps and the suite, want %d", n, steps)
		}
		for _, want := range []string{
			"Target: the emulator in this process\n", "\n== crash: ", "\n   Delete (8 requests)\n", " no answer\n", "actions/<plan>/… x 6", "\nDeleted it-",
			fmt.Sprintf("\n%d cases, 0 failed, 0 skipped\n", cases),
		} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("the output lacks %q", want)
			}
		}
	})
}

// unreachable is an account on port 1, where nothing listens.
const unreachable = "AccountName=a;AccountKey=c2VjcmV0;BlobEndpoint=http://127.0.0.1:1/a;"

// inEmulator returns a stage on an emulator with real answers that the test can inspect.
func inEmulator(t *testing.T, out io.Writer, args ...string) (*stage, *emulator.Server) {
	t.Helper()
	cfg, err := parse(append([]string{"-prefix", "mine"}, args...), t.Output())
	must(t, err)
	target, server, err := onEmulator(emulator.Options{RealAnswers: 1})
	must(t, err)
	return newStage(cfg, target, out), server
}

// TestDamage does damage before a step, which must find it.
func TestDamage(t *testing.T) {
	var out strings.Builder
	s, server := inEmulator(t, &out, "-run", "^life$")
	err := s.onOwnContainers(t.Context(), func() error {
		server.Put("mine-2026-01-02", "what/is/this", nil, nil)
		return s.play(t.Context(), nil)
	})
	if code := end(&out, err); code != exitFail || !strings.HasPrefix(lastLine(out.String()), "FAIL: life: Check: 1 problem, such as stray: ") {
		t.Errorf("exit code %d, last line %q", code, lastLine(out.String()))
	}
	for container := range server.Containers() {
		t.Errorf("container %s is left after a failed run", container)
	}
}

// TestUnreachable checks that a failure before the first step is reported without the key.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	var out, notes strings.Builder
	code := run(t.Context(), []string{"-connection-string", unreachable}, &out, &notes)
	if code != exitFail || !strings.HasPrefix(lastLine(out.String()), "FAIL: list containers: ") || strings.Contains(out.String()+notes.String(), "c2VjcmV0") {
		t.Errorf("exit code %d: %s%s", code, out.String(), notes.String())
	}
}

// TestNoSignature checks that the signature of a shared access signature appears in no error and no title.
func TestNoSignature(t *testing.T) {
	err := redact(&url.Error{Op: "Put", URL: "https://a.example/c/b?sv=1&sig=secret", Err: io.EOF})
	if !errors.Is(err, io.EOF) || strings.Contains(err.Error(), "secret") {
		t.Errorf("the error is %v", err)
	}
	target, err := newTarget(account{ConnectionString: "BlobEndpoint=https://a.example;SharedAccessSignature=sv=1&sig=secret"}, nil, newHTTPClient)
	if err != nil || target.title != "the account at https://a.example" {
		t.Errorf("the title is %q: %v", target.title, err)
	}
}

// TestOthersContainers checks that a run leaves the containers of other prefixes alone, and refuses to start beside those
// of its own.
func TestOthersContainers(t *testing.T) {
	var out strings.Builder
	s, server := inEmulator(t, &out, "-run", "^(life|list)$")
	others := []string{"mine-2-2026-01-02", "mine-archive", "mine2-2026-01-02", "other"}
	for _, name := range others {
		server.Put(name, "theirs", nil, nil)
	}
	if code := conduct(t.Context(), s, nil); code != exitPass {
		t.Fatalf("exit code %d:\n%s", code, out.String())
	}
	server.Put("mine-2026-01-02", "theirs", nil, nil)
	want := "FAIL: there are containers of prefix mine already, such as mine-2026-01-02: choose another one with -prefix, or delete them"
	if code := conduct(t.Context(), s, nil); code != exitFail || lastLine(out.String()) != want {
		t.Errorf("exit code %d, last line %q, want %q", code, lastLine(out.String()), want)
	}
	others = append([]string{"mine-2-2026-01-02", "mine-2026-01-02"}, others[1:]...)
	if left := slices.Collect(server.Containers()); !slices.Equal(left, others) {
		t.Errorf("the containers %v are left, want %v", left, others)
	}
	for _, name := range others {
		if server.Len(name) != 1 {
			t.Errorf("container %s was touched", name)
		}
	}
}

// TestInterrupt interrupts a step and a case.
func TestInterrupt(t *testing.T) {
	for _, name := range []string{"list", "suite/one"} {
		var out strings.Builder
		ctx, interrupt := context.WithCancel(t.Context())
		s, server := inEmulator(t, &out, "-run", "^(life|suite/.*|"+name+")$")
		server.Inject(emulator.On(emulator.PutBlob).Nth(30).Do(emulator.LostAnswer()).Where(func(emulator.Request) bool {
			if strings.Contains(out.String(), "== list") {
				interrupt()
			}
			return false // the rule only looks
		}))
		cases := []storagetest.Case{creates("one", func(storagetest.T) { interrupt() })}
		for i := range casesAtOnce { // the last one can't begin before the interrupt
			cases = append(cases, creates(fmt.Sprint(i), func(t storagetest.T) { <-t.Context().Done() }))
		}
		code := conduct(ctx, s, cases)
		if last := lastLine(out.String()); code != exitFail || !strings.HasPrefix(last, "FAIL: interrupted: "+name[:4]) {
			t.Errorf("%s: exit code %d:\n%s", name, code, out.String())
		}
		for container := range server.Containers() {
			t.Errorf("%s: container %s is left", name, container)
		}
	}
}

func TestMisuse(t *testing.T) {
	for _, args := range [][]string{
		{"-endpoint", "https://a.example", "-connection-string", "x"},
		{"-azurite", "-real"},
		{"-no-such-flag"},
		{"argument"},
		{"-prefix", "Not-A-Prefix"},
		{"-prefix", strings.Repeat("a", longestPrefix+1)},
		{"-soak", "1s", "-grace", "0.5s"},
		{"-grace", "1m"}, // without -soak
		{"-every", "1m"}, // without -chaos
		{"-run", "("},
		{"-all", "-run", "life"},
		{"-otel", "-azurite"},
		{"-soak", "-1s"},
		{"-soak", "1s", "-clients", "256"},
		{"-chaos", "1s", "-interval", "0.5s"},
		{"-run", "no such step", "-list"},
		{"-endpoint", "http://a.example", "-prefix", "p"}, // a token is sent over https only
	} {
		var out strings.Builder
		if code := run(t.Context(), args, &out, &out); code != exitMisuse || out.Len() == 0 {
			t.Errorf("%q: exit code %d, want %d and an explanation\n%s", args, code, exitMisuse, out.String())
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
	if code := run(t.Context(), []string{"-run", "^life$"}, &out, t.Output()); code != exitPass {
		t.Errorf("exit code %d:\n%s", code, out.String())
	}
}

// TestAzurite plays steps in real time, over TLS, with a token.
func TestAzurite(t *testing.T) {
	t.Parallel()
	server := withOAuth.Get(t)
	target, err := newTarget(account{Endpoint: server.URL()}, madeUp{}, func() policy.Transporter { return server.HTTPClient() })
	must(t, err)
	const some = "^life$"
	cfg, err := parse([]string{"-run", efforttest.Pick(some, some, "^[^s]")}, t.Output())
	must(t, err)
	if code := conduct(t.Context(), newStage(cfg, target, t.Output()), nil); code != exitPass {
		t.Errorf("exit code %d", code)
	}
}

// madeUp is a credential that Azurite accepts.
type madeUp struct{}

func (madeUp) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	expires := time.Now().Add(time.Hour)
	return azcore.AccessToken{Token: azurite.Token(expires), ExpiresOn: expires}, nil
}

// creates returns a case that stores a plan and then calls a function.
func creates(name string, then func(t storagetest.T)) storagetest.Case {
	return storagetest.Case{Name: name, Run: func(t storagetest.T, h storagetest.Harness) {
		if err := h.New(t).Open(t).Create(t.Context(), plantest.Small()); err != nil {
			t.Fatalf("%v", err)
		}
		then(t)
	}}
}

// TestCases plays a case of every outcome.
func TestCases(t *testing.T) {
	var out strings.Builder
	s, server := inEmulator(t, &out)
	server.Put("mine-s12-2026-01-02", "theirs", nil, nil) // s12 is not s1
	tooLong := creates("a/long", func(t storagetest.T) { t.Fatalf("played") })
	tooLong.Long = true
	err := s.playCases(t.Context(), []storagetest.Case{
		tooLong,
		creates("a/fine", func(storagetest.T) {}),
		creates("a/fails", func(t storagetest.T) { t.Logf("before"); t.Fatalf("it fails") }),
		creates("b/panics", func(storagetest.T) { panic("oh") }),
		creates("b/skips", func(t storagetest.T) { t.Skipf("for %s", "a reason"); t.Errorf("not reached") }),
		creates("c/cleanup", func(t storagetest.T) {
			t.Cleanup(func() { t.Logf("context of the first: %v", t.Context().Err()) })
			t.Cleanup(func() { t.Cleanup(func() { t.Logf("of a cleanup") }); panic("oh, too") })
		}),
	})
	if err == nil || !strings.HasPrefix(err.Error(), "3 cases failed, such as suite/") {
		t.Errorf("the error is %v", err)
	}
	for _, want := range []string{
		" requests  suite/a/fine\n", "suite/a/fails\n      before\n      it fails\n", "suite/b/panics\n      panic: oh\n", "main_test.go",
		"suite/b/skips\n      for a reason\n", "suite/c/cleanup\n      of a cleanup\n      context of the first: context canceled\n      panic: oh, too\n",
		"\n5 cases, 3 failed, 1 skipped\n", "\nLeft out: 1 long case of the suite; -all plays them too.\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output lacks %q:\n%s", want, out.String())
		}
	}
	if left := slices.Collect(server.Containers()); !slices.Equal(left, []string{"mine-s12-2026-01-02"}) {
		t.Errorf("the containers %v are left", left)
	}
}

// TestList checks what -list, -all and -run choose: a first run leaves out the long cases.
func TestList(t *testing.T) {
	listed := func(args ...string) []string {
		var out strings.Builder
		// No service answers there, so the run would fail if it sent a request.
		if code := run(t.Context(), append(args, "-list", "-connection-string", unreachable), &out, t.Output()); code != exitPass {
			t.Errorf("%q: exit code %d", args, code)
		}
		return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	}
	all := listed()
	if n := len(story()) + len(suiteCases()); len(all) != n || len(slices.Compact(slices.Sorted(slices.Values(all)))) != n {
		t.Errorf("-list names %q, want %d different names", all, n)
	}
	picked := slices.DeleteFunc(slices.Clone(all), func(name string) bool {
		return name != "life" && !strings.HasPrefix(name, "suite/read/")
	})
	if got := listed("-run", "^life$|^suite/read/"); !slices.Equal(got, picked) {
		t.Errorf("-run picks %q, want %q", got, picked)
	}
	long := slices.DeleteFunc(suiteCases(), func(c storagetest.Case) bool { return !c.Long })
	if first := names(config{}, suiteCases()); len(long) == 0 || len(first)+len(long) != len(all) || !slices.Equal(names(config{all: true}, suiteCases()), all) {
		t.Errorf("a first run plays %d of %d, without %d", len(first), len(all), len(long))
	}
}

// TestOTel checks that the program of the other module is where -otel looks for it. Its own tests look at the trace.
func TestOTel(t *testing.T) {
	cmd, err := tracer(t.Context())
	must(t, err)
	if found, err := filepath.Glob(filepath.Join(cmd.Dir, cmd.Args[2], "main.go")); err != nil || len(found) != 1 {
		t.Errorf("%q in %s: %q, %v", cmd.Args, cmd.Dir, found, err)
	}
}

// must fails the test if err is not nil.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
