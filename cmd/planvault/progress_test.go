package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/workflow"
)

func TestProgressOnTerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var terminal bytes.Buffer
		term := "xterm"
		p := process{stdout: &terminal, stderr: &terminal, stdoutIsTerm: true, stderrIsTerm: true, getenv: func(string) string { return term }}
		term = "dumb"
		newApp(p).progress("purge", "plan", 5000).at(1)
		if terminal.Len() > 0 {
			t.Errorf("a dumb terminal shows %q", terminal.String())
		}
		term = "xterm"
		a := newApp(p)
		purge := a.progress("purge", "plan", 5000).then("run the command again to go on")
		purge.at(1)
		purge.at(2) // too soon to draw
		time.Sleep(10 * time.Second)
		purge.at(1000)
		io.WriteString(a.stdout, "a result\n")
		purge.end()
		if got, want := terminal.String(), "\r\x1b[Kpurge: 1 of 5,000 plans"+
			"\r\x1b[Kpurge: 1,000 of 5,000 plans, 100/s, 40s left"+
			"\r\x1b[Ka result\n"; got != want {
			t.Errorf("got  %q\nwant %q", got, want)
		}
		if got, want := purge.String(), "purge: 1,000 of 5,000 plans; run the command again to go on"; got != want {
			t.Errorf("%q, not %q", got, want)
		}
	})
}

// TestHoldTellsWait holds a day in which a purge was killed. The command says what it waits for.
func TestHoldTellsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		plan := s.store(t, workflow.NewV7At(time.Now().AddDate(0, 0, -9)), workflow.Completed, "old")
		day := time.Now().UTC().AddDate(0, 0, -9).Format(time.DateOnly)
		s.server.Put("test-"+day, "open/"+plan.ID.String()+"-delete", nil, nil)
		r := s.run(t.Context(), "hold", day, "--yes", "--timeout", "20s")
		if r.code != exitFailed || !strings.Contains(r.stderr, "Waiting to hold "+day) {
			t.Errorf("got %+v", r)
		}
	})
}

// silent is a network on which nobody answers.
func silent(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// TestInterrupt interrupts commands that wait. They say how far they came, and why the latest request had no answer, but
// no secret. Results that nobody reads hold a command up, which then is left alone.
func TestInterrupt(t *testing.T) {
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
		{"hold 2025-10-20 --yes --allow-empty", silent, 0, "interrupted: hold: 0 of 1 day; run the same command again to go on\n"},
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

// clocked is stderr with the time of each write.
type clocked struct {
	began time.Time
	said  []string
}

func (c *clocked) Write(b []byte) (int, error) {
	c.said = append(c.said, fmt.Sprint(time.Since(c.began).Round(time.Second), " ", string(b)))
	return len(b), nil
}

// TestOutage says within three seconds that nobody answers, in a pipe as on a terminal, once in an outage. Looks end after
// a minute, with the cause, and other commands go on until the vault gives up.
func TestOutage(t *testing.T) {
	stalls := func(r *http.Request) (*http.Response, error) { // an answer begins, and nothing follows
		body, _ := io.Pipe()
		context.AfterFunc(r.Context(), func() { _ = body.Close() })
		return &http.Response{StatusCode: 200, Header: http.Header{"X-Ms-Request-Id": {"1"}, "X-Ms-Version": {"1"}, "Content-Type": {"application/xml"}}, Body: body, Request: r}, nil
	}
	down := func(*http.Request) (*http.Response, error) { return nil, errors.New("the cable is cut") }
	for _, test := range []struct {
		args    string
		network transport
		code    int
		first   string
		ended   time.Duration
		last    string
	}{
		{"list", down, exitFailed, "3s planvault: waiting for the service, up to 1m00s in all (--timeout): blob.emulator.invalid: the cable is cut\n", time.Minute, "list did not end within 1m00s (--timeout); last try: blob.emulator.invalid: the cable is cut\n"},
		{"count --timeout 10s", silent, exitFailed, "3s planvault: waiting for the service, up to 10s in all (--timeout): no answer for 3s\n", 10 * time.Second, "count did not end within 10s (--timeout)"},
		{"stuck --timeout 10s", stalls, exitFailed, "3s planvault: waiting for the service, up to 10s in all (--timeout): no answer for 3s\n", 10 * time.Second, "stuck did not end within 10s (--timeout)"},
		{"check", down, exitFailed, "3s planvault: waiting for the service: blob.emulator.invalid: the cable is cut\n", 15 * time.Minute, "unavailable: blob.emulator.invalid: the cable is cut\n"},
		{"list --all", silent, exitFailed, "3s planvault: waiting for the service: no answer for 3s\n", 15 * time.Minute, "nothing was received or sent for 30s"},
		{"list --timeout 0", silent, exitFailed, "3s planvault: waiting for the service: no answer for 3s\n", 15 * time.Minute, "nothing was received or sent for 30s"},
		{"list --timeout -1s", silent, exitUsage, "", 0, "must not be negative\n"},
	} {
		for _, terminal := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t)
				s.network = test.network
				stderr := &clocked{began: time.Now()}
				r := s.runAs(t.Context(), func(p *process) { p.stderr, p.stderrIsTerm = stderr, terminal }, strings.Fields(test.args)...)
				said := slices.DeleteFunc(stderr.said, func(line string) bool { return !strings.Contains(line, "planvault:") })
				ended := time.Since(stderr.began)
				if r.code != test.code || (ended-test.ended).Abs() > time.Minute || test.ended <= time.Minute && ended != test.ended {
					t.Errorf("%s: exit code %d after %v", test.args, r.code, ended)
				}
				if n := len(said); test.first != "" && (n != 2 || said[0] != test.first) || n == 0 || !strings.Contains(said[n-1], test.last) {
					t.Errorf("%s: %q", test.args, said)
				}
			})
		}
	}
}

// slowLogin is a login that takes a time.
type slowLogin time.Duration

func (s slowLogin) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	time.Sleep(time.Duration(s))
	return azcore.AccessToken{}, nil
}

// TestOutageOfLogin says that the service of the login is slow. A login that works does not hide that the vault's service
// is away.
func TestOutageOfLogin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var said []string
		o := outage{say: func(why error) { said = append(said, fmt.Sprint(time.Since(began), " ", why)) }}
		login := func(takes time.Duration) {
			_, _ = watchedLogin{slowLogin(takes), &o}.GetToken(t.Context(), policy.TokenRequestOptions{})
		}
		login(5 * time.Second)
		for range 5 {
			login(time.Second)
			o.observer().Retry(t.Context(), azblob.RetryEvent{Err: errors.New("the cable is cut")})
		}
		o.end()
		if want := []string{"2.5s no answer for 3s", "8.5s the cable is cut"}; !slices.Equal(said, want) {
			t.Errorf("%q", said)
		}
	})
}

// TestOutageAmongAnswers says that a request hangs while others are answered, once, and each of two outages.
func TestOutageAmongAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var said []string
		o := outage{say: func(why error) { said = append(said, fmt.Sprint(time.Since(began), " ", why)) }}
		observer, hung := o.observer(), time.Now()
		observer.RequestStart(t.Context(), azblob.RequestEvent{Start: hung})
		try := func(status int) {
			e := azblob.RequestEvent{Start: time.Now()}
			observer.RequestStart(t.Context(), e)
			time.Sleep(time.Second)
			e.Status = status
			observer.Request(t.Context(), e)
			if status >= 500 {
				observer.Retry(t.Context(), azblob.RetryEvent{Err: errors.New("busy")})
			}
		}
		for range 9 {
			try(200)
		}
		observer.Request(t.Context(), azblob.RequestEvent{Start: hung, Status: 404})
		for range 2 {
			try(503)
			try(200) // in time
		}
		for range 9 {
			try(503)
		}
		try(200)
		time.Sleep(time.Hour)
		for range 9 {
			try(503)
		}
		o.end()
		observer.RequestStart(t.Context(), azblob.RequestEvent{Start: time.Now()})
		time.Sleep(time.Hour)
		if want := []string{"2.5s no answer for 3s", "15.5s busy", "1h0m25.5s busy"}; !slices.Equal(said, want) {
			t.Errorf("%q", said)
		}
	})
}
