package main

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/firsthour"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/workflow"
)

// transport is a function that sends requests.
type transport func(*http.Request) (*http.Response, error)

func (t transport) Do(req *http.Request) (*http.Response, error) { return t(req) }

// fails is a transport on which requests fail below HTTP.
func fails(err error) transport {
	return func(req *http.Request) (*http.Response, error) {
		return nil, &url.Error{Op: "Get", URL: req.URL.String(), Err: err}
	}
}

// TestDoctorSaysWhatIsWrong examines accounts, logins and networks with one thing wrong each. It reads what the doctor
// prints. Time is virtual, so that an answer that never comes takes none.
func TestDoctorSaysWhatIsWrong(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	inject := func(rule *emulator.Rule) func(*stage) { return func(s *stage) { s.server.Inject(rule) } }
	signed := func(p emulator.Permissions) func(*stage) {
		return func(s *stage) {
			delete(s.env, "PLANVAULT_CONNECTION_STRING")
			s.env["PLANVAULT_ENDPOINT"] = "https://devstoreaccount1.blob.core.windows.net/?" + s.server.AccountSAS(p)
		}
	}
	var ahead time.Duration // this machine's clock, of the service's
	clocked := []emulator.Options{{Clock: func() time.Time { return time.Now().Add(-ahead) }}}
	clock := func(by time.Duration) func(*stage) { return func(*stage) { ahead = by } }
	for name, test := range map[string]struct {
		options []emulator.Options
		change  func(*stage)
		network transport
		args    []string
		code    int
		want    []string // lines, their words separated by single spaces
	}{
		"sound": {code: exitDone, want: []string{"ok kind StorageV2", "ok busy the service refused 0 of 10 requests", "ok redundancy Standard_LRS: three copies", "unknown container restore"}},
		"wrong key": {change: func(s *stage) {
			s.env["PLANVAULT_CONNECTION_STRING"] = strings.Replace(s.server.ConnectionString(), "Eby8vdM0", "AAAAAAAA", 1)
		}, code: exitFound, want: []string{"ok reach", "problem read Ping: ping", "check the account key"}},
		"reader": {
			change: signed(emulator.Permissions{Allowed: "rl"}), code: exitFound,
			want: []string{"ok read", "problem write", "lacks the permission w", "problem delete", "lacks the permission d", "ok list"},
		},
		"reader, who needs no more": {change: signed(emulator.Permissions{Allowed: "rl"}), args: []string{"--read-only"}, code: exitDone, want: []string{"ok read", "ok list"}},
		"no right to list": {
			change: signed(emulator.Permissions{Allowed: "rwdc"}), code: exitFound,
			want: []string{"ok write", "problem list List: list containers", "lacks the permission l", "unknown versioning"},
		},
		"expired signature": {change: signed(emulator.Permissions{Allowed: "rwdlc", Expiry: time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC)}), code: exitFound, want: []string{"problem read", "expired at 1999-01-01T00:00:00Z"}},
		"facts are refused": {
			change: inject(emulator.On(emulator.GetAccountInfo, emulator.GetServiceProperties).Do(emulator.Answer(403, "AuthorizationPermissionMismatch"))),
			code:   exitDone, want: []string{"unknown kind ask for the kind of the account", "unknown namespace", "unknown soft delete ask how long", "unknown redundancy"},
		},
		"hierarchical":  {options: []emulator.Options{{HierarchicalNamespace: true}}, code: exitDone, want: []string{"warning namespace hierarchical", "→ it works; listings of large days cost more"}},
		"kept copies":   {options: []emulator.Options{{Versioning: true}, {SoftDelete: true}}, code: exitDone, want: []string{"warning versioning on", "→ add a lifecycle rule", "ok soft delete on, for 7 days"}},
		"clock ahead":   {options: clocked, change: clock(5 * time.Minute), code: exitDone, want: []string{"warning clock this machine's clock is 5m00s ahead", "→ set the clock"}},
		"clock behind":  {options: clocked, change: clock(-5 * time.Minute), code: exitDone, want: []string{"warning clock this machine's clock is 5m00s behind"}},
		"clock far off": {options: clocked, change: clock(20 * time.Minute), code: exitFound, want: []string{"problem clock this machine's clock is 20m00s ahead", "problem read", "the service allows 15m"}},
		"busy at times": {
			change: inject(emulator.On(emulator.GetBlob).Nth(8).Do(emulator.Answer(503, "ServerBusy"))), args: []string{"--probes", "20"}, code: exitDone,
			want: []string{"warning busy the service refused 1 of 20 requests with 503 or 429 (5%)", "→ vaults wait and try again"},
		},
		"busy": {
			change: inject(emulator.On(emulator.GetBlob).Range(8, 100).Do(emulator.Answer(503, "ServerBusy"))), args: []string{"--probes", "20"}, code: exitFound,
			want: []string{"problem busy the service refused 16 of 20 requests", "→ the account is over its limit"},
		},
		"an unsteady network": {
			change: inject(emulator.On(emulator.GetBlob).Range(8, 10).Do(emulator.Reset())), args: []string{"--probes", "20"}, code: exitFound,
			want: []string{"problem busy the service refused 0 of 20 requests", "3 failed otherwise, for example: Ping: ping", "→ look at the network"},
		},
		"a storm": {change: inject(emulator.On().Do(emulator.Answer(503, "ServerBusy"))), code: exitFound, want: []string{"problem reach Ping: ping", "503 ServerBusy"}},
		"a storm that spares reads": {
			change: inject(emulator.On(emulator.ListContainers, emulator.GetAccountInfo).Do(emulator.Answer(503, "ServerBusy"))), code: exitFound,
			want: []string{"ok reach", "problem list", "unknown kind ask for the kind of the account: unavailable"},
		},
		"a login page":     {change: inject(emulator.On().Do(emulator.Foreign(200, "text/html", "<html>log in</html>"))), code: exitFound, want: []string{"problem reach", "which is not the service's"}},
		"another version":  {change: inject(emulator.On().Do(emulator.Answer(400, ""))), code: exitFound, want: []string{"ok reach", "problem read", "or --service-version"}},
		"no name":          {change: inject(emulator.On().Do(emulator.Strip("Server"))), code: exitDone, want: []string{"ok reach the service answers in"}},
		"account disabled": {change: inject(emulator.On().Do(emulator.Answer(403, "AccountIsDisabled"))), code: exitFound, want: []string{"problem read", "the account is disabled"}},
		"firewall":         {change: inject(emulator.On().Do(emulator.Answer(403, "AuthorizationFailure"))), code: exitFound, want: []string{"problem read", "the firewall or the network rules"}},
		"unknown host":     {network: fails(&net.DNSError{Err: "no such host", Name: "h", IsNotFound: true}), code: exitFound, want: []string{"problem reach", "the host is unknown"}},
		"no route":         {network: fails(&net.OpError{Op: "dial", Net: "tcp", Err: errors.New("x")}), code: exitFound, want: []string{"problem reach"}},
		"secrets without a tag": {
			change: func(s *stage) {
				p := planOf(workflow.NewV7(), workflow.Completed, "open")
				for i, a := range p.Blocks[0].Sequences[0].Actions {
					a.Plugin, a.Req = plantest.LooseName, plantest.Loose{Any: map[string]any{"apiKey": "k", "secrets": []string{"hunter2"}, "key": i}}
					a.Secrets = []string{"/req/Any/apiKey"}[i:]
				}
				if err := s.vault.Restore(context.Background(), p); err != nil {
					panic(err)
				}
			}, code: exitDone, want: []string{"warning secrets fields that look like secrets are shown: plugin plantest.Loose /req/Any/apiKey; plugin plantest.Loose /req/Any/secrets/* → add the tag"},
		},
		"silence": {change: inject(emulator.On().Do(emulator.Silence())), code: exitFound, want: []string{"problem reach", "no answer within 10s"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ahead = 0
				time.Sleep(time.Second / 2) // the service's clock shows whole seconds
				s := newStage(t, test.options...)
				s.store(t, workflow.NewV7(), workflow.Completed, "nightly")
				if test.change != nil {
					test.change(s)
				}
				if test.network != nil {
					s.network = test.network
				}
				began := time.Now()
				args := append([]string{"doctor", "--probes", "10"}, test.args...)
				r := s.run(t.Context(), args...)
				text := strings.Join(strings.Fields(r.stdout), " ")
				for _, want := range test.want {
					if !strings.Contains(text, want) {
						t.Errorf("nothing says %q", want)
					}
				}
				said := strings.HasPrefix(r.stderr, "planvault: waiting for the service: ") // that nobody answers
				if r.code != test.code || r.stderr != "" && !said || time.Since(began) > time.Minute {
					t.Errorf("exit code %d after %v, stderr %q\n%s", r.code, time.Since(began), r.stderr, r.stdout)
				} else if t.Failed() {
					t.Log(r.stdout)
				}
				if strings.Contains(r.stdout, "sig=") {
					t.Error("it prints a signature")
				}
			})
		})
	}
}

// TestFirstHour runs doctor --first-hour: its text, its JSON, its exit codes, and what it leaves.
func TestFirstHour(t *testing.T) {
	efforttest.NotShort(t, "TestFirstHourThatWasKilled runs it under the race detector")
	for name, test := range map[string]struct {
		options []emulator.Options
		rule    *emulator.Rule
		args    []string
		code    int
		stdout  []string
		stderr  string
	}{
		"as expected": {
			options: []emulator.Options{{RealAnswers: 1}}, code: exitDone,
			stdout: []string{" 1 as expected  GET and HEAD;", "   expected     200 with", "   seen         HEAD, GET", "   if not       no request works", "\n12 not tried    a ramp", "13 as expected, 0 different, 3 not tried\n"},
		},
		"a difference": {
			rule: emulator.On(emulator.HeadBlob).Path("versions/a").Do(emulator.Answer(404, "BlobNotFound")), code: exitFound,
			stdout: []string{" 1 differs      GET", "HEAD: 404 BlobNotFound", "12 as expected, 1 different, 3 not tried\n"},
		},
		"ramp, not confirmed": {
			args: []string{"--ramp"}, code: exitUsage,
			stderr: "ramp: up to 60,000 writes in up to 1m00s, about 60,000 requests, $0.33, in http://blob.emulator.invalid/devstoreaccount1, prefix first-hour",
		},
		"ramp": {
			options: []emulator.Options{{RealAnswers: 1}}, args: []string{"--ramp", "--yes", "--cost"}, code: exitDone, stderr: "write",
			rule:   emulator.On(emulator.PutBlob).Path("ramp/*").Every(200).Do(emulator.Answer(503, "ServerBusy")),
			stdout: []string{"12 as expected  a ramp", "503 ServerBusy", "14 as expected, 0 different, 2 not tried\n"},
		},
		"what is left": {
			rule: emulator.On(emulator.DeleteContainer).Do(emulator.Answer(403, "AuthorizationFailure")), code: exitFailed,
			stdout: []string{"16 as expected"}, stderr: "-2000-01-01 is left, delete it by hand: 403 AuthorizationFailure",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, test.options...)
				if test.rule != nil {
					s.server.Inject(test.rule)
				}
				r := s.run(t.Context(), append([]string{"doctor", "--first-hour"}, test.args...)...)
				if r.code != test.code || !strings.Contains(r.stderr, test.stderr) || test.stderr == "" && r.stderr != "" {
					t.Errorf("exit code %d, stderr %q", r.code, r.stderr)
				}
				rest := r.stdout
				for _, want := range test.stdout {
					_, after, found := strings.Cut(rest, want)
					if rest = after; !found {
						t.Fatalf("nothing says %q:\n%s", want, r.stdout)
					}
				}
				if left := slices.Collect(s.server.Containers()); len(left) > 0 != (name == "what is left") {
					t.Errorf("left: %v", left)
				}
			})
		})
	}
}

// TestFirstHourAtATerminal has lines that fit the terminal, and shows the progress above them.
func TestFirstHourAtATerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newStage(t).runAs(t.Context(), func(p *process) {
			p.stdoutIsTerm, p.stderrIsTerm, p.terminalSize = true, true, func() (int, int) { return 80, 24 }
		}, "doctor", "--first-hour")
		if r.code != exitDone {
			t.Errorf("exit code %d", r.code)
		}
		for line := range strings.Lines(r.stdout) {
			if textWidth(strings.TrimRight(line, "\n")) > 80 {
				t.Errorf("too long: %s", line)
			}
		}
		for _, want := range []string{"are removed at the end", "first hour: 8 of 16 probes"} {
			if !strings.Contains(r.stderr, want) {
				t.Errorf("nothing says %q: %q", want, r.stderr)
			}
		}
	})
}

// TestFirstHourIsInterrupted interrupts the wait for a lease: the objects until then are whole, and nothing is left, or it
// is named.
func TestFirstHourIsInterrupted(t *testing.T) {
	for _, left := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := newStage(t)
			ctx, cancel := context.WithCancel(t.Context())
			if left {
				s.server.Inject(emulator.On(emulator.DeleteContainer).Do(emulator.Answer(500, "InternalError")))
			}
			ended := make(chan result)
			go func() { ended <- s.run(ctx, "doctor", "--first-hour", "--output", "json") }()
			synctest.Wait()
			cancel()
			r := <-ended
			d := json.NewDecoder(strings.NewReader(r.stdout))
			for n := 1; n <= 7; n++ {
				var f firsthour.Finding
				if err := d.Decode(&f); err != nil || f.Number != n || f.Verdict == "" || len(f.Parts) == 0 || f.Breaks == "" {
					t.Fatalf("object %d: %+v, %v", n, f, err)
				}
			}
			if r.code != exitInterrupted || d.More() || !strings.Contains(r.stderr, "interrupted: first hour: 7 of 16 probes") {
				t.Errorf("exit code %d, %q", r.code, r.stderr)
			}
			if left != strings.Contains(r.stderr, "is left, delete it by hand: 500 InternalError") || left != (s.server.Len(prefix) == 0 && len(slices.Collect(s.server.Containers())) > 0) {
				t.Errorf("%q", r.stderr)
			}
		})
	}
}

// TestFirstHourThatWasKilled leaves containers. The tool says what they are, and the next first hour removes them. It needs
// no prefix.
func TestFirstHourThatWasKilled(t *testing.T) {
	efforttest.NotShort(t, "TestFirstHourAtATerminal runs the probes under the race detector")
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		for _, day := range []string{"2000-01-01", "2000-01-02"} {
			s.server.PutContainer("first-hour-0badcafe-"+day, map[string]string{"firsthour": "1"})
		}
		const is = "first-hour-0badcafe is no vault: a first hour is at work there, or was killed"
		if r := s.run(t.Context(), "vaults"); r.code != exitFound || !strings.Contains(r.stderr, is) || strings.Contains(r.stdout, "first-hour") {
			t.Errorf("vaults: %+v", r)
		}
		if r := s.run(t.Context(), "doctor"); !strings.Contains(r.stdout, "first-hour-0badcafe: a first hour is at work") || !strings.Contains(r.stdout, "the account has no vault") {
			t.Errorf("doctor: %+v", r)
		}
		delete(s.env, "PLANVAULT_PREFIX")
		r := s.run(t.Context(), "doctor", "--first-hour")
		if r.code != exitDone || !strings.Contains(r.stderr, "the containers of first-hour-0badcafe are removed") || len(slices.Collect(s.server.Containers())) > 0 {
			t.Errorf("first hour: %+v", r)
		}
	})
}
