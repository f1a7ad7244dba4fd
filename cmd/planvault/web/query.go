package web

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/cmd/planvault/human"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// pageSize is how many plans a page of the history has.
const pageSize = 50

// maxQuery is how long a text in a search may be.
const maxQuery = 1000

// query is what the form of the history page says, without what is empty and what means nothing.
type query struct{ url.Values }

// parseQuery reads a form. Its texts may be anything.
func parseQuery(form url.Values) query {
	q := query{url.Values{}}
	for _, name := range []string{"contains", "prefix", "group", "after", "before", "ended-after", "ended-before", "page"} {
		if text := clean(form.Get(name)); text != "" {
			q.Set(name, text)
		}
	}
	for _, s := range statuses {
		if slices.Contains(form["status"], s.String()) {
			q.Add("status", s.String())
		}
	}
	return q
}

// clean returns a text of a form without what no search needs.
func clean(text string) string {
	text = strings.TrimSpace(text)
	return strings.TrimSpace(strings.ToValidUTF8(text[:min(len(text), maxQuery)], ""))
}

// after returns the address of the page that follows a plan, or of the first one if the ID is empty.
func (q query) after(id string) string {
	v := maps.Clone(q.Values)
	if v.Del("page"); id != "" {
		v.Set("page", id)
	}
	return "/history?" + v.Encode()
}

// Asks reports whether the form asks for a status.
func (q query) Asks(s workflow.Status) bool { return slices.Contains(q.Values["status"], s.String()) }

// More reports whether any of the fields is used that the page hides until they are asked for.
func (q query) More() bool {
	return slices.ContainsFunc([]string{"prefix", "group", "after", "before", "ended-after", "ended-before"}, q.Has)
}

var statuses = []workflow.Status{workflow.NotStarted, workflow.Running, workflow.Completed, workflow.Failed, workflow.Stopped}

// filters returns the filters of a page. The error names the fields that are wrong.
func (q query) filters() (storage.Filters, error) {
	var errs []error
	moment := func(label, name string) time.Time {
		text := q.Get(name)
		at, ok := human.ParseTime(text)
		if !ok && text != "" {
			errs = append(errs, fmt.Errorf("%s: %q is not a time: use 2026-11-22 or 2026-11-22T03:00 (UTC)", label, text))
		}
		return at
	}
	id := func(label, name string) uuid.UUID {
		id, err := uuid.Parse(q.Get(name))
		if err != nil && q.Has(name) {
			errs = append(errs, fmt.Errorf("%s: %q is not an ID", label, q.Get(name)))
		}
		return id
	}
	f := storage.Filters{
		NamePrefix: q.Get("prefix"), NameContains: q.Get("contains"), Limit: pageSize + 1, BeforeID: id("Page", "page"),
		After: moment("Created after", "after"), Before: moment("Created before", "before"),
		EndedAfter: moment("Ended after", "ended-after"), EndedBefore: moment("Ended before", "ended-before"),
	}
	if group := id("Group", "group"); group != uuid.Nil {
		f.ByGroupIDs = []uuid.UUID{group}
	}
	for _, s := range statuses {
		if q.Asks(s) {
			f.ByStatus = append(f.ByStatus, s)
		}
	}
	return f, errors.Join(errs...)
}

// results are a page of the history.
type results struct {
	plans []storage.ListResult
	more  bool
	errs  []error // plans that can't be read, and what ended the search
}

// search makes the search of a form.
func (s *Server) search(ctx context.Context, form string) (results, error) {
	v, err := url.ParseQuery(form)
	if err != nil {
		return results{}, err
	}
	f, err := parseQuery(v).filters()
	if err != nil {
		return results{}, &storage.Error{Op: "Search", Err: fmt.Errorf("%w: %w", storage.ErrInvalid, err)}
	}
	found, err := s.store.Search(ctx, f)
	if err != nil {
		return results{}, err
	}
	var r results
	for p := range found {
		switch {
		case p.Err != nil:
			r.errs = append(r.errs, p.Err)
		case len(r.plans) == pageSize:
			r.more = true
		default:
			r.plans = append(r.plans, p.Result)
		}
	}
	return r, nil
}
