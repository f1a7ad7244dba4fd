package web_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
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

// tour leads a browser from page to page. It adds two things to each page: an image that never comes, so that the
// page is still loading, and a script that waits until the page shows a text, reports the page, and goes on to the
// next one. Pages that allow no script end the tour.
type tour struct {
	server http.Handler
	stops  []stop
	// listens is called when a page begins to listen to events.
	listens func()

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
	case "/never":
		<-q.Context().Done()
	case "/events":
		r.listens()
		r.server.ServeHTTP(w, q)
	default:
		recorded := httptest.NewRecorder()
		r.server.ServeHTTP(recorded, q)
		body := recorded.Body.String()
		if policy := recorded.Header().Get("Content-Security-Policy"); strings.Contains(policy, "script-src") {
			added := fmt.Sprintf(`<script src="/tour.js?at=%s" defer></script><img src="/never" alt="">`, q.URL.Path)
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
// silent: it tells of errors, and of everything that a policy refuses.
func TestBrowser(t *testing.T) {
	st := newStore()
	final := st.add(t, hostile[0], workflow.Failed)
	st.add(t, "here already", workflow.NotStarted)
	var listening atomic.Int64
	r := &tour{
		server: web.New(st, web.Options{Interval: 50 * time.Millisecond}),
		stops: []stop{
			{"/", "#open tr.new", "arrives later"},
			{"/fleet", "#members tr.new", "joins later"},
			{"/history?contains=script", "main table", final.ID.String()},
			{"/health", "main", "The store answers."},
			{url: "/plan/" + final.ID.String()},
		},
		listens: func() {
			switch listening.Add(1) {
			case 1:
				st.add(t, "arrives later", workflow.NotStarted)
			case 2:
				st.join(t, "joins later")
			}
		},
	}
	server := httptest.NewServer(r)
	defer server.Close()
	defer server.CloseClientConnections()
	dom, console := browser(t, server.URL+"/")
	for _, line := range console {
		t.Error(line)
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
	if !strings.Contains(r.pages[1], `<dt>nodes alive</dt><dd>1</dd>`) {
		t.Error("the number of nodes is old")
	}
	if strings.Contains(dom, "<script>alert") || !strings.Contains(dom, "&lt;script&gt;alert(1)") {
		t.Errorf("the report of a plan shows its name wrongly:\n%.2000s", dom)
	}
}

// TestBrowserTells proves that a page that breaks its policy would be noticed.
func TestBrowserTells(t *testing.T) {
	s := web.New(newStore(), web.Options{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		recorded := httptest.NewRecorder()
		s.ServeHTTP(recorded, r)
		w.Header().Set("Content-Security-Policy", recorded.Header().Get("Content-Security-Policy"))
		w.Header().Set("Content-Type", "text/html")
		io.WriteString(w, `<p style="color:red" onclick="x">a</p><script>document.body.append("inline scripts run")</script>`)
	}))
	defer server.Close()
	dom, console := browser(t, server.URL+"/health")
	if refused := regexp.MustCompile(`(?i)content security policy`); len(console) == 0 || !refused.MatchString(strings.Join(console, "\n")) {
		t.Errorf("the console says %q", console)
	}
	if strings.Contains(dom, "<p>inline scripts run") || strings.Contains(dom, "</script>inline scripts run") {
		t.Error("inline scripts run")
	}
}
