package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/spf13/cobra"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/internal/firsthour"
	"github.com/planvault/azblob/storage"
)

// vaultsCommand lists the vaults of an account.
func (a *app) vaultsCommand() *cobra.Command {
	return &cobra.Command{Use: "vaults", Short: "List the vaults of an account by their prefixes", Args: cobra.NoArgs, RunE: func(c *cobra.Command, _ []string) error {
		return a.listVaults(c.Context())
	}}
}

// vaultRow is a vault of an account.
type vaultRow struct {
	Prefix string `json:"prefix" help:"the prefix of the vault"`
	Days   int    `json:"days" help:"how many days it has"`
	First  string `json:"first,omitempty" help:"the first of them"`
	Last   string `json:"last,omitempty" help:"the last one"`
}

// listVaults prints the vaults of the account, whichever the prefix is.
func (a *app) listVaults(ctx context.Context) error {
	where := a.connection
	where.Prefix = "any" // a vault needs one
	v, err := a.openNew(ctx, where)
	if err != nil {
		return err
	}
	found, err := v.Admin().Prefixes(ctx)
	if err != nil {
		return err
	}
	var rows []vaultRow
	for _, p := range found {
		if firsthour.Made(p.Prefix) {
			fmt.Fprintf(a.stderr, "planvault: %s is no vault: %s; %s\n", p.Prefix, leftover, sweeping)
			continue
		}
		r := vaultRow{Prefix: p.Prefix, Days: p.Days}
		if p.Days > 0 {
			r.First, r.Last = p.First.String(), p.Last.String()
		}
		rows = append(rows, r)
	}
	if len(rows) == 0 && !a.allowEmpty {
		account, _, _ := strings.Cut(a.places[0], ", prefix ")
		return &exitError{exitFound, fmt.Errorf("no vault has a container in %s", account)}
	}
	cells := func(r vaultRow) []string { return []string{r.Prefix, count(r.Days), orDash(r.First), orDash(r.Last)} }
	return printTable(a, rows, cells, "PREFIX", ">DAYS", "FIRST", "LAST")
}

// What is said of containers of a first hour.
const (
	leftover = "a first hour is at work there, or was killed"
	sweeping = "planvault doctor --first-hour removes what a killed one has left"
)

// site is a vault that should have containers.
type site struct {
	vault         *azblob.Vault
	prefix, place string
	seen          atomic.Bool // a request has shown that it has one, or somebody was told that it has none
}

// observer returns the observer by which the site learns that the vault has containers, at no request of its own.
func (s *site) observer() azblob.Observer {
	return azblob.Observer{Request: func(_ context.Context, e azblob.RequestEvent) {
		if e.Container != "" && e.Name != "list containers" && e.Status >= 200 && e.Status < 300 {
			s.seen.Store(true)
		}
	}}
}

// missing returns an error if the vault has no container, and says which vaults the account has. It asks only if the
// run has not seen a container yet. A login that may not list containers does not learn it.
func (s *site) missing(ctx context.Context) error {
	if s.seen.Load() {
		return nil
	}
	found, err := s.vault.Admin().Prefixes(ctx)
	if errors.Is(err, storage.ErrDenied) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look whether the vault exists: %w", err)
	}
	var others []string
	for _, p := range found {
		if p.Prefix == s.prefix {
			s.seen.Store(true)
			return nil
		}
		if !firsthour.Made(p.Prefix) {
			others = append(others, p.Prefix)
		}
	}
	s.seen.Store(true)
	return &exitError{exitFound, fmt.Errorf("no container of this prefix exists: %s; %s. --allow-empty is for a new vault", s.place, suggest(s.prefix, others))}
}

// mostSuggested is how many prefixes an error names.
const mostSuggested = 3

// suggest names the prefixes that are closest to a wrong one.
func suggest(wrong string, prefixes []string) string {
	if len(prefixes) == 0 {
		return "the account has no vault"
	}
	slices.SortStableFunc(prefixes, func(x, y string) int { return edits(wrong, x) - edits(wrong, y) })
	few := prefixes[:min(len(prefixes), mostSuggested)]
	text := "the account has " + strings.Join(few, ", ")
	if more := len(prefixes) - len(few); more > 0 {
		text += fmt.Sprintf(" and %s more", count(more))
	}
	return text + " (planvault vaults)"
}

// edits returns how many letters must be added, removed or replaced to make one word of another.
func edits(from, to string) int {
	row := make([]int, len(to)+1) // the edits from what was read of from to each start of to
	for j := range row {
		row[j] = j
	}
	for i := range len(from) {
		corner := row[0]
		row[0] = i + 1
		for j := range len(to) {
			replaced := corner
			if from[i] != to[j] {
				replaced++
			}
			corner = row[j+1]
			row[j+1] = min(replaced, row[j]+1, corner+1)
		}
	}
	return row[len(to)]
}

// found reports whether each vault that the run has opened has shown a container.
func (a *app) found() bool {
	return !slices.ContainsFunc(a.sites, func(s *site) bool { return !s.seen.Load() })
}

// expectVault returns an error if a vault that is about to be changed has no container: the change would make one, of a
// prefix that is wrong.
func (a *app) expectVault(ctx context.Context, v storage.Vault) error {
	for _, s := range a.sites {
		if v == storage.Vault(s.vault) && !a.allowEmpty {
			return s.missing(ctx)
		}
	}
	return nil
}

// expectVaults returns the error of a command, or one that says that a vault has no containers if the command worked and
// has seen none.
func (a *app) expectVaults(ctx context.Context, err error) error {
	if code := a.exitCode(ctx, err); a.allowEmpty || code != exitDone && code != exitFound {
		return err
	}
	for _, s := range a.sites {
		missing := s.missing(ctx)
		var exit *exitError
		switch {
		case missing == nil:
		case err == nil, errors.As(err, &exit) && exit.err == nil:
			err = missing
		default:
			err = &exitError{exitFound, errors.Join(err, missing)}
		}
	}
	return err
}
