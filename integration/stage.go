package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
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
	out     reporter
	started time.Time
	sums    []sum
	vault   *azblob.Vault // for all steps that need no vault of their own

	deleted  []string     // containers
	stores   atomic.Int64 // that cases had
	outcomes []outcome    // of cases
	leftOut  []string     // long cases
	soaked   *figures
	chaosed  *fleetFigures

	mu       sync.Mutex
	requests []azblob.RequestEvent // since the call began
	made     map[string]bool       // containers
	// plans are the plans that the vault must hold, as they must be read.
	plans map[uuid.UUID]*workflow.Plan

	sum sum // of the present step
}

func newStage(cfg config, t *target, out reporter) *stage {
	return &stage{
		cfg: cfg, target: t, out: out, started: time.Now(),
		made: map[string]bool{}, plans: map[uuid.UUID]*workflow.Plan{},
	}
}

// shortGrace is the grace period of all vaults of the story. With the default, a run would take a quarter of
// an hour: a marker names the grace period of its writer, and Recovery waits for it.
const shortGrace = 8 * time.Second

// open opens a vault of a new process.
func (s *stage) open(ctx context.Context, opts ...azblob.Option) (*azblob.Vault, error) {
	return s.openAt(ctx, s.cfg.prefix, opts...)
}

// openAt opens a vault of a new process under another prefix.
func (s *stage) openAt(ctx context.Context, prefix string, opts ...azblob.Option) (*azblob.Vault, error) {
	all := []azblob.Option{
		azblob.WithTransport(s.transport),
		azblob.WithGracePeriod(shortGrace),
		azblob.WithRetry(azblob.Retry{MaxElapsed: 2 * time.Minute}), // the name of a deleted container is free again by then
		azblob.WithObserver(azblob.Observer{Request: s.note}),
	}
	return s.dial(ctx, prefix, append(all, opts...)...)
}

// note records a request, and the container that it made or may have made.
func (s *stage) note(_ context.Context, r azblob.RequestEvent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, r)
	if r.Name == "create container" && (r.Status == 0 || r.Status == http.StatusCreated) {
		s.made[r.Container] = true
	}
}

// expect says that the vault must hold a plan from now on.
func (s *stage) expect(p *workflow.Plan) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.plans[p.ID] = p
}

// forget takes an expected plan back.
func (s *stage) forget(id uuid.UUID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.plans, id)
}

// acts makes calls until one fails, and prints the requests that each took.
func (s *stage) acts(calls ...call) error {
	for _, c := range calls {
		if _, err := s.counted(c.name, c.do); err != nil {
			return err
		}
	}
	return nil
}

// counted makes one call, prints its requests and returns their number.
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

// play plays the steps until one fails.
func (s *stage) play(ctx context.Context) (err error) {
	if s.vault, err = s.open(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.vault.Close(context.WithoutCancel(ctx))) }()
	if err := s.refuseOthers(ctx); err != nil {
		return err
	}
	for _, st := range story(s.cfg) {
		if !s.cfg.plays(st.name, false) {
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
	if s.chaosed != nil {
		v.Fleet, v.Requests = s.chaosed, s.chaosed.Requests
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

// containers lists the containers of a prefix and of the cases' prefixes below it, and of no other longer
// prefix.
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
			if _, err := time.Parse(time.DateOnly, name); err == nil || name == control {
				names = append(names, *c.Name)
			}
		}
	}
	return names, nil
}

// control ends the name of the container that keeps the members of a fleet.
const control = "control"

// casePrefix is what a case adds to the run's prefix.
var casePrefix = regexp.MustCompile(`^s[0-9]+-`)

// refuseOthers returns an error if there are containers of the prefix already.
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

// blobsOf lists the blobs of a plan without the vault.
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

// withProcesses calls run with the order for the processes of this run, whose grace period is the configured
// one or the given one. It refuses to start beside other containers of the prefix, and notes those that the
// processes made.
func (s *stage) withProcesses(ctx context.Context, grace time.Duration, run func(order) error) error {
	if err := s.refuseOthers(ctx); err != nil {
		return err
	}
	o, end, err := s.reach()
	if err != nil {
		return err
	}
	o.Prefix, o.Grace, o.Faults = s.cfg.prefix, cmp.Or(s.cfg.grace, grace), s.cfg.faults
	err = run(o)
	names, listErr := s.containers(context.WithoutCancel(ctx), s.cfg.prefix)
	for _, name := range names {
		s.made[name] = true
	}
	return errors.Join(err, listErr, end())
}
