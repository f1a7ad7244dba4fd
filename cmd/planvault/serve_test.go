package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/price"
	"github.com/planvault/azblob/workflow"
)

// emulate runs the emulator on a free port until stop interrupts it.
func emulate(t *testing.T, args ...string) (served emulation, stop func() result) {
	t.Helper()
	said, stop := newStage(t).serve(t, append([]string{"emulator", "--listen", "127.0.0.1:0", "--output", "json"}, args...)...)
	must(t, json.Unmarshal([]byte(said), &served))
	return served, stop
}

// countOn returns what planvault count prints for a vault of an emulator, over sockets.
func countOn(t *testing.T, served emulation, prefix string) string {
	t.Helper()
	env := map[string]string{"PLANVAULT_CONNECTION_STRING": served.ConnectionString, "PLANVAULT_PREFIX": prefix}
	var stdout, stderr strings.Builder
	if code := run(t.Context(), process{stdout: &stdout, stderr: &stderr, getenv: func(name string) string { return env[name] }}, []string{"count"}); code != exitDone {
		t.Errorf("exit code %d: %s", code, stderr.String())
	}
	return stdout.String()
}

// TestEmulator tries the tool as a stranger does: on a sample that stays in a file. Sample plans are stored once, and a plan
// is found after the emulator was stopped.
func TestEmulator(t *testing.T) {
	efforttest.NotShort(t, "the emulator's own tests run its server under the race detector")
	data := filepath.Join(t.TempDir(), "plans.db")
	for _, want := range []struct {
		stored int
		count  string
	}{{31, "31\n"}, {0, "32\n"}} {
		served, stop := emulate(t, "--data", data, "--sample")
		if served.Plans != want.stored || served.Prefix != samplePrefix {
			t.Errorf("%+v", served)
		}
		if got := countOn(t, served, served.Prefix); got != want.count {
			t.Errorf("%q plans", got)
		}
		v, err := azblob.NewFromConnectionString(t.Context(), served.Prefix, served.ConnectionString, nil, azblob.Options{})
		must(t, err)
		if err := v.Create(t.Context(), &workflow.Plan{Name: "stays"}); err != nil {
			t.Error(err)
		}
		if r := stop(); r.code != exitDone {
			t.Errorf("the emulator ended with %+v", r)
		}
	}
}

func TestEmulatorInUse(t *testing.T) {
	served, stop := emulate(t)
	defer stop()
	address := strings.TrimSuffix(strings.TrimPrefix(served.URL, "http://"), "/"+emulator.DefaultAccount)
	newStage(t).says(t, exitFailed, "planvault: emulator: ", "emulator", "--listen", address)
}

// TestFirstWords checks what a stranger reads first.
func TestFirstWords(t *testing.T) {
	for _, c := range []struct {
		emulation
		want string
	}{
		{emulation{URL: "http://127.0.0.1:10000/x", ConnectionString: "UseDevelopmentStorage=true"}, "PLANVAULT_PREFIX=engine\n    go run "},
		{emulation{URL: "http://127.0.0.1:10000/x", Prefix: "sample", Data: "plans.db"}, "PLANVAULT_PREFIX=sample\n    planvault list"},
	} {
		var b strings.Builder
		c.print(&b)
		if !strings.Contains(b.String(), c.want) {
			t.Errorf("%s", b.String())
		}
	}
}

// serve runs a command until stop interrupts it. said is the line that it prints at first.
func (s *stage) serve(t *testing.T, args ...string) (said string, stop func() result) {
	t.Helper()
	ctx, interrupt := context.WithCancel(t.Context())
	stdout, w := io.Pipe()
	ended := make(chan result, 1)
	go func() {
		ended <- s.runAs(ctx, func(p *process) { p.stdout = w }, args...)
		w.Close()
	}()
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("%v: %+v", err, <-ended)
	}
	return strings.TrimSpace(line), func() result {
		interrupt()
		return <-ended
	}
}

// TestWeb serves a vault until an interrupt.
func TestWeb(t *testing.T) {
	s := newStage(t)
	s.store(t, workflow.NewV7(), workflow.Running, "nightly")
	url, stop := s.serve(t, "web", "--listen", "127.0.0.1:0")
	for host, want := range map[string]string{"": "nightly", "evil.example": "does not answer to the name evil.example"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		must(t, err)
		r.Host = host
		answer, err := http.DefaultClient.Do(r)
		must(t, err)
		text, err := io.ReadAll(answer.Body)
		if err != nil || answer.Body.Close() != nil || !strings.Contains(string(text), want) {
			t.Errorf("%q: %v\n%s", host, err, text)
		}
	}
	if r := stop(); r.code != exitDone || r.stderr != "" {
		t.Errorf("%+v", r)
	}
}

// TestPastedCommand runs a command that the page of a plan shows.
func TestPastedCommand(t *testing.T) {
	s := newStage(t)
	failed := s.store(t, workflow.NewV7(), workflow.Failed, "nightly")
	url, stop := s.serve(t, "web", "--listen", "127.0.0.1:0")
	defer stop()
	answer, err := http.Get(url + "/plan/" + failed.ID.String())
	must(t, err)
	defer answer.Body.Close()
	page, err := io.ReadAll(answer.Body)
	must(t, err)
	shown := regexp.MustCompile(`data-copy="([^"]*)"`).FindSubmatch(page)
	if shown == nil {
		t.Fatalf("the page has no command:\n%s", page)
	}
	words := shellWords(html.UnescapeString(string(shown[1])))
	s.says(t, exitDone, "run again", append(words[1:], "--dry-run")...)
	if secret := s.env["PLANVAULT_CONNECTION_STRING"]; !strings.Contains(secret, "AccountKey=") || strings.Contains(string(page), "AccountKey") {
		t.Error("the page has the key of the account")
	}
}

// TestWebWarns listens on all addresses, which is dangerous without a login.
func TestWebWarns(t *testing.T) {
	_, stop := newStage(t).serve(t, "web", "--listen", "0.0.0.0:0")
	if r := stop(); r.code != exitDone || !strings.Contains(r.stderr, "there is no login: everybody who reaches") {
		t.Errorf("%+v", r)
	}
}

// TestWebCosts computes what the help says that an hour of watching costs.
func TestWebCosts(t *testing.T) {
	help, _ := helpOf("web")
	for _, v := range []struct {
		what                   string
		days, open, read, each int
	}{
		{"10 days, 20 open plans", 10, 20, 0, 0},
		{"365 days, 20 open plans", 365, 20, 0, 0},
		{"365 days, 20 plans of 60 actions that are stuck", 365, 20, 3, 79},
	} {
		look := price.Tally{azblob.ClassList: 2 + v.days, azblob.ClassOther: v.open, azblob.ClassRead: v.read * v.each}
		want := fmt.Sprintf("    %-52s %s\n", v.what, dollars(look.Dollars()*float64(time.Hour/defaultInterval)))
		if !strings.Contains(help, want) {
			t.Errorf("the help lacks %q", want)
		}
	}
}
