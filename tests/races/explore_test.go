package races_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/emulator/schedule"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/merge"
	"github.com/planvault/azblob/internal/vaulttest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

var (
	interleaveRuns     = flag.Int("interleave.runs", 0, "explore so many runs of each space in their order; 0 leaves it to the level of the tests")
	interleaveSchedule = flag.String("interleave.schedule", "", "run this one schedule, as a failure prints it, in the space that -run names")
)

// interleaveSeed seeds the random runs of a space that is too large to be explored.
const interleaveSeed = 1

// space is a set of runs: actors on one store, in every order of their requests, with every crash.
type space struct {
	name string
	// prepare makes the store with which each run begins. It may be nil.
	prepare preparation
	actors  []actor
	// clock is time that passes in pieces, each at any moment. It freezes the actors whose requests are under
	// way.
	clock []time.Duration
	// effects are the faults that may hit a request of a writing actor, once in a run. The default is
	// crashes.
	effects []emulator.Effect
	// each checks the store after each step. It may be nil.
	each func(r *run)
	// judge checks the store when all actors have ended. The default is [run.promises].
	judge func(r *run, v *azblob.Vault)
	// pages is the number of items on a page of a listing; 0 means no limit.
	pages int
	// replaced says that another plan with the same ID takes the target's place.
	replaced bool
	// mortal says that actors that were frozen may be killed too.
	mortal bool
}

// preparation makes a store. It returns the target as it is stored, or nil, and as an update would leave it.
type preparation func(t *testing.T, server *emulator.Server) (was, will *workflow.Plan)

// actor is a process with its own vault, which makes one or more calls.
type actor struct {
	name string
	// after names an actor that must have ended before this one begins.
	after string
	// concurrency is that of the actor's vault. The default is 1, because parallel requests would only
	// multiply the space.
	concurrency int
	// grace is the grace period of the actor's vault; 0 means the default.
	grace time.Duration
	// reads says that the actor writes nothing. Its crash does not matter to the others.
	reads bool
	// writes returns the target as the actor leaves it, and creates says that it makes the target. removes says that it
	// may remove the target, and deletes that the target is gone when the actor has returned nil.
	writes                    func(r *run) *workflow.Plan
	creates, removes, deletes bool
	// may are the errors that the actor may return. Those of a lax actor are not judged.
	may []error
	lax bool
	do  func(ctx context.Context, a *acting, v *azblob.Vault) error
}

// acting is an actor in a run.
type acting struct {
	actor
	run       *run
	transport *emulator.Transport
	cancel    func()

	mu      sync.Mutex
	started bool
	ended   bool
	err     error
	fresh   bool   // the next request begins a call of an observer
	saw     glance // what was there then
	answers []answered
}

// answered is a request of an actor and its answer. Everything that an actor does depends on its answers.
type answered struct{ request, answer string }

// dead reports whether the actor has crashed.
func (a *acting) dead() bool { return a.transport.Crashed() }

// Do implements policy.Transporter.
func (a *acting) Do(req *http.Request) (*http.Response, error) {
	line := req.Method + " " + req.URL.RequestURI()
	resp, err := a.transport.Do(req)
	if err != nil {
		a.note(line, "no answer")
		return nil, err
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	var w strings.Builder
	fmt.Fprint(&w, resp.StatusCode)
	for _, name := range slices.Sorted(maps.Keys(resp.Header)) {
		if name == "Etag" || name == "Date" || name == "Last-Modified" || name == "X-Ms-Error-Code" || strings.HasPrefix(name, "X-Ms-Meta-") {
			fmt.Fprint(&w, " ", name, resp.Header[name])
		}
	}
	if resp.StatusCode < 300 { // the text of an error has its time and number
		w.Write(listedMD5.ReplaceAllLiteral(body, nil))
	}
	a.note(line, w.String())
	return resp, nil
}

// note adds to the history. Requests that time out repeatedly while time passes make one entry, because the
// number of tries is random.
func (a *acting) note(request, answer string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := answered{request, answer}
	if n := len(a.answers); n > 0 && a.answers[n-1] == now && answer == "no answer" {
		return
	}
	a.answers = append(a.answers, now)
}

// run is one order of the requests.
type run struct {
	*testing.T
	server   *emulator.Server
	schedule *schedule.Schedule
	actors   []*acting
	clock    []time.Duration // still to pass
	effects  []emulator.Effect
	faults   int // still to come
	replaced bool
	mortal   bool
	was      *workflow.Plan // the target that is stored at the beginning
	will     *workflow.Plan
	kept     bool     // the target was there after a Hold
	late     []string // requests of the dead that are still under way
	aged     bool     // time has passed
}

// choice is one step of a run.
type choice struct {
	actor  int // index; -1 for what is no actor's
	turn   int // which of the actor's requests
	effect *emulator.Effect
	what   string
}

func (c choice) String() string { return c.what }

const (
	timePasses  = "clock"
	lateArrives = "late"
)

// step is the choice that a run made, with the alternatives.
type step struct {
	options []choice
	taken   int
	text    string
}

func (s step) choice() choice { return s.options[s.taken] }

// explore runs the space. It walks the tree of choices depth first. Each run starts with a new store, repeats
// the choices up to the last one that has alternatives left, takes the next alternative, and continues with
// the first alternative of each choice until there is none or the run reaches a state seen before.
//
// Two states are the same if they agree in everything that can affect what follows: the stored blobs and
// their times, the answers and pending requests of each living actor, the results of the others, and the
// faults and time still to come. Actors depend only on the answers that they get. ETags, writeids and other
// random names are only compared with one another, so they are replaced by the order of their first
// appearance. The answers of an actor are sorted by request: the goroutines of one call meet only when all are
// done, and a call that sends one request at a time has only one order. A run that stops at a known state
// therefore loses nothing, because everything that can follow has been checked. The results of an observer
// depend on what was stored when its call began, and that is part of the state.
func (s space) explore(t *testing.T, more func() bool) {
	began := time.Now()
	opts := []emulator.Options{{NoLog: true}}
	if s.pages > 0 {
		opts = append(opts, emulator.Options{PageLimit: s.pages})
	}
	base := emulator.New(merge.Fields(opts...))
	var prepared time.Time
	var was, will *workflow.Plan
	synctest.Test(t, func(t *testing.T) {
		if s.prepare != nil {
			was, will = s.prepare(t, base)
		}
		prepared = time.Now()
	})

	var path []step
	defer func() {
		if t.Failed() {
			t.Logf("the schedule:\n%s", s.report(t, path))
		}
	}()
	seen := map[[sha256.Size]byte]bool{}
	runs, pruned := 0, 0
	// once makes the choices of path, then those of next, and returns when the run is over.
	once := func(next func(r *run, options []choice) (taken int, more bool)) {
		runs++
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(time.Until(prepared))
			r := s.begin(t, base.Clone(), was, will)
			for n := 0; ; n++ {
				options := r.options()
				if n < len(path) {
					if fmt.Sprint(options) != fmt.Sprint(path[n].options) {
						t.Fatalf("the run is not repeatable: step %d could be %v, and now %v", n+1, path[n].options, options)
					}
				} else {
					taken, more := next(r, options)
					if !more {
						r.end()
						return
					}
					if len(options) == 0 {
						break
					}
					path = append(path, step{options: options, taken: taken})
				}
				path[n].text = r.do(path[n].choice())
				if s.each != nil {
					s.each(r)
				}
			}
			v := vaulttest.WithToken(t, r.server)
			if s.judge == nil {
				r.promises(v)
			} else {
				s.judge(r, v)
			}
		})
	}

	if *interleaveSchedule != "" {
		wanted := strings.Fields(*interleaveSchedule)
		once(func(_ *run, options []choice) (int, bool) {
			if len(wanted) == 0 {
				return 0, true
			}
			i := slices.IndexFunc(options, func(c choice) bool { return c.what == wanted[0] })
			if i < 0 {
				t.Fatalf("%q can't come here, but %v", wanted[0], options)
			}
			wanted = wanted[1:]
			return i, true
		})
		t.Logf("the schedule:\n%s", s.report(t, path))
		return
	}

	unseen := func(r *run, _ []choice) (int, bool) {
		key := r.key()
		if seen[key] {
			pruned++
			return 0, false
		}
		seen[key] = true
		return 0, true
	}
	// Explore so many runs in order, and if that is not all of them, so many more at random.
	limit, sampledRuns := cmp.Or(*interleaveRuns, efforttest.Pick(1, 2, 5000)), efforttest.Pick(1, 4, 1000)
	for runs < limit && more() {
		once(unseen)
		if t.Failed() {
			return
		}
		for len(path) > 0 && path[len(path)-1].taken == len(path[len(path)-1].options)-1 {
			path = path[:len(path)-1]
		}
		if len(path) == 0 {
			t.Logf("%s: %d runs, %d states, %d pruned, %.1f s", s.name, runs, len(seen), pruned, time.Since(began).Seconds())
			return
		}
		path[len(path)-1].taken++
	}
	random := rand.New(rand.NewPCG(interleaveSeed, 0))
	for range sampledRuns {
		if !more() {
			break
		}
		path = nil
		once(func(_ *run, options []choice) (int, bool) {
			// Choose a fault rarely. There are more faults than other choices, and they would all come early.
			plain := slices.IndexFunc(options, func(c choice) bool { return c.effect != nil })
			if plain < 0 || random.IntN(16) == 0 {
				plain = len(options)
			}
			return random.IntN(max(1, plain)), true
		})
		if t.Failed() {
			return
		}
	}
	t.Logf("%s: %d runs, of them up to %d at random with seed %d, %d states in the others, %d pruned, %.1f s: not all",
		s.name, runs, sampledRuns, interleaveSeed, len(seen), pruned, time.Since(began).Seconds())
}

// report describes the schedule and how to run it again.
func (s space) report(t *testing.T, path []step) string {
	var w strings.Builder
	var choices []string
	for i, step := range path {
		fmt.Fprintf(&w, "%3d %-16s %s\n", i+1, step.choice(), step.text)
		choices = append(choices, step.choice().what)
	}
	fmt.Fprintf(&w, "go test -run '^%s$/^%s$' -interleave.schedule '%s' ./tests/races", strings.Split(t.Name(), "/")[0], strings.ReplaceAll(s.name, " ", "_"), strings.Join(choices, " "))
	return vaulttest.Named(w.String())
}

// begin starts the actors. Their first requests are held.
func (s space) begin(t *testing.T, server *emulator.Server, was, will *workflow.Plan) *run {
	vaulttest.Strict(t, server)
	r := &run{T: t, server: server, clock: s.clock, effects: s.effects, faults: 1, replaced: s.replaced, mortal: s.mortal, was: was, will: will}
	if r.effects == nil {
		r.effects = []emulator.Effect{emulator.Crash(), emulator.Crash().Applied()}
		r.faults = efforttest.Pick(1, 1, 2)
	}
	var transports []*emulator.Transport
	for _, actor := range s.actors {
		a := &acting{actor: actor, run: r, transport: server.NamedTransport(actor.name)}
		r.actors = append(r.actors, a)
		transports = append(transports, a.transport)
	}
	r.schedule = schedule.New(transports...)
	r.rest()
	return r
}

// rest waits until every actor has reached its next request or its end.
func (r *run) rest() {
	for n := range 100 {
		// A wait between two tries is shorter than the first pause. A Hold that waits for others takes seconds.
		time.Sleep(2 * time.Millisecond)
		if n > 20 {
			time.Sleep(patienceOfHold / 20)
		}
		synctest.Wait()
		ready := true
		for _, a := range r.actors {
			if !a.started && (a.after == "" || r.actor(a.after).ended) {
				a.begin()
				ready = false
			}
			ready = ready && (!a.started || a.ended || len(r.turns(a)) > 0)
		}
		if ready {
			return
		}
	}
	r.Fatal("an actor waits, and for no request")
}

func (a *acting) begin() {
	a.started = true
	// With a token, because signing and verifying would take a tenth of the time.
	v := vaulttest.WithToken(a.run.T, a.run.server, azblob.Options{ClientOptions: policy.ClientOptions{Transport: a}, Concurrency: max(1, a.concurrency), GracePeriod: cmp.Or(a.grace, 10*time.Minute)},
		azblob.Options{Backoff: azblob.Backoff{InitialInterval: time.Millisecond, MaxInterval: time.Millisecond, MaxElapsed: time.Hour}})
	ctx, cancel := context.WithCancel(a.run.Context())
	a.cancel = cancel
	go func() {
		defer cancel()
		err := a.do(ctx, a, v)
		a.mu.Lock()
		defer a.mu.Unlock()
		a.ended, a.err = true, err
	}()
}

// end ends all actors without another request.
func (r *run) end() {
	for _, a := range r.actors {
		a.transport.Crash()
		if a.started {
			a.cancel()
		}
	}
	synctest.Wait()
}

func (r *run) actor(name string) *acting {
	return r.actors[slices.IndexFunc(r.actors, func(a *acting) bool { return a.name == name })]
}

// turns returns the held requests of an actor.
func (r *run) turns(a *acting) []*schedule.Turn {
	return slices.DeleteFunc(r.schedule.Held(), func(turn *schedule.Turn) bool { return turn.Request.Client != a.name })
}

// options returns the choices for the next step.
func (r *run) options() (list []choice) {
	var faults []choice
	for i, a := range r.actors {
		for j, turn := range r.turns(a) {
			what := a.name
			if j > 0 {
				what += fmt.Sprint("#", j+1)
			}
			list = append(list, choice{actor: i, turn: j, what: what})
			if a.reads || r.faults == 0 {
				continue
			}
			for _, effect := range r.effects {
				applied := effect != emulator.Crash()
				if applied && (turn.Request.Method == http.MethodGet || turn.Request.Method == http.MethodHead) {
					continue // what was read is lost, as if it had not been
				}
				if r.aged && !r.mortal && effect != emulator.LostAnswer() {
					continue // frozen, and then killed: the documented limit
				}
				words := strings.NewReplacer(" ", "-", ",", "").Replace(effect.String())
				faults = append(faults, choice{actor: i, turn: j, effect: &effect, what: what + "/" + words})
			}
		}
	}
	if len(list) > 0 && len(r.clock) > 0 && len(r.late) == 0 {
		list = append(list, choice{actor: -1, what: timePasses})
	}
	if len(r.late) > 0 {
		list = append(list, choice{actor: -1, what: lateArrives})
	}
	return append(list, faults...)
}

// do takes a step and describes its effect.
func (r *run) do(c choice) (text string) {
	defer r.rest()
	switch c.what {
	case timePasses:
		d := r.clock[0]
		r.clock, r.aged = r.clock[1:], true
		time.Sleep(d)
		return d.String()
	case lateArrives:
		text = strings.Join(r.late, "; ")
		r.late = nil
		r.server.DeliverLate()
		return text
	}
	a := r.actors[c.actor]
	if a.fresh {
		a.fresh = false
		a.saw = r.glance()
		a.note("", fmt.Sprint(a.saw))
	}
	if c.effect != nil {
		r.faults--
		a.transport.Inject(emulator.On().Times(1).Do(*c.effect))
	}
	request, ok := r.turns(a)[c.turn].Grant()
	if !ok {
		r.Fatalf("%v is not held any more", c)
	}
	if a.dead() {
		a.cancel()
		if *c.effect == inFlight {
			r.late = append(r.late, fmt.Sprint(request, request.IfMatch, request.Metadata))
		}
	}
	return request.String()
}

// inFlight kills a process whose request takes effect later.
var inFlight = emulator.Crash().Late(1 << 30)

// listedMD5 matches sums of bodies that contain random ETags.
var listedMD5 = regexp.MustCompile(`<Content-MD5>[^<]*`)

// anonymous replaces ETags and random UUIDs with numbers, in the order of their first appearance.
func anonymous(text string) string {
	var w strings.Builder
	names := map[string]int{}
	done := 0
	for i := 0; i < len(text); i++ {
		n := 0
		switch {
		case strings.HasPrefix(text[i:], "0x8D") && i+17 <= len(text):
			n = 17
		case i+36 <= len(text) && text[i+8] == '-' && text[i+13] == '-' && text[i+18] == '-' && text[i+23] == '-' &&
			!strings.HasPrefix(text[i:], numberedPrefix):
			n = 36
		default:
			continue
		}
		name, known := names[text[i:i+n]]
		if !known {
			name = len(names)
			names[text[i:i+n]] = name
		}
		w.WriteString(text[done:i])
		fmt.Fprint(&w, "#", name)
		i += n - 1
		done = i + 1
	}
	w.WriteString(text[done:])
	return w.String()
}

// key identifies the state of a run, as described at explore.
func (r *run) key() [sha256.Size]byte {
	var w strings.Builder
	for c := range r.server.Containers() {
		fmt.Fprintln(&w, c)
		for b := range r.server.Blobs(c) {
			fmt.Fprintln(&w, b.Name, b.ETag, b.LastModified.Unix(), b.Metadata, string(b.Body))
		}
	}
	for _, a := range r.actors {
		switch {
		case a.dead():
			fmt.Fprintln(&w, a.name, "is dead")
		case a.ended:
			fmt.Fprintln(&w, a.name, "has ended:", kindsOf(a.err))
		default:
			fmt.Fprintln(&w, a.name, a.started, a.fresh)
			answers := slices.Clone(a.answers)
			slices.SortStableFunc(answers, func(a, b answered) int { return cmp.Compare(a.request, b.request) })
			fmt.Fprintln(&w, answers)
			for _, turn := range r.turns(a) {
				fmt.Fprintln(&w, turn.Request, turn.Request.IfMatch)
			}
		}
	}
	fmt.Fprintln(&w, len(r.clock), r.faults, r.late)
	return sha256.Sum256([]byte(anonymous(w.String())))
}

// kinds are the errors of the contract.
var kinds = []error{
	storage.ErrNotFound, storage.ErrExists, storage.ErrConflict, storage.ErrInvalid, storage.ErrSchema, storage.ErrCorrupt,
	storage.ErrDenied, storage.ErrUnavailable, storage.ErrUnknown, storage.ErrClosed,
}

// kindsOf names the errors of the contract that err matches: "" for nil, and "other" if there are none.
func kindsOf(err error) string {
	var is []string
	for _, kind := range kinds {
		if errors.Is(err, kind) {
			is = append(is, kind.Error())
		}
	}
	if err != nil && len(is) == 0 {
		return "other"
	}
	return strings.Join(is, ", ")
}
