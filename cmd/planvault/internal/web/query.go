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

	"github.com/planvault/azblob/cmd/planvault/internal/human"
	"github.com/planvault/azblob/cmd/planvault/internal/report"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// pageSize is how many plans a page of the history has.
const pageSize = 50

// maxQuery is how long a text in a search may be.
const maxQuery = 1000

// field is a text of the form of the history page.
type field struct {
	Name, Label, Hint string
	// More says that the page hides the field until more filters are asked for.
	More bool
	set  func(f *storage.Filters, text string) error
}

// fields has a row for each text of the form. Statuses have boxes.
var fields = []field{
	{"id", "ID contains", "", false, func(f *storage.Filters, text string) error {
		f.IDContains = text
		return nil
	}},
	{"contains", "Name contains", "", false, func(f *storage.Filters, text string) error {
		f.NameContains = text
		return nil
	}},
	{"prefix", "Name begins with", "", true, func(f *storage.Filters, text string) error {
		f.NamePrefix = text
		return nil
	}},
	{"label", "Labels", "env=prod, team=web", true, func(f *storage.Filters, text string) (err error) {
		f.Labels, err = workflow.ParseLabels(text)
		return err
	}},
	{"submitted-by", "Submitted by", "", true, func(f *storage.Filters, text string) error {
		f.BySubmitter = []string{text}
		return nil
	}},
	{"key", "Key of open plans", "", true, func(f *storage.Filters, text string) error {
		f.ByKey = text
		return nil
	}},
	{"group", "Group ID", "", true, func(f *storage.Filters, text string) error {
		f.ByGroupIDs = make([]uuid.UUID, 1)
		return parseID(&f.ByGroupIDs[0], text)
	}},
	{"forked-from", "Forked from ID", "", true, func(f *storage.Filters, text string) error {
		f.ByForkedFrom = make([]uuid.UUID, 1)
		return parseID(&f.ByForkedFrom[0], text)
	}},
	{"after", "Created after (UTC)", hintOfTime, true, func(f *storage.Filters, text string) error { return parseTime(&f.After, text) }},
	{"before", "Created before (UTC)", hintOfTime, true, func(f *storage.Filters, text string) error { return parseTime(&f.Before, text) }},
	{"ended-after", "Ended after (UTC)", hintOfTime, true, func(f *storage.Filters, text string) error { return parseTime(&f.EndedAfter, text) }},
	{"ended-before", "Ended before (UTC)", hintOfTime, true, func(f *storage.Filters, text string) error { return parseTime(&f.EndedBefore, text) }},
}

// page is the field that links from page to page set.
var page = field{Name: "page", Label: "Page", set: func(f *storage.Filters, text string) error { return parseID(&f.BeforeID, text) }}

const hintOfTime = "2026-11-22 03:00"

func parseTime(t *time.Time, text string) error {
	var ok bool
	if *t, ok = human.ParseTime(text); !ok {
		return fmt.Errorf("%q is not a time: use 2026-11-22 or 2026-11-22T03:00 (UTC)", text)
	}
	return nil
}

func parseID(id *uuid.UUID, text string) (err error) {
	if *id, err = uuid.Parse(text); err != nil {
		return fmt.Errorf("%q is not an ID", text)
	}
	return nil
}

// query is what the form of the history page says, without what is empty and what means nothing.
type query struct{ url.Values }

// parseQuery reads a form. Its texts may be anything.
func parseQuery(form url.Values) query {
	q := query{url.Values{}}
	for _, f := range append(fields, page) {
		if text := clean(form.Get(f.Name)); text != "" {
			q.Set(f.Name, text)
		}
	}
	for _, s := range statuses {
		if slices.ContainsFunc(form["status"], func(text string) bool { return strings.EqualFold(text, s.String()) }) {
			q.Add("status", valueOf(s))
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
	if v.Del(page.Name); id != "" {
		v.Set(page.Name, id)
	}
	return "/history?" + v.Encode()
}

// Asks reports whether the form asks for a status.
func (q query) Asks(s workflow.Status) bool { return slices.Contains(q.Values["status"], valueOf(s)) }

// valueOf is how forms name a status.
func valueOf(s workflow.Status) string { return strings.ToLower(s.String()) }

// String says what the form asks for, such as "failed or stopped, name contains checkout". It is empty if it asks for
// everything.
func (q query) String() string {
	var words, parts []string
	for _, s := range statuses {
		if q.Asks(s) {
			words = append(words, report.LabelOf(s).Word)
		}
	}
	if len(words) > 0 {
		parts = append(parts, strings.Join(words, " or "))
	}
	for _, f := range fields {
		if q.Has(f.Name) {
			label := strings.TrimSuffix(f.Label, " (UTC)")
			if f.Name != "id" {
				label = strings.ToLower(label[:1]) + label[1:]
			}
			parts = append(parts, label+" "+human.Line(q.Get(f.Name), 60))
		}
	}
	return strings.Join(parts, ", ")
}

// isPart reports whether a text is rather a part of an ID than of a name.
func isPart(text string) bool {
	digits := strings.ReplaceAll(text, "-", "")
	return len(digits) >= 6 && len(digits) <= 32 && strings.Trim(digits, "0123456789abcdefABCDEF") == "" && strings.ContainsAny(digits, "0123456789")
}

// Fields returns the fields that the page hides until they are asked for, or the others.
func (q query) Fields(more bool) []field {
	return slices.DeleteFunc(slices.Clone(fields), func(f field) bool { return f.More != more })
}

// More reports whether any of the fields is used that the page hides until they are asked for.
func (q query) More() bool {
	return slices.ContainsFunc(q.Fields(true), func(f field) bool { return q.Has(f.Name) })
}

var statuses = []workflow.Status{workflow.NotStarted, workflow.Running, workflow.Completed, workflow.Failed, workflow.Stopped}

// filters returns the filters of a page. The error names the fields that are wrong.
func (q query) filters() (storage.Filters, error) {
	f := storage.Filters{Limit: pageSize + 1}
	var errs []error
	for _, field := range append(fields, page) {
		if !q.Has(field.Name) {
			continue
		}
		if err := field.set(&f, q.Get(field.Name)); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", strings.TrimSuffix(field.Label, " (UTC)"), err))
		}
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
	foreign := 0
	for p := range found {
		switch {
		case errors.Is(p.Err, storage.ErrForeign):
			foreign++
		case p.Err != nil:
			r.errs = append(r.errs, p.Err)
		case len(r.plans) == pageSize:
			r.more = true
		default:
			r.plans = append(r.plans, p.Result)
		}
	}
	if foreign > 0 {
		r.errs = append(r.errs, fmt.Errorf("%d plans written by another program are left out", foreign))
	}
	return r, nil
}
