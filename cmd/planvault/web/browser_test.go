package web_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/planvault/azblob/cmd/planvault/report"
	"github.com/planvault/azblob/cmd/planvault/web"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/workflow"
)

// browser runs a headless Chromium for a second of its scripts, and returns the page that it then shows and what its
// console has said.
func browser(t *testing.T, url string) (dom string, console []string) {
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
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, path, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
		"--user-data-dir="+t.TempDir(), "--enable-logging=stderr", "--v=0", "--virtual-time-budget=1000", "--dump-dom", url)
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	c.WaitDelay = time.Second // processes that it leaves behind may hold the pipes
	if err := c.Run(); err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	for line := range strings.Lines(stderr.String()) {
		if strings.Contains(line, "CONSOLE") {
			console = append(console, strings.TrimSpace(line))
		}
	}
	return stdout.String(), console
}

// TestBrowser visits all pages with a browser. What changes when a script of a page asks for news must appear, and the
// console must be silent: it tells of errors, and of everything that a policy refuses. The last page, whose script the
// policy of reports forbids, proves that.
func TestBrowser(t *testing.T) {
	st := newStore()
	st.add(t, "here already", workflow.NotStarted)
	running := st.add(t, hostile[0], workflow.Running)
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
