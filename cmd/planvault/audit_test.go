package main

import (
	"context"
	"encoding/base64"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"

	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

func ofLog(r emulator.Request) bool { return strings.HasSuffix(r.Container, "-log") }

// TestLogIsNotInTheWay holds a day while the log can't be written.
func TestLogIsNotInTheWay(t *testing.T) {
	for name, fault := range map[string]*emulator.Rule{
		"denied": emulator.On().Where(ofLog).Do(emulator.Answer(403, "AuthorizationPermissionMismatch")),
		"down":   emulator.On().Where(ofLog).Do(emulator.Answer(503, "ServerBusy")),
		"silent": emulator.On().Where(ofLog).Do(emulator.Silence()),
		"full":   emulator.On(emulator.PutBlob).Where(ofLog).Nth(3).Do(emulator.Answer(403, "AuthorizationPermissionMismatch")),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t)
				id := s.fill(t, 1, 1)[0]
				s.server.Inject(fault)
				began := time.Now()
				r := s.must(t, "hold", date(workflow.Time(id)), "--yes")
				if took := time.Since(began); took > 15*time.Second || !strings.Contains(r.stderr, "the log does not have all of this change, which was made all the same: ") {
					t.Errorf("after %v it says %s", took, r.stderr)
				}
				s.server.ClearFaults()
				held := s.must(t, "hold", "--list").stdout
				if log := s.must(t, "log").stdout; !strings.Contains(held, date(workflow.Time(id))) || name == "full" && !strings.Contains(log, "  began ") {
					t.Errorf("holds %s, log %s", held, log)
				}
			})
		})
	}
}

// TestLogOfAFailure lets changes fail. The log says so.
func TestLogOfAFailure(t *testing.T) {
	s := newStage(t)
	id := s.fill(t, 1, 1)[0]
	s.server.Inject(emulator.On(emulator.LeaseContainer).Do(emulator.Answer(403, "AuthorizationFailure")))
	if r := s.run(t.Context(), "hold", date(workflow.Time(id)), "--yes"); r.code == exitDone {
		t.Error("the hold did not fail")
	}
	entries, err := storage.Collect(s.vault.Control().AuditEntries(t.Context(), storage.AuditFilters{}))
	if err != nil || len(entries) != 1 || !strings.HasPrefix(entries[0].Result, "failed: ") || strings.Contains(entries[0].Result, "\n") {
		t.Errorf("the log has %+v, %v", entries, err)
	}
}

// TestWhoAndWhy stops and forks a plan. Its pages say who did, and why.
func TestWhoAndWhy(t *testing.T) {
	s := newStage(t)
	p := planOf(workflow.NewV7(), workflow.Stopped, "one")
	p.Submitted = workflow.Actor{By: "sh\u202eop@example.com", From: "<orders-2>"}
	p.Stopped = workflow.Attribution{By: "ops\u202e@example.com", Why: "wrong <cluster>", At: p.SubmitTime}
	must(t, s.vault.Restore(t.Context(), p))
	fork := strings.TrimSpace(s.must(t, "fork", p.ID.String(), "--from-failure", "--as", "ana", "--reason", "now the right one").stdout)
	for _, test := range []struct{ id, want, html, json string }{
		{
			p.ID.String(), `Stopped by   ops\u202e@example.com, ` + stamp(p.SubmitTime) + ": wrong <cluster>\n",
			"wrong &lt;cluster&gt;", `"stopped":{"by":"ops` + "\u202e" + `@example.com","why":"wrong <cluster>","at":`,
		},
		{p.ID.String(), `Submitted by sh\u202eop@example.com, from <orders-2>` + "\n", `sh\u202eop@example.com, from &lt;orders-2&gt;`, `"submittedBy":"sh` + "\u202e" + `op@example.com","started":`},
		{fork, "Submitted by ana, from operator@desk\n", "ana, from operator@desk", `"submittedFrom":"operator@desk"`},
		{fork, "Forked by    ana: now the right one\n", "ana: now the right one", `"forked":{"by":"ana","why":"now the right one"}`},
	} {
		for command, want := range map[string]string{"show": test.want, "report": test.html, "show --output json": test.json, "log --wide": "now the right one"} {
			words := append(strings.Fields(command), test.id)
			if command == "report" {
				words = append(words, "-o", "-")
			}
			if got := s.must(t, words...).stdout; !strings.Contains(got, want) {
				t.Errorf("%s of %s lacks %q:\n%s", command, test.id, want, got)
			}
		}
	}
}

// jwt returns an access token with claims, which are JSON.
func jwt(claims string) azcore.AccessToken {
	return azcore.AccessToken{Token: "head." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".signature"}
}

func TestNameInToken(t *testing.T) {
	for claims, want := range map[string]string{
		`{"upn":"ops@example.com","oid":"1"}`:        "ops@example.com",
		`{"unique_name":"live.com#ops","appid":"2"}`: "live.com#ops",
		`{"appid":"2","oid":"3"}`:                    "2",
		`{"app_displayname":"nightly","appid":"2"}`:  "nightly",
		`{"upn":7}`: "",
		`{}`:        "",
		`{"upn":"` + strings.Repeat("ö", 500) + `"}`:       strings.Repeat("ö", 98) + "…",
		`{"upn":" a\nb\u0007 "}`:                           `a\nb\a`,
		`{"upn":"` + strings.Repeat("x", 64<<10) + `"}`:    "",
		`{"upn":"` + strings.Repeat("x", 200) + `","a":1}`: strings.Repeat("x", 200),
	} {
		if got := nameIn(jwt(claims)); got != want {
			t.Errorf("%.60s: %q, want %q", claims, got, want)
		}
	}
	for _, text := range []string{"", "opaque", "a.b", "a.!!.c", "a..c", "a.e30.c"} {
		if got := nameIn(azcore.AccessToken{Token: text}); got != "" {
			t.Errorf("%q names %q", text, got)
		}
	}
}

func FuzzNameInToken(f *testing.F) {
	f.Add(`{"upn":"ops@example.com"}`)
	f.Fuzz(func(t *testing.T, claims string) {
		if err := workflow.CheckAttribution(workflow.Attribution{By: nameIn(jwt(claims))}); err != nil {
			t.Errorf("%q: %v", claims, err)
		}
	})
}

// TestEveryChangeIsInTheLog imports, mirrors and builds catalogues. The vault that each of them changes has it in its log,
// and the help of log names every kind of change.
func TestEveryChangeIsInTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		s.fill(t, 1, 2)
		file := t.TempDir() + "/all.bundle"
		s.must(t, "export", "-o", file)
		to := []string{"--to-connection-string", s.server.ConnectionString(), "--to-prefix", "copy", "--yes", "--reason", "a rehearsal"}
		ctx, stop := context.WithTimeout(t.Context(), 10*time.Minute)
		defer stop()
		s.run(ctx, append([]string{"mirror", "--follow"}, to...)...)
		s.store(t, workflow.NewV7(), workflow.Completed, "more")
		s.must(t, append([]string{"mirror"}, to...)...)
		s.must(t, "recover", "--catalogue", "--yes")
		s.must(t, "import", file, "--prefix", "imported", "--yes")
		for prefix, want := range map[string][]string{"copy": {"mirror", "done", "mirror", "done"}, "imported": {"import", "done"}, prefix: {"catalogue", "done"}} {
			entries, err := storage.Collect(s.open(t, prefix).Control().AuditEntries(t.Context(), storage.AuditFilters{}))
			must(t, err)
			var got []string
			for _, d := range entries {
				got = append(got, d.What, d.Result)
			}
			if !slices.Equal(got, want) {
				t.Errorf("the log of %s has %q, want %q", prefix, got, want)
			}
		}
	})
	files, err := filepath.Glob("*.go")
	must(t, err)
	help, err := os.ReadFile("help/log.txt")
	must(t, err)
	for _, name := range files {
		text, err := os.ReadFile(name)
		must(t, err)
		for _, kind := range regexp.MustCompile(`(?:about\(|What: )"([a-z]+)`).FindAllStringSubmatch(string(text), -1) {
			if !strings.Contains(string(help), kind[1]) {
				t.Errorf("planvault help log lacks %s, of %s", kind[1], name)
			}
		}
	}
}
