package web_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/planvault/azblob/cmd/planvault/internal/report"
	"github.com/planvault/azblob/cmd/planvault/internal/web"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/workflow"
)

// chromium runs a headless Chromium, and returns what it prints.
func chromium(t *testing.T, args ...string) (stdout, stderr string) {
	t.Helper()
	efforttest.NotShort(t, "it starts a browser")
	var path string
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		t.Skip("neither chromium, chromium-browser nor google-chrome is installed")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, path, append([]string{
		"--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--user-data-dir=" + t.TempDir(),
	}, args...)...)
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	c.WaitDelay = time.Second // processes that it leaves behind may hold the pipes
	if err := c.Run(); err != nil {
		t.Fatalf("%v\n%s", err, errs.String())
	}
	return out.String(), errs.String()
}

// browser runs the scripts of a page for a second, and returns the page that is then shown and what the console has
// said.
func browser(t *testing.T, url string) (dom string, console []string) {
	t.Helper()
	dom, stderr := chromium(t, "--enable-logging=stderr", "--v=0", "--virtual-time-budget=1000", "--dump-dom", url)
	for line := range strings.Lines(stderr) {
		if strings.Contains(line, "CONSOLE") {
			console = append(console, strings.TrimSpace(line))
		}
	}
	return dom, console
}

// TestPrint prints a plan of 1,001 actions. Without the lines of its actions it would have a page or two.
func TestPrint(t *testing.T) {
	p, now := plantest.Sized(7, 13, 11), time.Now()
	for o := range workflow.Walk(p) {
		h := o.Header()
		*h.ID = workflow.NewV7()
		s := h.State
		s.Status, s.Start, s.End = workflow.Completed, now, now.Add(time.Second)
		if a, ok := o.(*workflow.Action); ok {
			a.Attempts = []workflow.Attempt{{Start: now, End: now.Add(time.Second)}}
		}
	}
	page, pdf := filepath.Join(t.TempDir(), "plan.html"), filepath.Join(t.TempDir(), "plan.pdf")
	var b bytes.Buffer
	must(t, report.Write(&b, p, report.Options{}))
	must(t, os.WriteFile(page, b.Bytes(), 0o600))
	chromium(t, "--print-to-pdf="+pdf, "file://"+page)
	text, err := os.ReadFile(pdf)
	must(t, err)
	if n := len(regexp.MustCompile(`/Type\s*/Page\b`).FindAll(text, -1)); n < 7 || n > 30 {
		t.Errorf("the report prints on %d pages", n)
	}
}

// TestBrowser visits all pages with a browser. What changes when a script of a page asks for news must appear, and the
// console must be silent: it tells of errors, and of everything that a policy refuses. The last page, whose script the
// policy of reports forbids, proves that. What a reader has folded stays folded.
func TestBrowser(t *testing.T) {
	st := newStore()
	st.add(t, "here already", workflow.NotStarted)
	running, failed := st.add(t, hostile[0], workflow.Running), st.add(t, "failed", workflow.Failed)
	long := plantest.Sized(1, 1, 1)
	must(t, st.Create(t.Context(), long))
	long.State.Status, long.State.Start = workflow.Running, time.Now()
	st.update(t, long)
	pages := web.New(st, web.Options{Interval: 10 * time.Millisecond})
	for _, test := range []struct {
		path    string
		happens func() // may be nil
		want    string // matches the page that is shown in the end
	}{
		{
			"/", func() { st.add(t, "arrives later", workflow.NotStarted) },
			`<html lang="en" class="script">.*class="up">Live</span>.*<dt>waiting</dt><dd>2</dd>.*here already.*<tr [^>]*class="new".*arrives later`,
		},
		{"/fleet", func() { st.join(t, "joins later") }, `<dt>node alive</dt><dd>1</dd>.*<tr [^>]*class="new".*joins later`},
		{"/history?contains=script", nil, `<table.*` + running.ID.String()},
		{"/health", nil, "The store answers."},
		{"/plan/" + running.ID.String(), func() { st.end(t, running, workflow.Failed) }, `&lt;script&gt;alert\(1\).*class="badge bad">.*failed<`},
		{"/plan/" + failed.ID.String(), nil, `id="said"[^>]*>(Copied|Selected): planvault fork `},
		{"/plan/" + long.ID.String(), func() { st.end(t, long, workflow.Failed) }, `class="badge bad">.*<details class="node block[^"]*">`},
		{"/forbidden", nil, "<title>quiet"},
	} {
		t.Run(test.path, func(t *testing.T) {
			var once sync.Once
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch {
				case r.URL.Path == "/forbidden":
					w.Header().Set("Content-Security-Policy", report.Policy(report.Options{}))
					io.WriteString(w, `<title>quiet</title><script>document.title = "inline scripts run"</script>`)
					return
				case r.URL.Path == "/static/copy.js":
					w.Header().Set("Content-Type", "text/javascript")
					io.WriteString(w, get(t, pages, r.URL.Path).Body.String()+"document.querySelector('[data-copy*=fork]')?.click(); document.querySelector('details.block')?.removeAttribute('open');")
					return
				case r.Header.Get("Sec-Fetch-Mode") == "cors" && test.happens != nil:
					once.Do(test.happens)
				}
				pages.ServeHTTP(w, r)
			}))
			defer server.Close()
			dom, console := browser(t, server.URL+test.path)
			if !regexp.MustCompile("(?s)"+test.want).MatchString(dom) || strings.Contains(dom, "<script>alert") {
				t.Errorf("the page lacks %s:\n%s", test.want, dom)
			}
			if (len(console) > 0) != (test.path == "/forbidden") {
				t.Errorf("the console says %q", console)
			}
		})
	}
}
