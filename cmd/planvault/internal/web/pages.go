package web

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/cmd/planvault/internal/report"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// frame is what surrounds every page.
type frame struct {
	Site    *report.Site
	Path    string // of the page, for the menu
	Title   string
	Heading string // on the page; by default the title
	Find    string // what was looked for in the header
	Now     time.Time
	Live    time.Duration // after it, the page should be read again; 0 if it does not change
	Data    any
}

// part is what a template below a page needs: data, and the time from which ages count.
type part struct {
	Now  time.Time
	Data any
}

// render answers with a page.
func (s *Server) render(w http.ResponseWriter, status int, name string, f frame) {
	f.Site, f.Heading = s.site(f.Path, f.Find), cmp.Or(f.Heading, f.Title)
	if f.Now.IsZero() {
		f.Now = time.Now()
	}
	var b bytes.Buffer
	if err := s.pages.ExecuteTemplate(&b, name, f); err != nil {
		panic(err) // the templates and their data are ours
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes()) // the viewer may have left
}

// site returns what surrounds a page.
func (s *Server) site(path, found string) *report.Site {
	site := &report.Site{Name: s.o.Vault, Home: "/", Find: "/history", Found: found}
	for _, l := range []report.Link{{Text: "Open plans", URL: "/"}, {Text: "Fleet", URL: "/fleet"}, {Text: "History", URL: "/history"}, {Text: "Health", URL: "/health"}} {
		l.Here = l.URL == path
		site.Links = append(site.Links, l)
	}
	return site
}

// openPage shows the open plans, stuck ones first.
func (s *Server) openPage(w http.ResponseWriter, r *http.Request) {
	c := parseChoice(r.URL.Query())
	title := "Open plans"
	if text := c.String(); text != "" {
		title += ": " + text
	}
	s.livePage(w, r, "open", title, func(now *state) any { return now.view(c) })
}

// fleetPage shows the members.
func (s *Server) fleetPage(w http.ResponseWriter, r *http.Request) {
	s.livePage(w, r, "fleet", "Fleet", func(now *state) any { return now })
}

// livePage shows the latest state. A script reads the page again when the next look is due.
func (s *Server) livePage(w http.ResponseWriter, r *http.Request, name, title string, data func(*state) any) {
	now, err := s.now(r.Context())
	if err != nil {
		return // the viewer has left
	}
	live := time.Until(now.Seen.Add(s.untilNext(now))) // when the next look is due
	if live <= 0 {
		live = s.untilNext(now)
	}
	s.render(w, http.StatusOK, name, frame{
		Path: r.URL.Path, Title: now.Counts.title() + title, Heading: title, Now: now.clock(), Live: live,
		Data: data(now),
	})
}

// historyPage searches the plans of all times. A plan's ID in the header's field leads to the plan.
func (s *Server) historyPage(w http.ResponseWriter, r *http.Request) {
	v := r.URL.Query()
	find := clean(v.Get("find"))
	if id, err := uuid.Parse(find); err == nil {
		http.Redirect(w, r, planURL(id), http.StatusSeeOther)
		return
	}
	inNames := ""
	switch {
	case isPart(find):
		v.Set("id", find)
		inNames = query{url.Values{"contains": {find}}}.after("")
	case find != "":
		v.Set("contains", find)
	}
	q := parseQuery(v)
	found, _, err := s.searches.get(r.Context(), q.Encode())
	if r.Context().Err() != nil {
		return
	}
	data := historyData{Query: q, Plans: found.plans, Statuses: statuses, InNames: inNames}
	for _, e := range append(found.errs, err) {
		if e != nil {
			data.Errors = append(data.Errors, storage.Detail(e))
		}
	}
	if n := len(data.Errors); n > maxFailures {
		data.Errors = append(data.Errors[:maxFailures], fmt.Sprintf("and %d more", n-maxFailures))
	}
	if found.more {
		data.Older = q.after(found.plans[len(found.plans)-1].ID.String())
	}
	if q.Has("page") {
		data.Newest = q.after("")
	}
	title := "History"
	if text := q.String(); text != "" {
		title += ": " + text
	}
	s.render(w, statusOf(err), "history", frame{Path: "/history", Title: title, Find: find, Data: data})
}

type historyData struct {
	Query         query
	InNames       string // the address of a search in names for what was looked for in IDs
	Statuses      []workflow.Status
	Plans         []storage.ListResult
	Errors        []string
	Older, Newest string // addresses; empty if there is no such page
}

// plan answers with the report of a plan, or with its JSON if the address ends with .json.
func (s *Server) plan(w http.ResponseWriter, r *http.Request) {
	name, asJSON := strings.CutSuffix(r.PathValue("id"), ".json")
	id, err := uuid.Parse(name)
	if err != nil || len(name) != len(id.String()) {
		s.noPlan(w, http.StatusNotFound, errors.New("this is not the ID of a plan"))
		return
	}
	p, expires, err := s.plans.get(r.Context(), id)
	switch {
	case r.Context().Err() != nil:
	case err != nil:
		s.noPlan(w, statusOf(err), err)
	case asJSON:
		download(w, p)
	default:
		s.report(w, r, p, expires.Add(-s.o.Interval))
	}
}

func planURL(id uuid.UUID) string { return "/plan/" + id.String() }

// report answers with the page of a plan as it was read at a time. The page has a policy of its own, which allows its
// inline style. A script keeps the page of an open plan up to date.
func (s *Server) report(w http.ResponseWriter, r *http.Request, p *workflow.Plan, read time.Time) {
	o := report.Options{
		Piece: r.FormValue("group"), PieceURL: func(group string, from int) string {
			return planURL(p.ID) + "?" + url.Values{"group": {group}, "from": {strconv.Itoa(from)}}.Encode()
		},
		Now: read, PlanURL: planURL, Scripts: []string{"/static/copy.js"}, Commands: s.commandsAfter(p),
		Site: s.site(r.URL.Path, ""),
	}
	o.Site.Links = append(o.Site.Links, report.Link{Text: "JSON", URL: planURL(p.ID) + ".json"})
	o.From, _ = strconv.Atoi(r.FormValue("from"))
	if o.Piece != "" {
		o.Site.Links = append(o.Site.Links, report.Link{Text: "The whole plan", URL: planURL(p.ID)})
	}
	if !p.State.Status.Final() {
		o.Scripts = append(o.Scripts, fmt.Sprintf("/static/plan.js?every=%d", s.o.Interval.Milliseconds()))
	}
	if roster, _, err := s.rosters.get(r.Context(), struct{}{}); err == nil {
		s.judge(r.Context(), p, roster, &o)
	}
	var b bytes.Buffer
	if err := report.Write(&b, p, o); err != nil { // no such piece
		s.noPlan(w, http.StatusNotFound, err)
		return
	}
	w.Header().Set("Content-Security-Policy", report.Policy(o)+"; frame-ancestors 'none'")
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(b.Bytes())
}

// download answers with the JSON of a plan without its secrets, as a file.
func download(w http.ResponseWriter, p *workflow.Plan) {
	body, err := json.MarshalIndent(p.Redacted(), "", "  ")
	if err != nil {
		http.Error(w, storage.Detail(err), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": p.ID.String() + ".json"}))
	_, _ = w.Write(append(body, '\n'))
}

// noPlan answers with the reason why there is no page of a plan.
func (s *Server) noPlan(w http.ResponseWriter, status int, err error) {
	s.render(w, status, "error", frame{Title: "No plan to show", Data: storage.Detail(err)})
}

func (s *Server) noPage(w http.ResponseWriter, _ *http.Request) {
	s.render(w, http.StatusNotFound, "error", frame{Title: "There is no such page", Data: "Choose a page above, or look for a plan by its ID."})
}

// statusOf returns the HTTP status that says how a call ended.
func statusOf(err error) int {
	switch {
	case err == nil:
		return http.StatusOK
	case errors.Is(err, storage.ErrInvalid):
		return http.StatusBadRequest
	case errors.Is(err, storage.ErrNotFound):
		return http.StatusNotFound
	case errors.Is(err, context.DeadlineExceeded):
		return http.StatusGatewayTimeout
	case errors.Is(err, storage.ErrUnavailable), errors.Is(err, storage.ErrDenied), errors.Is(err, storage.ErrClosed):
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

// ping is what a ping found.
type ping struct {
	azblob.PingReport
	At  time.Time
	Err error
}

// errNoVault is why a vault is not in good health whose store answers.
var errNoVault = errors.New("no container of this prefix exists: the prefix is wrong, or the vault is new (--allow-empty)")

func (s *Server) ping(ctx context.Context, _ struct{}) (ping, error) {
	report, err := s.store.Ping(ctx, azblob.PingOptions{Vault: true})
	if err == nil && !report.Vault && !s.o.AllowEmpty {
		err = errNoVault
	}
	return ping{report, time.Now(), err}, nil
}

// healthPage shows whether the store answers, and what went wrong lately.
func (s *Server) healthPage(w http.ResponseWriter, r *http.Request) {
	p, now, err := s.health(r.Context())
	if err != nil {
		return // the viewer has left
	}
	data := struct {
		*state
		Health   health
		Ping     ping
		Interval time.Duration
		Failures []failure
	}{now, newHealth(p, now), p, s.o.Interval, s.watch.recent()}
	s.render(w, http.StatusOK, "health", frame{Path: "/health", Title: "Health", Now: time.Now(), Data: data})
}

// health is the answer of /healthz.
type health struct {
	OK             bool    `json:"ok"` // the store answers, and the last look succeeded
	Error          string  `json:"error,omitempty"`
	LatencySeconds float64 `json:"latencySeconds"`
	SkewSeconds    float64 `json:"skewSeconds"`
	Stuck          int     `json:"stuck"`
	Unread         int     `json:"unread"` // plans that may be stuck, too
	Open           int     `json:"open"`
	MembersAlive   int     `json:"membersAlive"`
	MembersSilent  int     `json:"membersSilent"`
}

// healthz answers for machines: 200 if the store answers, and 503 otherwise. Stuck plans are no failure of the
// store.
func (s *Server) healthz(w http.ResponseWriter, r *http.Request) {
	p, now, err := s.health(r.Context())
	if err != nil {
		return // the viewer has left
	}
	h := newHealth(p, now)
	w.Header().Set("Content-Type", "application/json")
	if !h.OK {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = json.NewEncoder(w).Encode(h)
}

// health pings the store and looks at it. It only fails when ctx ends.
func (s *Server) health(ctx context.Context) (p ping, now *state, err error) {
	if p, _, err = s.pings.get(ctx, struct{}{}); err == nil {
		now, err = s.now(ctx)
	}
	return p, now, err
}

func newHealth(p ping, now *state) health {
	h := health{
		OK: p.Err == nil && now.Failure == failure{}, Error: now.Failure.Err,
		LatencySeconds: p.Latency.Seconds(), SkewSeconds: p.Skew.Seconds(),
		Stuck: now.Counts.Stuck, Unread: now.Counts.Unread, Open: now.Counts.Total(), MembersAlive: now.Counts.Alive, MembersSilent: now.Counts.Silent,
	}
	if p.Err != nil {
		h.Error = storage.Detail(p.Err)
	}
	return h
}
