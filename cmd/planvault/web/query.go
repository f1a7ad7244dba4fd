package web

import (
	"context"
	"errors"
	"fmt"
	"net/url"
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

// query is what the form of the history page says.
type query struct {
	Status                  map[string]bool // by the names of statuses
	Group, Prefix, Contains string
	After, Before           string
	EndedAfter, EndedBefore string
	Page                    string // the plan with which the page before ended
}

// parseQuery reads a form. Its texts may be anything.
func parseQuery(v url.Values) query {
	get := func(name string) string { return clean(v.Get(name)) }
	q := query{
		Status: map[string]bool{}, Group: get("group"), Prefix: get("prefix"), Contains: get("contains"),
		After: get("after"), Before: get("before"), EndedAfter: get("ended-after"), EndedBefore: get("ended-before"),
		Page: get("page"),
	}
	for _, name := range v["status"] {
		q.Status[name] = true
	}
	return q
}

// clean returns a text of a form without what no search needs.
func clean(text string) string {
	text = strings.TrimSpace(text)
	return strings.TrimSpace(strings.ToValidUTF8(text[:min(len(text), maxQuery)], ""))
}

// values returns the form again, without what is empty and what means nothing.
func (q query) values() url.Values {
	v := url.Values{}
	for name, text := range map[string]string{
		"group": q.Group, "prefix": q.Prefix, "contains": q.Contains, "after": q.After, "before": q.Before,
		"ended-after": q.EndedAfter, "ended-before": q.EndedBefore, "page": q.Page,
	} {
		if text != "" {
			v.Set(name, text)
		}
	}
	for _, s := range statuses {
		if q.Status[s.String()] {
			v.Add("status", s.String())
		}
	}
	return v
}

// More reports whether any of the fields is used that the page hides until they are asked for.
func (q query) More() bool {
	return q.Prefix+q.Group+q.After+q.Before+q.EndedAfter+q.EndedBefore != ""
}

var statuses = []workflow.Status{workflow.NotStarted, workflow.Running, workflow.Completed, workflow.Failed, workflow.Stopped}

// filters returns the filters of a page. The error names the fields that are wrong.
func (q query) filters() (storage.Filters, error) {
	var errs []error
	moment := func(label, text string) time.Time {
		at, ok := human.ParseTime(text)
		if !ok && text != "" {
			errs = append(errs, fmt.Errorf("%s: %q is not a time: use 2026-11-22 or 2026-11-22T03:00 (UTC)", label, text))
		}
		return at
	}
	id := func(label, text string) uuid.UUID {
		if text == "" {
			return uuid.Nil
		}
		id, err := uuid.Parse(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %q is not an ID", label, text))
		}
		return id
	}
	f := storage.Filters{
		NamePrefix: q.Prefix, NameContains: q.Contains, Limit: pageSize + 1, BeforeID: id("Page", q.Page),
		After: moment("Created after", q.After), Before: moment("Created before", q.Before),
		EndedAfter: moment("Ended after", q.EndedAfter), EndedBefore: moment("Ended before", q.EndedBefore),
	}
	if group := id("Group", q.Group); group != uuid.Nil {
		f.ByGroupIDs = []uuid.UUID{group}
	}
	for _, s := range statuses {
		if q.Status[s.String()] {
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
