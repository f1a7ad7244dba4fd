package main

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/firsthour"
)

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
