package web_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/cmd/planvault/internal/web"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/internal/settings"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// addresses returns an address of each kind.
func addresses(plan uuid.UUID) []string {
	return []string{
		"/", "/fleet", "/history", "/health", "/healthz", "/metrics", "/plan/" + plan.String(), "/plan/" + plan.String() + ".json",
		"/plan/none", "/plan/" + workflow.NewV7().String(), "/none", "/static/style.css", "/static/app.js", "/static/none",
		"/history?status=Failed&after=2026-01-01", "/history?after=yesterday",
	}
}

func TestOnlyReads(t *testing.T) {
	s := web.New(newStore(), web.Options{})
	for _, url := range addresses(workflow.NewV7()) {
		for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions, http.MethodTrace, "PURGE"} {
			w := httptest.NewRecorder()
			s.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, url, nil))
			if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET, HEAD" {
				t.Errorf("%s %s: %d, Allow %q", method, url, w.Code, w.Header().Get("Allow"))
			}
		}
	}
}

func TestHeaders(t *testing.T) {
	st := newStore()
	s := web.New(st, web.Options{})
	for _, url := range addresses(st.add(t, "a", workflow.Failed).ID) {
		h := get(t, s, url).Header()
		policy := h.Get("Content-Security-Policy")
		for _, want := range []string{"default-src 'none'", "base-uri 'none'", "frame-ancestors 'none'", "form-action"} {
			if !strings.Contains(policy, want) {
				t.Errorf("%s: the policy %q lacks %q", url, policy, want)
			}
		}
		if strings.Contains(policy, "unsafe") || strings.Contains(policy, "*") || strings.Contains(policy, "http") {
			t.Errorf("%s: the policy allows too much: %q", url, policy)
		}
		for name, want := range map[string]string{
			"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "X-Frame-Options": "DENY",
			"Cross-Origin-Resource-Policy": "same-origin", "Cross-Origin-Opener-Policy": "same-origin", "Cache-Control": "no-store",
		} {
			if got := h.Get(name); got != want {
				t.Errorf("%s: %s is %q", url, name, got)
			}
		}
	}
}

func TestHosts(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	local := web.New(newStore(), web.Options{Hosts: append(web.LoopbackHosts(), "plans.example.com")})
	open := web.New(newStore(), web.Options{})
	allowed := []string{
		"localhost", "localhost:8484", "LOCALHOST:1", "localhost.:8484", "127.0.0.1:8484", "127.0.0.1", "[::1]:8484", "[::1]", "plans.example.com",
	}
	refused := []string{
		"evil.example", "evil.example:8484", "localhost.evil.example", "127.0.0.1.evil.example", "", "127.0.0.2", "localhost:8484:1", "<script>",
	}
	for _, host := range append(allowed, refused...) {
		for _, url := range addresses(workflow.NewV7()) {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodHead, url, nil)
			r.Host = host
			w := httptest.NewRecorder()
			local.ServeHTTP(w, r)
			if (w.Code == http.StatusMisdirectedRequest) != slices.Contains(refused, host) {
				t.Errorf("%s of host %q: %d", url, host, w.Code)
			}
			w = httptest.NewRecorder()
			open.ServeHTTP(w, r)
			if w.Code == http.StatusMisdirectedRequest {
				t.Errorf("a server for all hosts refuses %q", host)
			}
		}
	}
}

var hostile = []string{
	`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `</title></textarea></style><b>`, `' onmouseover='alert(1)`,
	"line\nbreak\r\ttab", "\x00\x1b[31mred\x07", "abc\u202egnp.exe", "\u2066isolate\u2069", "zero\u200bwidth", `{{.Vault}}`, `javascript:alert(1)`,
	strings.Repeat("x", 100_000), strings.Repeat("\u0301", 500), "",
}

// TestHostileNames looks for anything in pages and events that a name could have put there.
func TestHostileNames(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	synctest.Test(t, func(t *testing.T) {
		st := newStore()
		var plan uuid.UUID
		for _, name := range hostile {
			plan = st.add(t, name, workflow.Running).ID
			st.join(t, name[:min(len(name), 1000)])
		}
		s := web.New(st, web.Options{Vault: hostile[0]})
		texts := map[string]string{}
		for _, name := range append(hostile, "2026-13-45") {
			q := "?find=" + url.QueryEscape(name)
			for _, field := range []string{"prefix", "contains", "id", "group", "after", "page", "status", "owner", "name", "reason", "none"} {
				q2 := "?" + field + "=" + url.QueryEscape(name)
				texts["/history"+q2] = get(t, s, "/history"+q2).Body.String()
				texts["/"+q2] = get(t, s, "/"+q2).Body.String()
			}
			texts["/history"+q] = get(t, s, "/history"+q).Body.String()
			texts["/plan/"+name] = get(t, s, "/plan/"+url.PathEscape(name)).Body.String()
		}
		for _, url := range []string{"/", "/fleet", "/history", "/plan/" + plan.String()} {
			texts[url] = get(t, s, url).Body.String()
		}
		for where, text := range texts {
			where = where[:min(len(where), 80)]
			for _, tag := range []string{"<script>", "<img", "<b>", "onerror=alert(1)>", "' onmouseover='", `href="javascript:`} {
				if strings.Contains(text, tag) {
					t.Errorf("%s has %s", where, tag)
				}
			}
			shown := regexp.MustCompile(`value="[^"]*"`).ReplaceAllString(text, "") // what was typed stays as it was
			for _, r := range html.UnescapeString(shown) {
				if r != '\n' && r != '\t' && r != ' ' && !unicode.IsPrint(r) {
					t.Errorf("%s has %U", where, r)
					break
				}
			}
			if len(text) > 100_000 && !strings.HasPrefix(where, "/plan/") {
				t.Errorf("%s has %d bytes", where, len(text))
			}
		}
	})
}

// TestHistoryPages follows the links from page to page.
func TestHistoryPages(t *testing.T) {
	st := newStore()
	var want []string
	for i := range 120 {
		p := st.add(t, fmt.Sprintf("plan %d", i), workflow.NotStarted)
		want = append(want, p.ID.String())
	}
	slices.Reverse(want)
	s := web.New(st, web.Options{})
	var got []string
	pages := 0
	for next := "/history?contains=plan+&status=NotStarted"; next != ""; pages++ {
		body := get(t, s, next).Body.String()
		for _, m := range regexp.MustCompile(`<a class="name" href="/plan/([^"]+)"`).FindAllStringSubmatch(body, -1) {
			got = append(got, m[1])
		}
		next = ""
		if m := regexp.MustCompile(`<a href="([^"]+)" rel="next">`).FindStringSubmatch(body); m != nil {
			next = html.UnescapeString(m[1])
		}
	}
	if !slices.Equal(got, want) || pages != 3 {
		t.Errorf("%d pages show %d plans, want 3 and %d, newest first", pages, len(got), len(want))
	}
}

func TestHistoryFilters(t *testing.T) {
	st := newStore()
	failed := st.add(t, "nightly", workflow.Failed)
	st.add(t, "nightly", workflow.Completed)
	st.add(t, "weekly", workflow.Failed)
	s := web.New(st, web.Options{})
	tomorrow := time.Now().UTC().AddDate(0, 0, 1).Format(time.DateOnly)
	for query, want := range map[string]int{
		"": 3, "status=Failed": 2, "status=Failed&status=Completed": 3, "prefix=night": 2, "contains=eek": 1,
		"status=failed&prefix=night": 1, "find=" + failed.ID.String()[24:]: 1, "id=" + failed.ID.String()[20:]: 1, "id=" + failed.ID.String()[24:] + "&contains=week": 0,
		"status=none": 3, "before=2020-01-01": 0, "after=2020-01-01T03:00": 3,
		"after=2020-01-01+03:00:00Z": 3, "before=" + tomorrow: 3, "after=" + tomorrow: 0, "ended-after=2020-01-01": 3,
		"ended-before=" + tomorrow: 3, "group=018f0000-0000-7000-8000-000000000001": 0, "find=week": 1, "none=1": 3,
		"page=" + failed.ID.String(): 0,
	} {
		w := get(t, s, "/history?"+query)
		if got := strings.Count(w.Body.String(), `<a class="name"`); w.Code != http.StatusOK || got != want {
			t.Errorf("%q: %d, %d plans, want %d", query, w.Code, got, want)
		}
	}
	for query, want := range map[string]string{
		"after=yesterday": "Created after", "ended-before=x": "Ended before", "group=x": "Group", "page=x": "Page",
		"after=2026-01-02&before=2026-01-01": "is not before", "status=Running&ended-after=2026-01-01": "only final plans",
		"page=6ba7b810-9dad-41d1-80b4-00c04fd430c8": "not a UUIDv7",
	} {
		w := get(t, s, "/history?"+query)
		if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%q: %d without %q", query, w.Code, want)
		}
	}
}

// TestLabelsLead follows the link of a label whose value has what HTML and addresses escape, to the plans that have it.
func TestLabelsLead(t *testing.T) {
	st := newStore()
	for _, labels := range []map[string]string{{"a+b": "<i> & ?=%"}, {"a+b": "other"}, nil} {
		must(t, st.Create(storage.WithActor(t.Context(), workflow.Actor{By: "a+b & <ops>"}), &workflow.Plan{Name: "labelled", Labels: labels}))
	}
	s := web.New(st, web.Options{})
	plans := func(url string) (page string, n int) {
		page = get(t, s, url).Body.String()
		return page, strings.Count(page, `<a class="name"`)
	}
	page, _ := plans("/history")
	link := regexp.MustCompile(`<a class="tag" href="([^"]+)"><bdi>a&#43;b=&lt;i&gt; &amp; \?=%</bdi>`).FindStringSubmatch(page)
	if link == nil {
		t.Fatal(page)
	}
	if page, n := plans(html.UnescapeString(link[1])); n != 1 {
		t.Errorf("%s leads to %d plans: %s", link[1], n, page)
	}
	if page, n := plans("/history?submitted-by=" + url.QueryEscape("a+b & <ops>")); n != 3 {
		t.Errorf("%d plans: %s", n, page)
	}
}

func TestFind(t *testing.T) {
	st := newStore()
	p := st.add(t, "a", workflow.NotStarted)
	s := web.New(st, web.Options{})
	for _, text := range []string{p.ID.String(), " " + strings.ToUpper(p.ID.String()) + "\t"} {
		w := get(t, s, "/history?find="+url.QueryEscape(text))
		if w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/plan/"+p.ID.String() {
			t.Errorf("%q: %d to %q", text, w.Code, w.Header().Get("Location"))
		}
	}
}

func TestPlan(t *testing.T) {
	st := newStore()
	p := st.add(t, "release 7", workflow.Failed)
	s := web.New(st, web.Options{})
	page := get(t, s, "/plan/"+p.ID.String())
	if page.Code != http.StatusOK || !strings.Contains(page.Body.String(), "release 7") || !strings.Contains(page.Body.String(), `href="/"`) {
		t.Errorf("the page of a plan: %d %s", page.Code, page.Body)
	}
	w := get(t, s, "/plan/"+p.ID.String()+".json")
	var stored workflow.Plan
	if err := json.Unmarshal(w.Body.Bytes(), &stored); err != nil || stored.ID != p.ID || stored.Name != p.Name {
		t.Errorf("the JSON is of plan %s, %v", stored.ID, err)
	}
	if got, want := w.Header().Get("Content-Disposition"), "attachment; filename="+p.ID.String()+".json"; got != want {
		t.Errorf("Content-Disposition is %q, want %q", got, want)
	}
	if got := st.calls("Read"); got != 1 {
		t.Errorf("a plan was read %d times for its page and its JSON", got)
	}
	st.fail(&storage.Error{Op: "Read", Err: storage.ErrCorrupt})
	for url, want := range map[string]int{
		"/plan/x": http.StatusNotFound, "/plan/" + strings.ReplaceAll(p.ID.String(), "-", ""): http.StatusNotFound,
		"/plan/" + workflow.NewV7().String(): http.StatusInternalServerError, "/plan/" + p.ID.String() + "/x": http.StatusNotFound,
	} {
		if w := get(t, s, url); w.Code != want {
			t.Errorf("%s: %d, want %d", url, w.Code, want)
		}
	}
	st.fail(nil)
	if w := get(t, s, "/plan/"+workflow.NewV7().String()); w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), "not found") {
		t.Errorf("a plan that does not exist: %d", w.Code)
	}
}

// TestExternalPlan has how to ask an engine of another kind that places a plan, and the command that takes it over.
func TestExternalPlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newStore()
		p := &workflow.Plan{Name: "placed", External: workflow.External{Name: "queue <1>", Ask: "queue show"}}
		must(t, st.Create(t.Context(), p))
		p.State.Status, p.Owner, p.Epoch = workflow.Running, workflow.NewV7(), 1
		st.update(t, p)
		asleep := plantest.Clone(p)
		s := web.New(st, web.Options{Vault: "ci"})
		page, takeover := "/plan/"+p.ID.String(), "planvault takeover "+p.ID.String()+" --external"
		contains(t, s, page, []string{"<dt>Placed by</dt><dd>queue &lt;1&gt;</dd>", "<dt>Ask it</dt><dd>queue show</dd>", "planvault stop"}, []string{takeover, ">Stuck<"})
		time.Sleep(time.Hour)
		contains(t, s, page, []string{">Stuck<", "an engine of another kind, places it", "Ask it: queue show", takeover}, []string{"--evict"})
		contains(t, s, "/", []string{takeover}, []string{"--evict"})
		asleep.Owner, asleep.WakeAt = uuid.Nil, time.Now().Add(time.Hour)
		st.update(t, asleep)
		time.Sleep(time.Minute) // pages are kept for a while
		contains(t, s, page, []string{"Placed by"}, []string{takeover, ">Stuck<"})
	})
}

// TestPlanInItsSite has what surrounds a plan, its owner's name, and the commands for its trouble.
func TestPlanInItsSite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newStore()
		failed, done := st.add(t, "a", workflow.Failed), st.add(t, "b", workflow.Completed)
		m := st.join(t, "host-3 \u202e<b>")
		p := st.add(t, "hangs", workflow.NotStarted)
		p.State.Status, p.Owner, p.Epoch = workflow.Running, m.ID, 1
		st.update(t, p)
		s := web.New(st, web.Options{Vault: "ci", Flags: []string{"--prefix", "it's"}})
		const flags = ` --prefix &#39;it&#39;\&#39;&#39;s&#39;"`
		site := []string{`planvault <span class="dim">ci</span>`, `<form class="find" action="/history"`, "/static/copy.js"}
		contains(t, s, "/plan/"+failed.ID.String(), append(site, `data-copy="planvault fork `+failed.ID.String()+` --from-failure`+flags), []string{"plan.js"})
		contains(t, s, "/plan/"+done.ID.String(), site, []string{"data-copy"})
		contains(t, s, "/plan/"+p.ID.String(), append(site, "planvault stop", `<dt>Node</dt><dd>host-3 \u202e&lt;b&gt;</dd>`), []string{"--evict", ">Stuck<"})
		for range 2 * int(fleet.DefaultOlder/interval) {
			time.Sleep(interval)
			var err error
			if m.Version, err = st.RenewMember(t.Context(), m); err != nil {
				t.Fatal(err)
			}
		}
		contains(t, s, "/plan/"+p.ID.String(), []string{">Stuck<", "but nothing has been stored for", "planvault takeover " + p.ID.String() + " --evict " + m.ID.String()}, nil)
		contains(t, s, "/", []string{"planvault takeover " + p.ID.String() + " --evict " + m.ID.String() + flags}, nil)
		before := st.calls("Roster")
		get(t, s, "/plan/"+p.ID.String())
		get(t, s, "/plan/"+done.ID.String())
		if n := st.calls("Roster") - before; n > 1 {
			t.Errorf("two plans took %d looks at the roster", n)
		}
	})
}

func TestHealth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newStore()
		st.join(t, "one")
		st.add(t, "a", workflow.Running)
		s := web.New(st, web.Options{})
		check := func(code int, want string) {
			t.Helper()
			w := get(t, s, "/healthz")
			if got := strings.TrimSpace(w.Body.String()); w.Code != code || got != want {
				t.Errorf("%d %s\nwant %d %s", w.Code, got, code, want)
			}
		}
		check(http.StatusOK, `{"ok":true,"latencySeconds":0.012,"skewSeconds":0,"stuck":0,"unread":0,"open":1,"membersAlive":1,"membersSilent":0}`)
		st.fail(errOutage)
		time.Sleep(interval + time.Second)
		check(http.StatusServiceUnavailable, `{"ok":false,"error":"Roster: unavailable: connection refused","latencySeconds":0.012,"skewSeconds":0,"stuck":0,"unread":0,"open":1,"membersAlive":1,"membersSilent":0}`)
		if w := get(t, s, "/health"); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "The store does not answer as it should.") {
			t.Errorf("the health page: %d %s", w.Code, w.Body)
		}
	})
}

// TestHealthOfNothing looks at a prefix without containers, which is healthy only if it may be new.
func TestHealthOfNothing(t *testing.T) {
	server, _, _ := account(t, 3)
	v, err := azblob.NewFromConnectionString(t.Context(), "tset", server.ConnectionString(), nil, settings.Over(server.Transport()))
	must(t, err)
	for allow, code := range map[bool]int{false: http.StatusServiceUnavailable, true: http.StatusOK} {
		s := web.New(v, web.Options{AllowEmpty: allow})
		const why = "no container of this prefix exists"
		if w := get(t, s, "/healthz"); w.Code != code || strings.Contains(w.Body.String(), why) == allow {
			t.Errorf("%t: %d %s", allow, w.Code, w.Body)
		}
		for _, page := range []string{"/health", "/"} {
			if w := get(t, s, page); strings.Contains(w.Body.String(), why) == allow {
				t.Errorf("%t: %s: %s", allow, page, w.Body)
			}
		}
	}
}

// account returns a server for a vault on an emulator, with n plans, of which three are open.
func account(t *testing.T, n int) (*emulator.Server, *azblob.Vault, *web.Server) {
	t.Helper()
	server := emulator.New(emulator.Options{})
	v, err := azblob.NewFromConnectionString(t.Context(), "test", server.ConnectionString(), plantest.Register(), azblob.Options{ClientOptions: policy.ClientOptions{Transport: server.Transport()}, Observer: web.Observer()})
	must(t, err)
	t.Cleanup(func() { v.Close(context.WithoutCancel(t.Context())) })
	for i := range n {
		p := &workflow.Plan{Name: fmt.Sprintf("plan %d", i)}
		must(t, v.Create(t.Context(), p))
		if i < 3 {
			continue
		}
		for _, status := range []workflow.Status{workflow.Running, workflow.Completed} {
			p.State.Status = status
			must(t, v.UpdatePlan(t.Context(), p))
		}
	}
	return server, v, web.New(v, web.Options{})
}

// TestCost counts the requests of each page.
func TestCost(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	server, _, s := account(t, 63)
	for _, c := range []struct {
		url  string
		most int
	}{
		{"/history", 4},
		{"/history?prefix=plan", 4},
		{"/history", 0}, // again at once
		{"/", 9},        // the roster, the days, the markers, and two for each open plan
		{"/fleet", 0},
		{"/health", 1}, // a ping
		{"/healthz", 0},
	} {
		before := len(server.Requests())
		if w := get(t, s, c.url); w.Code != http.StatusOK {
			t.Errorf("%s: %d", c.url, w.Code)
		}
		if n := len(server.Requests()) - before; n > c.most {
			t.Errorf("%s took %d requests, want %d at most: %v", c.url, n, c.most, server.Requests()[before:])
		}
	}
}

// TestNoSecrets opens the vault with a signature and lets every request fail in several ways.
func TestNoSecrets(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	synctest.Test(t, func(t *testing.T) {
		server, _, _ := account(t, 63)
		host := regexp.MustCompile(`BlobEndpoint=([^;]*)`).FindStringSubmatch(server.ConnectionString())[1]
		sas := server.AccountSAS(emulator.Permissions{Allowed: "rl"})
		signature := regexp.MustCompile(`sig=([^&]*)`).FindStringSubmatch(sas)[1]
		decoded, err := url.QueryUnescape(signature)
		must(t, err)
		v, err := azblob.NewFromURL(t.Context(), "test", host+"?"+sas, nil, settings.Over(server.Transport()))
		must(t, err)
		defer v.Close(context.WithoutCancel(t.Context()))
		for _, effect := range []emulator.Effect{emulator.Answer(http.StatusForbidden, "AuthenticationFailed"), emulator.Foreign(http.StatusOK, "text/html", "<p>"+sas), emulator.LostRequest()} {
			server.ClearFaults()
			server.Inject(emulator.On().Do(effect))
			s := web.New(v, web.Options{})
			for _, address := range addresses(workflow.NewV7()) {
				body := get(t, s, address).Body.String()
				if strings.Contains(body, signature) || strings.Contains(html.UnescapeString(body), decoded) {
					t.Errorf("%s shows the signature: %s", address, body)
				}
			}
			if body := get(t, s, "/").Body.String(); !strings.Contains(body, "could not be looked at") {
				t.Error("the failure is not shown")
			}
		}
	})
}

// TestServe ends a server during a look, which ends, too.
func TestServe(t *testing.T) {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	st, begun := newStore(), make(chan struct{}, 1)
	st.hang(begun)
	ended := make(chan error, 1)
	go func() { ended <- web.New(st, web.Options{}).Serve(ctx, l) }()
	ask := func() error {
		r, err := http.Get("http://" + l.Addr().String() + "/")
		if err == nil {
			r.Body.Close()
		}
		return err
	}
	go func() { _ = ask() }()
	<-begun
	stop()
	must(t, <-ended)
	if err := <-st.ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the look ends with %v", err)
	}
	if ask() == nil {
		t.Error("the server still answers")
	}
}

func TestServeReturnsTheErrorOfItsListener(t *testing.T) {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	l.Close()
	if err := web.New(newStore(), web.Options{}).Serve(t.Context(), l); !errors.Is(err, net.ErrClosed) {
		t.Errorf("got %v", err)
	}
}
