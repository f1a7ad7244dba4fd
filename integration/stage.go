package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/service"
	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/workflow"
)

// step is one thing to show. Steps make the plans that they need, and can be run alone and in any order.
type step struct {
	name, about string
	run         func(ctx context.Context, s *stage) error
}

// stage is where the steps of one run are played: the target, and what is on it.
type stage struct {
	cfg config
	*target
	out     reporter
	started time.Time
	sums    []sum
	vault   *azblob.Vault // for all that needs no vault of its own

	deleted  []string     // containers
	stores   atomic.Int64 // that cases had
	outcomes []outcome    // of cases
	leftOut  []string     // long cases
	soaked   *figures

	mu       sync.Mutex
	requests []request       // since the act began
	made     map[string]bool // containers
	// plans are all that must be in the vault, as they must be read.
	plans map[uuid.UUID]*workflow.Plan

	sum  sum         // of the present step
	week []uuid.UUID // the plans of the listings, once they are there
}

func newStage(cfg config, t *target, out reporter) *stage {
	return &stage{
		cfg: cfg, target: t, out: out, started: time.Now(),
		made: map[string]bool{}, plans: map[uuid.UUID]*workflow.Plan{},
	}
}

// shortGrace is the grace period of all vaults here. With the default a run would take a quarter of an hour: markers name the
// grace period of their writers, and a recovery waits for as long.
const shortGrace = 8 * time.Second

// open opens a vault with a connection of its own.
func (s *stage) open(ctx context.Context, opts ...azblob.Option) (*azblob.Vault, *wire, error) {
	w := &wire{inner: s.transport, base: s.base(), note: s.note, made: s.containerMade}
	all := []azblob.Option{
		azblob.WithTransport(w),
		azblob.WithGracePeriod(shortGrace),
		azblob.WithRetry(azblob.Retry{MaxElapsed: 2 * time.Minute}), // the name of a deleted container is free again by then
	}
	v, err := s.dial(ctx, s.cfg.prefix, append(all, opts...)...)
	return v, w, err
}

// recoverer opens a vault that has seen nothing yet, as a process that was started again has it.
func (s *stage) recoverer(ctx context.Context) (*azblob.Vault, error) {
	v, _, err := s.open(ctx)
	return v, err
}

func (s *stage) note(r request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, r)
}

func (s *stage) containerMade(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.made[name] = true
}

// keepInMind notes a plan that must be in the vault from now on.
func (s *stage) keepInMind(p *workflow.Plan) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.plans[p.ID] = p
}

func (s *stage) forget(id uuid.UUID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.plans, id)
}

// act does a part of a step, and prints the requests that it took.
func (s *stage) act(name string, do func() error) error {
	_, err := s.counted(name, do)
	return err
}

// counted is act for those that want to know how many requests it took.
func (s *stage) counted(name string, do func() error) (requests int, err error) {
	err = do()
	s.mu.Lock()
	a := act{Name: name, Requests: len(s.requests), Lines: trace(s.requests)}
	s.requests = nil
	s.mu.Unlock()
	s.sum.Requests += a.Requests
	s.sum.Acts = append(s.sum.Acts, a)
	s.out.act(a)
	if err != nil {
		return a.Requests, fmt.Errorf("%s: %w", name, err)
	}
	return a.Requests, nil
}

// play runs the steps until one fails.
func (s *stage) play(ctx context.Context) (err error) {
	if s.vault, _, err = s.open(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.vault.Close(context.WithoutCancel(ctx))) }()
	if err := s.refuseOthers(ctx); err != nil {
		return err
	}
	for _, st := range story(s.cfg) {
		if !s.cfg.plays(st.name) {
			continue
		}
		if s.between != nil {
			s.between(st.name)
		}
		if err := s.playStep(ctx, st); err != nil {
			if ctx.Err() != nil {
				err = fmt.Errorf("interrupted: %w", err)
			}
			return fmt.Errorf("%s: %w", st.name, err)
		}
	}
	return nil
}

func (s *stage) playStep(ctx context.Context, st step) error {
	s.out.step(st.name, st.about)
	s.sum = sum{Step: st.name, About: st.about, Result: "ok"}
	started := time.Now()
	err := st.run(ctx, s)
	s.sum.Seconds = time.Since(started).Seconds()
	if err != nil {
		s.sum.Result, s.sum.Error = "failed", err.Error()
	}
	s.sums = append(s.sums, s.sum)
	s.out.stepEnd(s.sum)
	return err
}

func (s *stage) verdict(err error) verdict {
	v := verdict{
		Result: "PASS", Target: s.title, Prefix: s.cfg.prefix, Seed: s.cfg.seed, Steps: len(s.sums), Deleted: s.deleted, LeftOut: s.leftOut,
		Seconds: time.Since(s.started).Seconds(), sums: s.sums,
	}
	if s.cfg.keep {
		v.Kept = slices.Sorted(maps.Keys(s.made))
	}
	for _, sum := range s.sums {
		v.Requests += sum.Requests
	}
	if s.soaked != nil {
		v.Soak, v.Requests = s.soaked, s.soaked.Requests
	}
	for _, o := range s.outcomes {
		v.Requests += o.Requests
		v.Cases++
		switch o.Result {
		case "failed":
			v.Failed++
		case "skipped":
			v.Skipped++
		}
	}
	if err != nil {
		v.Result, v.What = "FAIL", oneLine(err)
	}
	return v
}

// containers lists the containers of a prefix, and those of the cases' prefixes below it; not those of other longer ones.
func (t *target) containers(ctx context.Context, prefix string) ([]string, error) {
	start := prefix + "-"
	var names []string
	pages := t.service.NewListContainersPager(&service.ListContainersOptions{Prefix: &start})
	for pages.More() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, c := range page.ContainerItems {
			name := casePrefix.ReplaceAllString(strings.TrimPrefix(*c.Name, start), "")
			if _, err := time.Parse(time.DateOnly, name); err == nil {
				names = append(names, *c.Name)
			}
		}
	}
	return names, nil
}

// casePrefix is what the prefix of a case's store adds to the run's.
var casePrefix = regexp.MustCompile(`^s[0-9]+-`)

// refuseOthers makes sure that whatever is found under the prefix is ours.
func (s *stage) refuseOthers(ctx context.Context) error {
	names, err := s.containers(ctx, s.cfg.prefix)
	if err != nil {
		return fmt.Errorf("list containers: %w", redact(err))
	}
	if len(names) > 0 {
		return fmt.Errorf("there are containers of prefix %s already, such as %s: choose another one with -prefix, or delete them", s.cfg.prefix, names[0])
	}
	return nil
}

// clearUp deletes the containers that this run made, and no others.
func (s *stage) clearUp(ctx context.Context) error {
	if s.cfg.keep {
		return nil
	}
	var err error
	s.deleted, err = s.drop(ctx, slices.Sorted(maps.Keys(s.made)))
	return err
}

// blobsOf lists what is stored of a plan past the vault.
func (s *stage) blobsOf(ctx context.Context, id uuid.UUID) ([]string, error) {
	name := s.cfg.prefix + "-" + workflow.Time(id).Format(time.DateOnly)
	client := s.service.NewContainerClient(name)
	var names []string
	for _, dir := range []string{"open", "plans", "blocks", "sequences", "checks", "actions", "deferredactions", "deferbatches"} {
		pages := client.NewListBlobsFlatPager(&container.ListBlobsFlatOptions{Prefix: to.Ptr(dir + "/" + id.String())})
		for pages.More() {
			page, err := pages.NextPage(ctx)
			if bloberror.HasCode(err, bloberror.ContainerNotFound) {
				return nil, nil
			}
			if err != nil {
				return nil, redact(err)
			}
			for _, item := range page.Segment.BlobItems {
				names = append(names, *item.Name)
			}
		}
	}
	return names, nil
}
