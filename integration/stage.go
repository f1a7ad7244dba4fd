package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/service"
	"golang.org/x/sync/errgroup"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/internal/firsthour"
	"github.com/planvault/azblob/internal/settings"
	"github.com/planvault/azblob/storage/storagetest"
)

// step is one thing to show. A step creates the plans that it needs, so steps can be run alone.
type step struct {
	name, about string
	run         func(ctx context.Context, s *stage) error
}

// call is a part of a step, in the words of its name.
type call struct {
	name string
	do   func() error
}

// stage is where the steps of one run are played: the target, and what is expected on it.
type stage struct {
	cfg config
	*target
	out    io.Writer
	vault  *azblob.Vault // for all steps that need no vault of their own
	played []sum
	stores atomic.Int64 // that cases had

	mu       sync.Mutex
	requests []azblob.RequestEvent // since the call began
}

// sum is what a step, or the suite, took.
type sum struct {
	name     string
	requests int
	took     time.Duration
}

func newStage(cfg config, t *target, out io.Writer) *stage {
	return &stage{cfg: cfg, target: t, out: out}
}

func (s *stage) printf(format string, args ...any) { fmt.Fprintf(s.out, format, args...) }

// shortGrace is the grace period of all vaults of the story. With the default, a run would take a quarter of
// an hour: a marker names the grace period of its writer, and Recovery waits for it.
const shortGrace = 8 * time.Second

// open opens a vault of a new process.
func (s *stage) open(ctx context.Context, prefix string, opts ...azblob.Options) (*azblob.Vault, error) {
	return s.dial(ctx, prefix, append([]azblob.Options{
		settings.Over(s.transport),
		{GracePeriod: shortGrace},
		{Backoff: azblob.Backoff{MaxElapsed: 2 * time.Minute}}, // the name of a deleted container is free again by then
		{Observer: azblob.Observer{Request: func(_ context.Context, r azblob.RequestEvent) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.requests = append(s.requests, r)
		}}},
	}, opts...)...)
}

// newPrefix returns a prefix of its own for a store of this run.
func (s *stage) newPrefix() string { return fmt.Sprintf("%s-s%d", s.cfg.prefix, s.stores.Add(1)) }

// onOwnContainers calls play if there are no containers of the prefix. It deletes those that there are afterwards, also
// after an interrupt.
func (s *stage) onOwnContainers(ctx context.Context, play func() error) (err error) {
	if s.vault, err = s.open(ctx, s.cfg.prefix); err != nil {
		return err
	}
	always := context.WithoutCancel(ctx)
	defer func() { err = errors.Join(err, s.vault.Close(always)) }()
	names, err := s.containers(ctx, s.cfg.prefix)
	switch {
	case err != nil:
		return err
	case len(names) > 0:
		return fmt.Errorf("there are containers of prefix %s already, such as %s: choose another one with -prefix, or delete them", s.cfg.prefix, names[0])
	}
	err = play()
	deleted, dropErr := s.drop(always, s.cfg.prefix)
	if len(deleted) > 0 {
		s.printf("Deleted %s.\n", strings.Join(deleted, ", "))
	}
	return errors.Join(err, dropErr)
}

// acts makes calls until one fails, and prints the requests that each took.
func (s *stage) acts(calls ...call) error {
	for _, c := range calls {
		err := c.do()
		s.mu.Lock()
		requests := s.requests
		s.requests = nil
		s.mu.Unlock()
		s.act(c.name, len(requests), trace(requests)...)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return nil
}

// act prints a call of the present step.
func (s *stage) act(name string, requests int, lines ...string) {
	s.played[len(s.played)-1].requests += requests
	s.printf("   %s (%s)\n", name, count(requests, "request"))
	for _, l := range lines {
		s.printf("      %s\n", l)
	}
}

// play plays the chosen steps until one fails, and then the cases.
func (s *stage) play(ctx context.Context, cases []storagetest.Case) error {
	for _, st := range story() {
		if !s.cfg.plays(st.name, false) {
			continue
		}
		if err := s.playStep(ctx, st); err != nil {
			return interrupted(ctx, err)
		}
	}
	return interrupted(ctx, s.playCases(ctx, cases))
}

// interrupted says so in an error of a run that was interrupted.
func interrupted(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("interrupted: %w", err)
	}
	return err
}

func (s *stage) playStep(ctx context.Context, st step) error {
	s.printf("\n== %s: %s\n", st.name, st.about)
	s.played = append(s.played, sum{name: st.name})
	started := time.Now()
	err := st.run(ctx, s)
	s.played[len(s.played)-1].took = time.Since(started)
	if err != nil {
		s.printf("   FAILED: %s\n", err)
		return fmt.Errorf("%s: %w", st.name, err)
	}
	return nil
}

// sumUp prints what each step took.
func (s *stage) sumUp() error {
	t := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "\nstep\trequests\ttime\t")
	all := sum{name: "all"}
	for _, p := range s.played {
		all.requests, all.took = all.requests+p.requests, all.took+p.took
	}
	for _, p := range append(s.played, all) {
		fmt.Fprintf(t, "%s\t%d\t%s\t\n", p.name, p.requests, p.took.Round(time.Millisecond))
	}
	fmt.Fprintln(t)
	return t.Flush()
}

// firstHour tries what only a real account can settle. What differs is reported, and fails nothing: it is for the
// later steps to show what the vault makes of it.
func firstHour(ctx context.Context, s *stage) error {
	return firsthour.Run(ctx, firsthour.Config{
		ConnectionString: s.ConnectionString, Endpoint: s.Endpoint, Credential: s.credential,
		Transport: s.transport, Wait: s.wait,
	}, func(f firsthour.Finding) error {
		name := fmt.Sprintf("%d %s: %s", f.Number, f.Verdict, f.Tried)
		if f.Verdict != firsthour.AsExpected {
			name += ": " + f.Summary(true)
		}
		s.act(name, f.Requests)
		return nil
	})
}

// ofVault matches what follows a run's prefix in the names of its containers: a day, or the container that keeps the
// members of a fleet, perhaps behind the number of a case.
var ofVault = regexp.MustCompile(`^(s[0-9]+-)?([0-9]{4}-[0-9]{2}-[0-9]{2}|control)$`)

// containers lists the containers of a prefix and of the cases' prefixes below it, and of no other longer
// prefix.
func (t *target) containers(ctx context.Context, prefix string) (names []string, err error) {
	start := prefix + "-"
	pages := t.service.NewListContainersPager(&service.ListContainersOptions{Prefix: &start})
	for pages.More() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("list containers: %w", redact(err))
		}
		for _, c := range page.ContainerItems {
			if ofVault.MatchString(strings.TrimPrefix(*c.Name, start)) {
				names = append(names, *c.Name)
			}
		}
	}
	return names, nil
}

// atOnce is how many calls a step makes at the same time.
const atOnce = 8

// drop deletes the containers of a prefix. It returns the names of those that existed.
func (t *target) drop(ctx context.Context, prefix string) (deleted []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	names, err := t.containers(ctx, prefix)
	var (
		mu   sync.Mutex
		errs = []error{err}
		g    errgroup.Group
	)
	g.SetLimit(atOnce)
	for _, name := range names {
		g.Go(func() error {
			_, err := t.service.DeleteContainer(ctx, name, nil)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				deleted = append(deleted, name)
			case !bloberror.HasCode(err, bloberror.ContainerNotFound):
				errs = append(errs, fmt.Errorf("container %s is left, delete it by hand: %w", name, redact(err)))
			}
			return nil
		})
	}
	_ = g.Wait()
	slices.Sort(deleted)
	return deleted, errors.Join(errs...)
}

// trace describes requests, in the order in which each kind first occurs. The requests of a fan-out share a line.
func trace(requests []azblob.RequestEvent) (lines []string) {
	type line struct{ method, what, result string }
	var order []line
	counts := map[line]int{}
	for _, r := range requests {
		l := line{r.Method, ids.ReplaceAllString(r.Blob, "<plan>"), fmt.Sprint(r.Status)}
		l.what = strings.Replace(l.what, "<plan>/<plan>.json", "<plan>/…", 1)
		if !slices.Contains([]string{"put", "get", "head", "delete"}, r.Name) {
			l.what = strings.TrimSpace(r.Name + " " + l.what)
		}
		if r.Status == 0 {
			l.result = "no answer"
		}
		if counts[l]++; counts[l] == 1 {
			order = append(order, l)
		}
	}
	for _, l := range order {
		what := l.what
		if counts[l] > 1 {
			what += fmt.Sprintf(" x %d", counts[l])
		}
		lines = append(lines, fmt.Sprintf("%-6s %-60s %s", l.method, what, l.result))
	}
	return lines
}

var ids = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)

func count(n int, what string) string {
	switch n {
	case 0:
		return "no " + what
	case 1:
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// oneLine returns the text of an error on one line. The service's errors have many.
func oneLine(err error) string {
	words := slices.DeleteFunc(strings.Fields(err.Error()), func(w string) bool {
		return strings.Trim(w, "-") == "" // a rule between paragraphs
	})
	return strings.Join(words, " ")
}
