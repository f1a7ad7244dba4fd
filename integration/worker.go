package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/conformance"
	"github.com/planvault/azblob/internal/settings"
	"github.com/planvault/azblob/plugins"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// A soak and a chaos run other processes of this program. A process gets its order on standard input, and a node of a
// fleet then commands. It reports messages on standard output. All of them are JSON.

// workerFlag makes this program a process of a soak or a fleet. It is internal.
const workerFlag = "-worker"

// order tells a process what to work on. It is never an argument, because it may hold a key.
type order struct {
	account
	Prefix string
	Grace  time.Duration
	Seed   uint64
	Faults bool
	// Interval makes the process a node of a fleet with this interval.
	Interval time.Duration
	// Client and Life make the stamps of this process unique.
	Client, Life int
	// Keys is how many keys the plans of a fleet take turns for.
	Keys int
}

// number returns the nth number of this process, which is unique in the run.
func (o order) number(n int64) int64 { return int64(o.Client)<<40 | int64(o.Life)<<24 | n }

// processOf returns what all numbers of a process have in common.
func processOf(number int64) int64 { return number >> 24 }

const maxClients = 255 // a stamp has no room for more

// message is what a process reports. Calls of the vault or of a plugin are reported when they end, and with Begin before: a
// process that dies can't lose what it has written to a pipe.
type message struct {
	What   string
	Plan   uuid.UUID `json:",omitzero"`
	Object uuid.UUID `json:",omitzero"`

	Begin bool `json:",omitzero"`
	// Told is the kind of a call's error, "" for nil, and Error its text.
	Told, Error string `json:",omitzero"`
	// Requests, Faults and Refused count those of the process since its last message. Refused counts the plans that the
	// process owned when one of its updates was refused.
	Requests, Faults, Refused int `json:",omitzero"`
	// KeyRequests counts those of Requests that are for the records of keys.
	KeyRequests int `json:",omitzero"`

	// Objects are the objects of a plan that a client of a soak creates. It updates Object from one stamp to another.
	Objects  []uuid.UUID `json:",omitzero"`
	From, To stamp       `json:",omitzero"`

	// A node of a fleet reports itself, the epoch, the call of the plugin, and what was stored.
	Node        uuid.UUID       `json:",omitzero"`
	Epoch, Call int64           `json:",omitzero"`
	Status      workflow.Status `json:",omitzero"`
	// At is when it was reported, in nanoseconds since 1970. Waits means that the call waits for a signal, and Limit is that of
	// the first key.
	At    int64
	Waits bool `json:",omitzero"`
	Limit int  `json:",omitzero"`
}

// kinds are the errors of calls. The first one that matches decides.
var kinds = []struct {
	err  error
	name string
}{
	{fleet.ErrFenced, "fenced"},
	{engine.ErrDraining, "draining"},
	{fleet.ErrLeft, "draining"},
	{fleet.ErrNotRunning, "not running"},
	{fleet.ErrAsleep, "asleep"},
	{storage.ErrUnknown, "unknown"},
	{storage.ErrNotFound, "not found"},
	{storage.ErrConflict, "conflict"},
	{storage.ErrUnavailable, "unavailable"},
}

// wrong is the kind of an error that no process should see.
const wrong = "wrong"

// told returns the kind of an error of a call with this context.
func told(ctx context.Context, err error) string {
	for _, k := range kinds {
		if errors.Is(err, k.err) {
			return k.name
		}
	}
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return "deadline"
	}
	return wrong
}

// worker is a process of a soak or a fleet, in that process.
type worker struct {
	order
	vault    *azblob.Vault
	faulty   *conformance.Faulty
	requests atomic.Int64
	keys     atomic.Int64 // requests for the records of keys
	refused  atomic.Int64
	stop     context.CancelFunc

	mu     sync.Mutex
	out    *json.Encoder
	faults int   // that were reported
	deaf   error // why nobody hears the reports
}

// isWorker reports whether the arguments are those of a process of a soak or a fleet.
func isWorker(args []string) bool { return len(args) == 1 && args[0] == workerFlag }

// runWorker works until standard input ends, and returns the exit code.
func runWorker(stdin io.Reader, stdout, stderr io.Writer) int {
	signal.Ignore(os.Interrupt) // the terminal sends it to all processes; the first one decides when to end
	if err := work(stdin, stdout); err != nil {
		fmt.Fprintln(stderr, "worker:", err)
		return exitFail
	}
	return exitPass
}

func work(stdin io.Reader, stdout io.Writer) (err error) {
	var o order
	in := json.NewDecoder(stdin)
	if err := in.Decode(&o); err != nil {
		return fmt.Errorf("read the order: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	w := &worker{order: o, stop: stop, out: json.NewEncoder(stdout)}
	t, err := newTarget(o.account, nil, newHTTPClient)
	if err != nil {
		return err
	}
	chance := 0.0
	if o.Faults {
		chance = 0.03
	}
	w.faulty = conformance.NewFaulty(t.transport, o.Seed, chance)
	run, observer, tasks := newClient(w).run, azblob.Observer{}, plugins.Plugin(plugins.Typed[task, int64](taskName))
	if o.Interval > 0 {
		n := &node{worker: w, held: map[uuid.UUID]holding{}}
		run, observer, tasks = n.run, azblob.Observer{Conflict: n.conflicted}, engine.Task(taskName, n.perform)
	}
	if w.vault, err = t.dialWith(ctx, o.Prefix, register(tasks),
		azblob.Options{GracePeriod: o.Grace, Concurrency: 16, Backoff: azblob.Backoff{InitialInterval: 5 * time.Millisecond}},
		settings.Over(w.faulty),
		azblob.Options{Observer: azblob.Tee(observer, azblob.Observer{Request: w.requested})}); err != nil {
		return err
	}
	err = errors.Join(run(ctx, in), w.vault.Close(context.Background()), w.deaf)
	w.faulty.Wait()
	return err
}

func (w *worker) requested(_ context.Context, r azblob.RequestEvent) {
	w.requests.Add(1)
	if strings.HasPrefix(r.Blob, "keys/") {
		w.keys.Add(1)
	}
}

// report writes a message. The process ends if nobody reads it.
func (w *worker) report(m message) {
	w.mu.Lock()
	defer w.mu.Unlock()
	faults := w.faulty.Faults()
	m.At, m.KeyRequests = time.Now().UnixNano(), int(w.keys.Swap(0))
	m.Requests, m.Refused, m.Faults, w.faults = int(w.requests.Swap(0)), int(w.refused.Swap(0)), faults-w.faults, faults
	if err := w.out.Encode(m); err != nil {
		w.deaf = cmp.Or(w.deaf, err)
		w.stop()
	}
}

// call announces a call, makes it, and reports its outcome.
func (w *worker) call(ctx context.Context, m message, do func(context.Context) error) error {
	m.Begin = true
	w.report(m)
	err := do(ctx)
	if m.Begin = false; err != nil {
		m.Told, m.Error = told(ctx, err), oneLine(err)
	}
	w.report(m)
	return err
}
