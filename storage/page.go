package storage

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/workflow"
)

// Page is a part of a listing, for endpoints that show one at a time.
type Page struct {
	// Results are the plans, newest first.
	Results []ListResult
	// Next is the token of the next page: one line of letters, digits, hyphens and underscores. It is empty if there is none.
	Next string
}

// MaxPage is the most plans of a page.
const MaxPage = 5_000

// ListPage returns the page of a listing that a token names, or the first one if the token is empty, with at most size
// plans, [MaxPage] at most. Zero filters select all plans. The token has the place in the listing, and no secret; it stays
// valid while plans come and go. All pages of a listing have the same filters: a time such as an hour ago is computed once. A
// page costs what a Search with a Limit of size plus one costs.
//
// A plan that can't be read is an error, which comes with the other results and with the next token. The error is
// [ErrInvalid] for another size, for filters with a Limit or BeforeID, and for a token that ListPage did not return for the
// same filters.
func ListPage(ctx context.Context, vault Reader, filters Filters, token string, size int) (page Page, err error) {
	place, err := pageAfter(filters, token)
	switch {
	case err != nil:
	case size < 1 || size > MaxPage:
		err = invalid("size", "%d is not between 1 and %d", size, MaxPage)
	case filters.Limit != 0 || filters.BeforeID != uuid.Nil:
		err = invalid("Filters", "has a Limit or a BeforeID, which are up to the page")
	}
	if err != nil {
		return page, &Error{Op: "ListPage", Err: err}
	}
	own := filters
	filters.Limit, filters.BeforeID = size+1, place
	find := func() (iter.Seq[Stream[ListResult]], error) { return vault.Search(ctx, filters) }
	if len(filters.Fields()) == 1 { // Search refuses a Limit alone
		find = func() (iter.Seq[Stream[ListResult]], error) { return vault.List(ctx, filters.Limit) }
	}
	found, err := find()
	if err != nil {
		return page, err
	}
	var errs []error
	var last uuid.UUID // the plan of the element before
	taken := 0
	for f := range found {
		if taken == size && (f.Err == nil || planOf(f) != uuid.Nil) {
			page.Next = pageToken(own, last)
			break
		}
		last = planOf(f)
		if taken++; f.Err != nil {
			errs = append(errs, f.Err)
		} else {
			page.Results = append(page.Results, f.Result)
		}
	}
	return page, errors.Join(errs...)
}

// planOf returns the plan of an element, or uuid.Nil for an error of the listing itself.
func planOf(f Stream[ListResult]) uuid.UUID {
	if about, ok := errors.AsType[*Error](f.Err); ok {
		return about.Plan
	}
	return f.Result.ID
}

// pageToken returns the token of the page that follows a plan: the plan's ID, and a sum by which other filters are noticed.
func pageToken(f Filters, last uuid.UUID) string {
	for _, t := range []*time.Time{&f.After, &f.Before, &f.EndedAfter, &f.EndedBefore} {
		*t = t.UTC()
	}
	f.ByStatus = slices.Sorted(slices.Values(f.ByStatus))
	text, _ := json.Marshal(f) // all of its fields can be written
	sum := sha256.Sum256(text)
	return base64.RawURLEncoding.EncodeToString(append(last[:], sum[:8]...))
}

// pageAfter returns the plan that a page follows.
func pageAfter(f Filters, token string) (last uuid.UUID, err error) {
	if token == "" {
		return uuid.Nil, nil
	}
	b, err := base64.RawURLEncoding.DecodeString(token)
	if copy(last[:], b); err != nil || !workflow.IsV7(last) || pageToken(f, last) != token {
		return uuid.Nil, fmt.Errorf("%w: %.80q is not the token of a page of these filters", ErrInvalid, token)
	}
	return last, nil
}
