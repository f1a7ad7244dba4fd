package main

import (
	"bufio"
	"context"
	"fmt"
	"html"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/internal/price"
	"github.com/planvault/azblob/workflow"
)

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
