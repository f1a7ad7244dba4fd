package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/planvault/azblob/workflow"
)

func TestProgressOnTerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var terminal bytes.Buffer
		a := newApp(process{stdout: &terminal, stderr: &terminal, stdoutIsTerm: true, stderrIsTerm: true})
		p := a.progress("purge", "plan", 5000).then("run the command again to go on")
		p.at(1)
		p.at(2) // too soon to draw
		time.Sleep(10 * time.Second)
		p.at(1000)
		io.WriteString(a.stdout, "a result\n")
		p.end()
		if got, want := terminal.String(), "\r\x1b[Kpurge: 1 of 5,000 plans"+
			"\r\x1b[Kpurge: 1,000 of 5,000 plans, 100/s, 40s left"+
			"\r\x1b[Ka result\n"; got != want {
			t.Errorf("got  %q\nwant %q", got, want)
		}
		if got, want := p.String(), "purge: 1,000 of 5,000 plans; run the command again to go on"; got != want {
			t.Errorf("%q, not %q", got, want)
		}
	})
}

// TestInterrupt interrupts commands that wait. They say how far they came, and why the latest request had no answer, but
// no secret. Results that nobody reads hold a command up, which then is left alone.
func TestInterrupt(t *testing.T) {
	silent := func(r *http.Request) (*http.Response, error) {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	down := func(*http.Request) (*http.Response, error) {
		return nil, &url.Error{Op: "Get", URL: "https://a.blob.core.windows.net/?sig=SECRET", Err: errors.New("the cable is cut")}
	}
	for _, test := range []struct {
		args    string
		network transport // nil is the server's
		late    time.Duration
		stderr  string
	}{
		{"list", silent, 0, "planvault: interrupted: list: 0 plans\n"},
		{"list", down, 0, "planvault: interrupted: list: 0 plans\nplanvault: the latest request had no answer: the cable is cut\n"},
		{"hold 2025-10-20 --yes", silent, 0, "interrupted: hold: 0 of 1 day; run the same command again to go on\n"},
		{"list", nil, interruptGrace, "planvault: interrupted: list: 1 plan\n"},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newStage(t)
			s.store(t, planID(1), workflow.Running, "plan")
			if test.network != nil {
				s.network = test.network
			}
			ctx, interrupt := context.WithCancel(t.Context())
			time.AfterFunc(3*time.Second, interrupt)
			read, blocked := io.Pipe()
			defer read.Close()
			began := time.Now()
			r := s.runAs(ctx, func(p *process) {
				if test.late > 0 {
					p.stdout = blocked
				}
			}, strings.Fields(test.args)...)
			if r.code != exitInterrupted || !strings.HasSuffix(r.stderr, test.stderr) || time.Since(began) != 3*time.Second+test.late {
				t.Errorf("%s, after %v: %+v", test.args, time.Since(began), r)
			}
		})
	}
}

// TestOutageOnTerminal says once that nobody answers, long before the vault gives up. In a pipe it says nothing.
func TestOutageOnTerminal(t *testing.T) {
	for _, terminal := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := newStage(t)
			s.network = transport(func(*http.Request) (*http.Response, error) { return nil, errors.New("the cable is cut") })
			ctx, interrupt := context.WithTimeout(t.Context(), time.Minute)
			defer interrupt()
			r := s.runAs(ctx, func(p *process) { p.stderrIsTerm = terminal }, "list")
			if n := strings.Count(r.stderr, "is asked again for up to 15 minutes: blob.emulator.invalid: the cable is cut\n"); n > 1 || (n == 1) != terminal {
				t.Errorf("%q", r.stderr)
			}
		})
	}
}
