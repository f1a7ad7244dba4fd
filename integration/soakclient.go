package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/internal/conformance"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"
)

// soakClientFlag makes this program a client of a soak, or a node of a fleet. It is internal: the soak sets it
// and sends the order on standard input.
const soakClientFlag = "-soak-client"

// order tells a client of a soak what to work on. It is never an argument, because it may hold a key.
type order struct {
	ConnectionString string `json:"connectionString,omitempty"`
	Endpoint         string `json:"endpoint,omitempty"`
	MSI              string `json:"msi,omitempty"`

	Prefix string        `json:"prefix"`
	Grace  time.Duration `json:"grace"`
	Seed   uint64        `json:"seed"`
	Faults bool          `json:"faults,omitempty"`
	// Fleet makes the process a node of a fleet.
	Fleet *fleetOrder `json:"fleet,omitempty"`
	// Client and Life make the stamps of this process unique.
	Client int `json:"client"`
	Life   int `json:"life"`
}

// isSoakClient reports whether the arguments are those of a client of a soak.
func isSoakClient(args []string) bool { return len(args) == 2 && args[0] == soakClientFlag }

// runSoakClient works on a vault until its standard input ends. It writes an event before and after each
// operation.
func runSoakClient(stdin io.Reader, stdout, stderr io.Writer) int {
	signal.Ignore(os.Interrupt) // the terminal sends it to all processes; the soak decides when to end
	if err := soakClient(stdin, stdout); err != nil {
		fmt.Fprintln(stderr, "soak client:", err)
		return exitFail
	}
	return exitPass
}

func soakClient(stdin io.Reader, stdout io.Writer) error {
	var o order
	in := json.NewDecoder(stdin)
	if err := in.Decode(&o); err != nil {
		return fmt.Errorf("read the order: %w", err)
	}
	if o.Fleet != nil {
		return runNode(o, in, stdout)
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, stdin) // ends when the soak closes the pipe or dies
		stop()
	}()
	c := &client{order: o, out: json.NewEncoder(stdout), rand: rand.New(rand.NewPCG(o.Seed, 0))}
	var err error
	if c.vault, c.faulty, c.requests, err = o.open(); err != nil {
		return err
	}
	err = c.work(ctx)
	c.faulty.Wait()
	return err
}

// open opens the vault of an order, and returns what counts its faults and its requests.
func (o order) open(observers ...azblob.Observer) (*azblob.Vault, *conformance.Faulty, *atomic.Int64, error) {
	t, err := o.target()
	if err != nil {
		return nil, nil, nil, err
	}
	chance := 0.0
	if o.Faults {
		chance = 0.03
	}
	faulty, requests := conformance.NewFaulty(t.transport, o.Seed, chance), new(atomic.Int64)
	observers = append(observers, azblob.Observer{Request: func(context.Context, azblob.RequestEvent) { requests.Add(1) }})
	v, err := t.dial(context.Background(), o.Prefix,
		azblob.WithGracePeriod(o.Grace), azblob.WithConcurrency(16), azblob.WithRetry(azblob.Retry{InitialInterval: 5 * time.Millisecond}),
		azblob.WithObserver(azblob.Tee(observers...)), azblob.WithTransport(faulty))
	return v, faulty, requests, err
}

func (o order) target() (*target, error) {
	if o.Endpoint == "" {
		return onConnectionString(o.ConnectionString, newHTTPClient)
	}
	cred, err := credential(o.MSI)
	if err != nil {
		return nil, err
	}
	return onEndpoint(o.Endpoint, cred, newHTTPClient)
}

// client does random operations on a vault that it shares with other clients.
//
// Several clients may work on one plan, like engines that take over from each other. They follow the
// contract: each update states the version that was read, a final sub-object is not written again, and a plan
// ends after all its sub-objects.
type client struct {
	order
	vault    *azblob.Vault
	faulty   *conformance.Faulty
	requests *atomic.Int64
	out      *json.Encoder
	rand     *rand.Rand
	stamps   int64
	// mine is the plan that the client works on; nil if there is none.
	mine *workflow.Plan
}

// errPipe means that the soak does not read the events any more.
var errPipe = errors.New("write event")

// do announces an operation, does it, and reports its outcome.
func (c *client) do(e event, call func(ctx context.Context) error) (err error) {
	if err := c.out.Encode(e); err != nil {
		return fmt.Errorf("%w: %w", errPipe, err)
	}
	// Mostly enough for anything, sometimes not.
	limit := 10 * time.Second
	if c.chance(0.03) {
		limit = time.Duration(c.rand.IntN(30)) * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	err = call(ctx)
	end := event{End: true, Requests: int(c.requests.Load()), Faults: c.faulty.Faults()}
	if err != nil {
		if end.Told = kind(err); end.Told == "wrong" && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			end.Told = "deadline"
		}
		end.Error = oneLine(err)
	}
	if err := c.out.Encode(end); err != nil {
		return fmt.Errorf("%w: %w", errPipe, err)
	}
	return err
}

func (c *client) chance(p float64) bool { return c.rand.Float64() < p }

// work does operations until the context ends. Errors of operations are reported and otherwise ignored.
func (c *client) work(ctx context.Context) error {
	err := c.do(event{Op: "recovery"}, c.vault.Recovery)
	for ctx.Err() == nil && !errors.Is(err, errPipe) {
		switch {
		case c.chance(0.02):
			err = c.do(event{Op: "recovery"}, c.vault.Recovery)
		case c.chance(0.05):
			err = c.do(event{Op: "list"}, func(ctx context.Context) error {
				_, err := storage.Collect(c.vault.List(ctx, c.rand.IntN(20)))
				return err
			})
		case c.mine != nil:
			err = c.goOn()
		case c.chance(0.4):
			err = c.takeOver()
		default:
			if err = c.tidy(); !errors.Is(err, errPipe) {
				err = c.create()
			}
		}
	}
	if errors.Is(err, errPipe) {
		return err
	}
	return nil
}

func (c *client) create() error {
	plan := c.shape()
	driver.Complete(plan)
	e := event{Op: "create", Plan: plan.ID}
	for o := range workflow.Walk(plan) {
		e.Objects = append(e.Objects, *o.Header().ID)
	}
	err := c.do(e, func(ctx context.Context) error { return c.vault.Create(ctx, plan) })
	if err == nil {
		c.mine = plan
	}
	return err
}

func (c *client) shape() *workflow.Plan {
	switch c.rand.IntN(6) {
	case 0:
		return &workflow.Plan{Name: "empty"}
	case 1:
		return plantest.Full()
	case 2:
		return plantest.Random(c.rand.Uint64())
	case 3:
		return plantest.Sized(1, 2, 3+c.rand.IntN(10))
	}
	return plantest.Small()
}

// goOn makes one update of the client's plan.
func (c *client) goOn() error {
	plan := c.mine
	var open []workflow.Object
	for o, parent := range workflow.Walk(plan) {
		if parent != nil && !o.Header().State.Status.Final() {
			open = append(open, o)
		}
	}
	switch status := plan.State.Status; {
	case status.Final():
		c.mine = nil
		return nil
	case c.chance(0.02):
		c.mine = nil // left to other clients
		return nil
	case status == workflow.NotStarted || c.chance(0.05):
		return c.update(plan, workflow.Running)
	case len(open) == 0:
		return c.update(plan, workflow.Completed+workflow.Status(c.rand.IntN(3)))
	default:
		return c.update(open[c.rand.IntN(len(open))], workflow.Running+workflow.Status(c.rand.IntN(3)))
	}
}

// update gives an object of the client's plan a new state. After a failure the plan is read again.
func (c *client) update(o workflow.Object, status workflow.Status) error {
	c.stamps++
	h := o.Header()
	to := newStamp(int64(c.Client)<<40|int64(c.Life)<<24|c.stamps, status)
	e := event{Op: "update", Plan: c.mine.ID, Object: *h.ID, From: stampOf(o), To: to}
	h.State.Status, h.State.Start = status, to.time()
	if action, ok := o.(*workflow.Action); ok {
		action.Attempts = append(action.Attempts, workflow.Attempt{Resp: &plantest.Response{Text: "soak"}, Start: h.State.Start})
	}
	err := c.do(e, func(ctx context.Context) error { return storage.Update(ctx, c.vault, o) })
	if err == nil || errors.Is(err, errPipe) {
		return err
	}
	return c.read(c.mine.ID)
}

// read reads a plan and makes it the client's.
func (c *client) read(id uuid.UUID) error {
	c.mine = nil
	return c.do(event{Op: "read", Plan: id}, func(ctx context.Context) (err error) {
		c.mine, err = c.vault.Read(ctx, id)
		return err
	})
}

// takeOver reads an open plan of any client.
func (c *client) takeOver() error {
	found, err := c.search(storage.Filters{ByStatus: []workflow.Status{workflow.NotStarted, workflow.Running}, Limit: 20})
	if err != nil || len(found) == 0 {
		return err
	}
	return c.read(found[c.rand.IntN(len(found))].ID)
}

// age is how old a plan must be to be deleted. A duplicate of a request of its Create could otherwise arrive
// after the Delete and bring a blob back.
const age = 3 * time.Second

// tidy deletes some plans, mostly final ones, to limit their number.
func (c *client) tidy() error {
	f := storage.Filters{ByStatus: []workflow.Status{workflow.Completed, workflow.Failed, workflow.Stopped}, Before: time.Now().Add(-age), Limit: 30}
	if c.chance(0.2) {
		f.ByStatus = []workflow.Status{workflow.NotStarted, workflow.Running}
	}
	found, err := c.search(f)
	if err != nil || len(found) == 0 {
		return err
	}
	for range 1 + c.rand.IntN(3) {
		id := found[c.rand.IntN(len(found))].ID
		if err := c.do(event{Op: "delete", Plan: id}, func(ctx context.Context) error { return c.vault.Delete(ctx, id) }); errors.Is(err, errPipe) {
			return err
		}
	}
	return nil
}

func (c *client) search(f storage.Filters) (found []storage.ListResult, err error) {
	err = c.do(event{Op: "search"}, func(ctx context.Context) (err error) {
		found, err = storage.Collect(c.vault.Search(ctx, f))
		return err
	})
	return found, err
}
