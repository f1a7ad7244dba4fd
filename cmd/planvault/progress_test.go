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

	"github.com/planvault/azblob/emulator"
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

func TestProgressInPipe(t *testing.T) {
	var b bytes.Buffer
	p := newApp(process{stdout: &b, stderr: &b}).progress("list", "plan", 0)
	p.at(1)
	p.end()
	if b.Len() > 0 || p.String() != "list: 1 plan" {
		t.Errorf("%q, %q", b.String(), p)
	}
}

// TestInterrupt interrupts a listing at a request that is not answered.
func TestInterrupt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		s.server.Inject(emulator.On(emulator.ListContainers).Do(emulator.Silence()))
		ctx, interrupt := context.WithCancel(t.Context())
		time.AfterFunc(3*time.Second, interrupt)
		began := time.Now()
		r := s.run(ctx, "list")
		if r.code != exitInterrupted || r.stderr != "planvault: interrupted: list: 0 plans\n" || time.Since(began) != 3*time.Second {
			t.Errorf("after %v: %+v", time.Since(began), r)
		}
	})
}

// TestInterruptOfOutage interrupts a listing that nobody answers. The user learns why, and no secret.
func TestInterruptOfOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		down := &url.Error{Op: "Get", URL: "https://a.blob.core.windows.net/?sig=SECRET", Err: errors.New("the cable is cut")}
		s.network = transport(func(*http.Request) (*http.Response, error) { return nil, down })
		ctx, interrupt := context.WithCancel(t.Context())
		time.AfterFunc(3*time.Second, interrupt)
		r := s.run(ctx, "list")
		if want := "planvault: interrupted: list: 0 plans\nplanvault: the latest request had no answer: the cable is cut\n"; r.code != exitInterrupted || r.stderr != want {
			t.Errorf("%+v", r)
		}
	})
}

// TestInterruptOfADay does not count the day at which a command was interrupted.
func TestInterruptOfADay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		s.network = transport(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})
		ctx, interrupt := context.WithCancel(t.Context())
		time.AfterFunc(3*time.Second, interrupt)
		if r := s.run(ctx, "hold", "2025-10-20", "--yes"); r.code != exitInterrupted || !strings.Contains(r.stderr, "interrupted: hold: 0 of 1 day;") {
			t.Errorf("%+v", r)
		}
	})
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

// TestInterruptOfBlockedWrite interrupts a command whose results nobody reads.
func TestInterruptOfBlockedWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		if _, err := s.store(t.Context(), planID(1), workflow.Running, "plan"); err != nil {
			t.Fatal(err)
		}
		ctx, interrupt := context.WithCancel(t.Context())
		time.AfterFunc(time.Minute, interrupt)
		read, blocked := io.Pipe()
		defer read.Close()
		began := time.Now()
		r := s.runAs(ctx, func(p *process) { p.stdout = blocked }, "list")
		if r.code != exitInterrupted || time.Since(began) != time.Minute+interruptGrace || !strings.Contains(r.stderr, "list: 1 plan") {
			t.Errorf("after %v: %+v", time.Since(began), r)
		}
	})
}
