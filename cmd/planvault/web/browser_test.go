package web_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/planvault/azblob/cmd/planvault/web"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/workflow"
)

// browser runs a headless Chromium until it has loaded an address, and returns the page that it then shows and what
// its console has said.
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
		"--user-data-dir="+t.TempDir(), "--enable-logging=stderr", "--v=0", "--dump-dom", url)
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

// tour leads a browser from page to page. It adds two scripts to each page: one waits until the page shows a text,
// reports the page, and goes on to the next one; the other never comes, so that the page is still loading. The last
// page gets a script that the policy forbids.
type tour struct {
	server http.Handler
	stops  []stop
	// fetched is called when a script of a page asks for an address.
	fetched func(path string)

	mu    sync.Mutex
	pages []string
}

// stop is a page of a tour.
type stop struct {
	url      string
	selector string // of the element that shows the text in the end
	text     string
}

func (r *tour) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	switch q.URL.Path {
	case "/tour.js":
		w.Header().Set("Content-Type", "text/javascript")
		io.WriteString(w, r.script(q.URL.Query().Get("at")))
	case "/tour":
		page, _ := io.ReadAll(q.Body)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.pages = append(r.pages, string(page))
	case "/never.js":
		<-q.Context().Done()
	default:
		if q.Header.Get("Sec-Fetch-Mode") == "cors" {
			r.fetched(q.URL.Path)
		}
		recorded := httptest.NewRecorder()
		r.server.ServeHTTP(recorded, q)
		added := fmt.Sprintf(`<script src="/tour.js?at=%s" defer></script><script src="/never.js" defer></script>`, q.URL.Path)
		if q.URL.Path == r.stops[len(r.stops)-1].url {
			added = forbidden
		}
		body := recorded.Body.String()
		if strings.HasPrefix(recorded.Header().Get("Content-Type"), "text/html") {
			body = strings.Replace(body, "</head>", added+"</head>", 1)
		}
		for name, values := range recorded.Header() {
			w.Header()[name] = values
		}
		w.Header().Del("Content-Length")
		w.WriteHeader(recorded.Code)
		io.WriteString(w, body)
	}
}

// forbidden is a script that no policy allows.
const forbidden = `<script>document.title = "inline scripts run"</script>`

// script returns the script of a page.
func (r *tour) script(at string) string {
	for i, s := range r.stops[:len(r.stops)-1] {
		if path, _, _ := strings.Cut(s.url, "?"); path != at {
			continue
		}
		return fmt.Sprintf(`
const look = async () => {
	if (!document.querySelector(%q)?.textContent.includes(%q)) return;
	watch.disconnect();
	await fetch('/tour', {method: 'POST', body: document.documentElement.outerHTML});
	location = %q;
};
const watch = new MutationObserver(look);
watch.observe(document, {subtree: true, childList: true, characterData: true});
look();`, s.selector, s.text, r.stops[i+1].url)
	}
	return ""
}

// TestBrowser visits all pages with a browser. What changes while it looks must appear, and its console must be
// silent: it tells of errors, and of everything that a policy refuses. A script that the test adds to the last page
// proves that.
func TestBrowser(t *testing.T) {
	st := newStore()
	final := st.add(t, hostile[0], workflow.Failed)
	st.add(t, "here already", workflow.NotStarted)
	running := st.add(t, "ends later", workflow.Running)
	var arrives, joins, ends sync.Once
	r := &tour{
		server: web.New(st, web.Options{Interval: 50 * time.Millisecond}),
		stops: []stop{
			{"/", "#open tr.new", "arrives later"},
			{"/fleet", "#members tr.new", "joins later"},
			{"/history?contains=script", "main table", final.ID.String()},
			{"/health", "main", "The store answers."},
			{"/plan/" + running.ID.String(), ".badge", "ailed"},
			{url: "/plan/" + final.ID.String()},
		},
		fetched: func(path string) {
			switch path {
			case "/":
				arrives.Do(func() { st.add(t, "arrives later", workflow.NotStarted) })
			case "/fleet":
				joins.Do(func() { st.join(t, "joins later") })
			default:
				ends.Do(func() { st.end(t, running, workflow.Failed) })
			}
		},
	}
	server := httptest.NewServer(r)
	defer server.Close()
	defer server.CloseClientConnections()
	dom, console := browser(t, server.URL+"/")
	if len(console) == 0 || strings.Contains(dom, "<title>inline") {
		t.Error("the forbidden script runs, or the console does not complain of it")
	}
	for _, line := range console {
		if !strings.Contains(line, "Executing inline script violates the following Content Security Policy") || !strings.Contains(line, final.ID.String()) {
			t.Error(line)
		}
	}
	if len(r.pages) != len(r.stops)-1 {
		t.Fatalf("the browser has seen %d pages, want %d", len(r.pages), len(r.stops)-1)
	}
	open := r.pages[0]
	if first, second := strings.Index(open, "here already"), strings.Index(open, "arrives later"); first < 0 || second < first {
		t.Error("the new plan is not below the other")
	}
	for _, want := range []string{`<html lang="en" class="script">`, `class="up">Live</span>`, `<dt>waiting</dt><dd>2</dd>`} {
		if !strings.Contains(open, want) {
			t.Errorf("the page of open plans lacks %s:\n%s", want, open)
		}
	}
	if !strings.Contains(r.pages[1], `<dt>node alive</dt><dd>1</dd>`) {
		t.Error("the number of nodes is old")
	}
	if strings.Contains(dom, "<script>alert") || !strings.Contains(dom, "&lt;script&gt;alert(1)") {
		t.Errorf("the report of a plan shows its name wrongly:\n%.2000s", dom)
	}
}
