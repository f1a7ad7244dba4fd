package races_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
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

	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/emulator/schedule"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"

	"github.com/planvault/azblob/tests/vaulttest"
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
	// prepare makes the store with which each run begins.
	prepare func(t *testing.T, server *emulator.Server)
	actors  []actor
	// clock is time that passes in pieces, each at any moment. It freezes the actors whose requests are under
	// way.
	clock []time.Duration
	// effects are the faults that may hit a request of a writing actor, once in a run. The default is
	// crashes.
	effects []emulator.Effect
	// each checks the store after each step. It may be nil.
	each func(r *run)
	// judge checks the store when all actors have ended.
	judge func(r *run, v *azblob.Vault)
	// pages is the number of items on a page of a listing; 0 means no limit.
	pages int
	// replaced says that another plan with the same ID takes the target's place.
	replaced bool
	// mortal says that actors that were frozen may be killed too.
	mortal bool
}

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
	do    func(ctx context.Context, a *acting, v *azblob.Vault) error
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
func (s space) explore(t *testing.T) {
	began := time.Now()
	opts := []emulator.Option{emulator.WithoutLog()}
	if s.pages > 0 {
		opts = append(opts, emulator.WithPageLimit(s.pages))
	}
	base := emulator.New(opts...)
	var prepared time.Time
	synctest.Test(t, func(t *testing.T) {
		if s.prepare != nil {
			s.prepare(t, base)
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
			r := s.begin(t, base.Clone())
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
			s.judge(r, vaulttest.WithToken(t, r.server))
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
	for runs < limit {
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
	t.Logf("%s: %d runs, of them %d at random with seed %d, %d states in the others, %d pruned, %.1f s: not all",
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
func (s space) begin(t *testing.T, server *emulator.Server) *run {
	vaulttest.Strict(t, server)
	r := &run{T: t, server: server, clock: s.clock, effects: s.effects, faults: 1, replaced: s.replaced, mortal: s.mortal}
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
	v := vaulttest.WithToken(a.run.T, a.run.server, azblob.WithTransport(a), azblob.WithConcurrency(max(1, a.concurrency)), azblob.WithGracePeriod(cmp.Or(a.grace, 10*time.Minute)),
		azblob.WithRetry(azblob.Retry{InitialInterval: time.Millisecond, MaxInterval: time.Millisecond, MaxElapsed: time.Hour}))
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

// numberedPrefix starts the IDs that are the same in each run: UUIDv7 of the time at which a bubble begins.
const numberedPrefix = "00dc6acf-ac00-7000-8000-"

// numbered sets all IDs of a plan to values that depend on n alone.
func numbered(plan *workflow.Plan, n int) *workflow.Plan {
	i := 0
	id := func() uuid.UUID {
		i++
		return uuid.MustParse(fmt.Sprintf("%s%012x", numberedPrefix, n*1000+i))
	}
	for o := range workflow.Walk(plan) {
		*o.Header().ID = id()
		if a, ok := o.(*workflow.Action); ok {
			a.Key = uuid.Nil
		}
	}
	plan.SubmitTime = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	driver.Complete(plan)
	return plan
}

// target is the ID of the plan that the actors share.
var target = numbered(&workflow.Plan{}, 1).ID

// small returns the plan that the actors share. It is the same in each run.
func small(name string) *workflow.Plan {
	plan := plantest.Small()
	plan.Name, plan.Blocks[0].Name = name, name // in two blobs, so that a mixture of two plans is neither
	plan = numbered(plan, 1)
	plan.SubmitTime = plan.SubmitTime.Add(time.Duration(len(name)) * time.Second)
	return plan
}

// glance is the stored state of the target at one moment.
type glance struct {
	whole  bool
	status workflow.Status
}

func (r *run) glance() (g glance) {
	for c := range r.server.Containers() {
		entry, hasEntry := r.server.Blob(c, "plans/"+target.String()+"-entry.json")
		_, hasObject := r.server.Blob(c, "plans/"+target.String()+"-object.json")
		if hasEntry && hasObject {
			g.whole = true
			var state workflow.State
			if err := json.Unmarshal([]byte(entry.Metadata["state"]), &state); err != nil {
				r.Error(err)
			}
			g.status = state.Status
		}
	}
	return g
}

// atEnd settles the store after a run and returns the wanted plan that is there, or nil.
func (r *run) atEnd(v *azblob.Vault, wanted ...*workflow.Plan) *workflow.Plan {
	r.Helper()
	r.server.DeliverLate()
	early := vaulttest.WholeOrGone(r.T, v, wanted...)
	vaulttest.Settled(r.T, v)
	late := vaulttest.WholeOrGone(r.T, v, wanted...)
	if early != late {
		r.Error("Recovery changed what Read finds")
	}
	if late == nil {
		for c := range r.server.Containers() {
			for b := range r.server.Blobs(c) {
				if strings.Contains(b.Name, target.String()) {
					r.Errorf("%s is left", b.Name)
				}
			}
		}
	}
	return late
}

// returned reports whether an actor lived to return nil. Any error must match one of the wanted ones.
func (r *run) returned(name string, wanted ...error) bool {
	r.Helper()
	a := r.actor(name)
	if a.dead() || a.err == nil {
		return !a.dead()
	}
	if !slices.ContainsFunc(wanted, func(kind error) bool { return errors.Is(a.err, kind) }) {
		r.Errorf("%s: %v", name, a.err)
	}
	return false
}

// creator creates the plan with a name that identifies the creator.
func creator(name, plan string) actor {
	return actor{name: name, do: func(ctx context.Context, a *acting, v *azblob.Vault) error {
		began := time.Now()
		err := v.Create(ctx, small(plan))
		if took := time.Since(began); err == nil && took > 10*time.Minute {
			a.run.Errorf("%s succeeded after %v, when its grace period was over", name, took)
		}
		return err
	}}
}

// creators checks creators of the same ID: at most one succeeds, and its plan is stored.
func (r *run) creators(v *azblob.Vault, plans map[string]*workflow.Plan, wanted ...error) {
	r.Helper()
	there := r.atEnd(v, slices.Collect(maps.Values(plans))...)
	won := 0
	for name, plan := range plans {
		a := r.actor(name)
		switch nilled := r.returned(name, append(wanted, storage.ErrExists, storage.ErrConflict)...); {
		case nilled && there != plan:
			r.Errorf("%s returned nil, and its plan is not there", name)
		case nilled:
			won++
		case there == plan && !a.dead() && !errors.Is(a.err, storage.ErrUnknown):
			r.Errorf("%s returned %v, and its plan is there", name, a.err)
		}
	}
	if won > 1 {
		r.Errorf("%d creators succeeded", won)
	}
}

// observer reads twice, and compares each result with the store before and after the call.
func observer(name string, look func(ctx context.Context, v *azblob.Vault, t *testing.T) (seen bool, status workflow.Status, err error)) actor {
	return actor{name: name, concurrency: 2, reads: true, do: func(ctx context.Context, a *acting, v *azblob.Vault) error {
		for range 2 {
			a.fresh = true
			seen, status, err := look(ctx, v, a.run.T)
			if ctx.Err() != nil {
				return nil // the run is over
			}
			if err != nil {
				a.run.Errorf("%s: %v", name, err)
				return err
			}
			from, to := a.saw, a.run.glance()
			switch {
			case seen && !from.whole && !to.whole:
				a.run.Errorf("%s shows a plan that is not there", name)
			case !seen && from.whole && to.whole && !a.run.replaced:
				a.run.Errorf("%s does not show a plan that is there", name)
			case seen && !a.run.replaced && status >= 0 && (from.whole && status < from.status || to.whole && status > to.status):
				a.run.Errorf("%s shows a plan as %s that was %s and is %s", name, status, from.status, to.status)
			}
		}
		return nil
	}}
}

// unsaid is the status that an observer reports if it does not learn it.
const unsaid workflow.Status = -1

// reader reads the plan, which must equal one of the states.
func reader(states ...**workflow.Plan) actor {
	return observer("reader", func(ctx context.Context, v *azblob.Vault, t *testing.T) (bool, workflow.Status, error) {
		got, err := v.Read(ctx, target)
		if errors.Is(err, storage.ErrNotFound) {
			return false, unsaid, nil
		}
		if err != nil {
			return false, unsaid, err
		}
		var d string
		for _, state := range states {
			if d = plantest.Diff(*state, got); d == "" {
				return true, got.State.Status, nil
			}
		}
		t.Errorf("Read returns a plan that never was: %s", d)
		return true, got.State.Status, nil
	})
}

// prober calls Exists.
func prober() actor {
	return observer("prober", func(ctx context.Context, v *azblob.Vault, _ *testing.T) (bool, workflow.Status, error) {
		exists, err := v.Exists(ctx, target)
		return exists, unsaid, err
	})
}

// lister lists all plans, one of which exists throughout.
func lister() actor {
	return observer("lister", func(ctx context.Context, v *azblob.Vault, t *testing.T) (bool, workflow.Status, error) {
		return inListing(ctx, v, t, storage.Filters{}, target, steady)
	})
}

// searcher searches for the plan by its ID.
func searcher() actor {
	return observer("searcher", func(ctx context.Context, v *azblob.Vault, t *testing.T) (bool, workflow.Status, error) {
		return inListing(ctx, v, t, storage.Filters{ByIDs: []uuid.UUID{target}}, target)
	})
}

// steady is the ID of a plan that no actor touches.
var steady = numbered(&workflow.Plan{}, 2).ID

// inListing reports whether a listing shows the first of the plans, and with which status. The listing must
// show the others, and none twice.
func inListing(ctx context.Context, v *azblob.Vault, t *testing.T, f storage.Filters, ids ...uuid.UUID) (seen bool, status workflow.Status, err error) {
	list, err := v.List(ctx, 0)
	if len(f.ByIDs) > 0 {
		list, err = v.Search(ctx, f)
	}
	if err != nil {
		return false, unsaid, err
	}
	found := map[uuid.UUID]int{}
	for r := range list {
		if r.Err != nil {
			return false, unsaid, r.Err
		}
		found[r.Result.ID]++
		if r.Result.ID == ids[0] {
			status = r.Result.State.Status
		}
	}
	for i, id := range ids {
		if n := found[id]; n > 1 || n == 0 && i > 0 {
			t.Errorf("a listing shows plan %s %d times", id, n)
		}
	}
	return found[ids[0]] == 1, status, nil
}

// updater makes one update.
func updater(name string, plan **workflow.Plan, update func(ctx context.Context, v *azblob.Vault, plan *workflow.Plan) error) actor {
	return actor{name: name, do: func(ctx context.Context, _ *acting, v *azblob.Vault) error {
		mine := **plan // the version in it changes
		return update(ctx, v, &mine)
	}}
}

// completer gives the plan its final status.
func completer(name string, after **workflow.Plan) actor {
	return updater(name, after, func(ctx context.Context, v *azblob.Vault, plan *workflow.Plan) error { return v.UpdatePlan(ctx, plan) })
}

func deleter(name string) actor {
	return actor{name: name, do: func(ctx context.Context, _ *acting, v *azblob.Vault) error { return v.Delete(ctx, target) }}
}

func recoverer(name string) actor {
	return actor{name: name, do: func(ctx context.Context, _ *acting, v *azblob.Vault) error { return v.Recovery(ctx) }}
}

// then makes an actor begin after another has ended.
func (a actor) then(name string) actor {
	a.after = name
	return a
}

// within gives an actor's vault another grace period.
func (a actor) within(grace time.Duration) actor {
	a.grace = grace
	return a
}

// wide lets an actor's vault send two requests at a time.
func (a actor) wide() actor {
	a.concurrency = 2
	return a
}

func TestInterleavings(t *testing.T) {
	efforttest.NotShort(t, "a scheduler lets one request go at a time")
	for i, s := range spaces() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			spaces()[i].explore(t) // plans of its own: spaces share theirs
		})
	}
}

// writing is what writers do to the plan, and what observers may see.
type writing struct {
	name     string
	prepare  func(t *testing.T, server *emulator.Server)
	actors   []actor
	states   []**workflow.Plan // that a reader may find
	replaced bool              // by another plan of the same ID
	judge    func(r *run, v *azblob.Vault)
}

// writings returns all kinds of writers without rivals.
func writings() []writing {
	first, second := small("first"), small("second")
	var notStarted, started, before, part, after *workflow.Plan
	prepareNotStarted := func(t *testing.T, server *emulator.Server) {
		notStarted = small("plan")
		vaulttest.Must(t, vaulttest.OnEmulator(t, server).Create(t.Context(), notStarted))
		plan := *notStarted
		plan.State.Status = workflow.Running
		started = &plan
	}
	prepareRunning := func(t *testing.T, server *emulator.Server) {
		before, after = vaulttest.Running(t, vaulttest.OnEmulator(t, server), small("plan"))
	}
	end := func(name string, was, will **workflow.Plan, wanted ...error) func(r *run, v *azblob.Vault) {
		return func(r *run, v *azblob.Vault) {
			there := r.atEnd(v, *was, *will)
			if there == nil {
				r.Error("the plan is gone")
			}
			if r.returned(name, wanted...) && there != *will {
				r.Errorf("%s returned nil, and its update is lost", name)
			}
		}
	}
	gone := func(r *run, v *azblob.Vault, states ...**workflow.Plan) {
		var wanted []*workflow.Plan
		for _, state := range states {
			wanted = append(wanted, *state)
		}
		there := r.atEnd(v, wanted...)
		if r.returned("deleter") && there != nil {
			r.Error("the deleter returned nil, and the plan is there")
		}
	}
	return []writing{
		{
			name:   "a creation",
			actors: []actor{creator("first", "first")},
			states: []**workflow.Plan{&first},
			judge:  func(r *run, v *azblob.Vault) { r.creators(v, map[string]*workflow.Plan{"first": first}) },
		},
		{
			name:    "an update to Running",
			prepare: prepareNotStarted,
			actors:  []actor{completer("updater", &started)},
			states:  []**workflow.Plan{&notStarted, &started},
			judge:   end("updater", &notStarted, &started),
		},
		{
			name: "an update of a sub-object",
			prepare: func(t *testing.T, server *emulator.Server) {
				prepareRunning(t, server)
				part = withAction(before)
			},
			actors: []actor{updater("updater", &part, func(ctx context.Context, v *azblob.Vault, plan *workflow.Plan) error {
				action := *plan.Blocks[0].Sequences[0].Actions[0]
				return v.UpdateAction(ctx, &action)
			})},
			states: []**workflow.Plan{&before, &part},
			judge:  end("updater", &before, &part),
		},
		{
			name:    "a completion",
			prepare: prepareRunning,
			actors:  []actor{completer("completer", &after)},
			states:  []**workflow.Plan{&before, &after},
			judge:   end("completer", &before, &after),
		},
		{
			name:    "a deletion",
			prepare: prepareRunning,
			actors:  []actor{deleter("deleter")},
			states:  []**workflow.Plan{&before},
			judge:   func(r *run, v *azblob.Vault) { gone(r, v, &before) },
		},
		{
			name:    "a completion and a recovery",
			prepare: prepareRunning,
			actors:  []actor{completer("completer", &after), recoverer("recovery")},
			states:  []**workflow.Plan{&before, &after},
			judge: func(r *run, v *azblob.Vault) {
				end("completer", &before, &after)(r, v)
				r.returned("recovery")
			},
		},
		{
			name:     "a deletion and then a creation of the same ID",
			prepare:  func(t *testing.T, server *emulator.Server) { prepareNotStarted(t, server) },
			actors:   []actor{deleter("deleter"), creator("second", "second").then("deleter")},
			states:   []**workflow.Plan{&notStarted, &second},
			replaced: true,
			judge: func(r *run, v *azblob.Vault) {
				there := r.atEnd(v, notStarted, second)
				r.returned("deleter")
				if r.returned("second", storage.ErrExists, storage.ErrConflict) != (there == second) && !r.actor("second").dead() {
					r.Errorf("second returned %v", r.actor("second").err)
				}
			},
		},
	}
}

// withAction returns a copy of a plan whose action has another state.
func withAction(plan *workflow.Plan) *workflow.Plan {
	copied := *plan
	block := *plan.Blocks[0]
	sequence := *block.Sequences[0]
	action := *sequence.Actions[0]
	action.State.End = action.State.End.Add(time.Hour)
	sequence.Actions = []*workflow.Action{&action}
	block.Sequences = []*workflow.Sequence{&sequence}
	copied.Blocks = []*workflow.Block{&block}
	return &copied
}

func spaces() (list []space) {
	add := func(s space) { list = append(list, s) }

	first, second, other := small("first"), small("second"), otherParts()
	creators := func(r *run, v *azblob.Vault) {
		r.creators(v, map[string]*workflow.Plan{"first": first, "second": second})
	}
	add(space{
		name:   "two creators of one ID",
		actors: []actor{creator("first", "first"), creator("second", "second")},
		judge:  creators,
	})
	add(space{
		name: "two creators of one ID with sub-objects of their own",
		actors: []actor{creator("first", "first"), {name: "second", do: func(ctx context.Context, _ *acting, v *azblob.Vault) error {
			return v.Create(ctx, otherParts())
		}}},
		judge: func(r *run, v *azblob.Vault) {
			r.creators(v, map[string]*workflow.Plan{"first": first, "second": other})
		},
	})
	add(space{
		name:   "two creators of one ID with two requests at a time",
		actors: []actor{creator("first", "first").wide(), creator("second", "second").wide()},
		judge:  creators,
	})
	for _, w := range writings() {
		for _, observer := range []actor{reader(w.states...), prober(), searcher(), lister()} {
			s := space{name: w.name + " and a " + observer.name, prepare: w.prepare, actors: append(slices.Clone(w.actors), observer), judge: w.judge, replaced: w.replaced}
			if observer.name == "lister" {
				s.pages = 1
				s.prepare = func(t *testing.T, server *emulator.Server) {
					vaulttest.Created(t, vaulttest.OnEmulator(t, server), numbered(plantest.Small(), 2))
					if w.prepare != nil {
						w.prepare(t, server)
					}
				}
			}
			add(s)
		}
	}
	list = append(list, recoverySpaces()...)
	list = append(list, rivalSpaces()...)
	list = append(list, takeovers()...)
	return list
}

// grace is time in pieces: to the end of the grace period, past it, and past the margin. No sum of them is a
// multiple of the time limit of a try, so no try ends while a request is chosen.
var grace = []time.Duration{9*time.Minute + 55*time.Second, 10 * time.Second, 5*time.Minute + 5*time.Second}

// long is time beyond grace period and margin, chosen in the same way.
var long = []time.Duration{15*time.Minute + 10*time.Second}

// recoverySpaces returns the spaces of Recovery: beside other calls, and on their remains.
func recoverySpaces() (list []space) {
	first, second := small("first"), small("second")
	var plan *workflow.Plan
	var before, after *workflow.Plan
	frozen := []emulator.Effect{emulator.LostAnswer(), emulator.Crash(), emulator.Crash().Applied()}
	list = append(list,
		space{
			name:   "a creation and a recovery",
			actors: []actor{creator("first", "first"), recoverer("recovery")},
			judge: func(r *run, v *azblob.Vault) {
				r.creators(v, map[string]*workflow.Plan{"first": first})
				r.returned("recovery")
			},
			effects: []emulator.Effect{emulator.Crash(), emulator.Crash().Applied(), inFlight},
		},
		space{
			name:    "a frozen creation and a recovery",
			actors:  []actor{creator("first", "first"), recoverer("recovery")},
			clock:   grace,
			effects: frozen,
			judge: func(r *run, v *azblob.Vault) {
				r.creators(v, map[string]*workflow.Plan{"first": first}, storage.ErrUnknown, storage.ErrUnavailable)
				r.returned("recovery")
			},
		},
		space{
			name:   "two creators of one ID and a recovery",
			actors: []actor{creator("first", "first"), creator("second", "second"), recoverer("recovery")},
			clock:  long,
			judge: func(r *run, v *azblob.Vault) {
				r.creators(v, map[string]*workflow.Plan{"first": first, "second": second},
					storage.ErrUnknown, storage.ErrUnavailable)
				r.returned("recovery")
			},
		},
		space{
			name: "a frozen deletion and a recovery",
			prepare: func(t *testing.T, server *emulator.Server) {
				_, plan = vaulttest.Running(t, vaulttest.OnEmulator(t, server), small("plan"))
				vaulttest.Must(t, vaulttest.OnEmulator(t, server).UpdatePlan(t.Context(), plan))
			},
			actors:  []actor{deleter("deleter"), recoverer("recovery")},
			clock:   long,
			effects: frozen,
			judge: func(r *run, v *azblob.Vault) {
				r.slowDeleter(v, plan)
			},
		},
		space{
			name: "a frozen deletion that may be killed and a recovery",
			prepare: func(t *testing.T, server *emulator.Server) {
				plan, _ = vaulttest.Final(t, vaulttest.WorldOf(server), small("plan"))
			},
			actors: []actor{deleter("deleter"), recoverer("recovery")},
			clock:  long,
			mortal: true,
			judge:  func(r *run, v *azblob.Vault) { r.slowDeleter(v, plan) },
		},
		space{
			name:   "a creation and a recovery of a shorter grace period",
			actors: []actor{creator("first", "first"), recoverer("recovery").within(time.Second)},
			clock:  []time.Duration{20 * time.Second},
			judge: func(r *run, v *azblob.Vault) {
				r.creators(v, map[string]*workflow.Plan{"first": first})
				r.returned("recovery")
			},
		},
		space{
			name:   "two creators of one ID with grace periods that differ and a recovery of the shorter one",
			actors: []actor{creator("first", "first"), creator("second", "second").within(time.Second), recoverer("recovery").within(time.Second)},
			clock:  []time.Duration{20 * time.Second},
			judge: func(r *run, v *azblob.Vault) {
				r.creators(v, map[string]*workflow.Plan{"first": first, "second": second}, storage.ErrUnknown, storage.ErrUnavailable)
				r.returned("recovery")
			},
		},
		space{
			name: "a frozen completion and a recovery",
			prepare: func(t *testing.T, server *emulator.Server) {
				before, after = vaulttest.Running(t, vaulttest.OnEmulator(t, server), small("plan"))
			},
			actors:  []actor{completer("completer", &after), recoverer("recovery")},
			clock:   long,
			effects: frozen,
			judge: func(r *run, v *azblob.Vault) {
				there := r.atEnd(v, before, after)
				r.returned("recovery")
				if r.returned("completer", storage.ErrUnknown) && there != after {
					r.Error("the completer returned nil, and its update is lost")
				}
			},
		},
	)

	// The remains of a call that is broken off at its nth request.
	remains := []struct {
		name     string
		from, to int
		prepare  func(t *testing.T, server *emulator.Server)
		call     func(t *testing.T, v *azblob.Vault)
		there    func(n int) bool
	}{
		{
			"creation", 3, 7,
			func(*testing.T, *emulator.Server) { plan = first },
			func(t *testing.T, v *azblob.Vault) { _ = v.Create(t.Context(), small("first")) },
			func(int) bool { return false },
		},
		{
			"deletion", 3, 6,
			func(t *testing.T, server *emulator.Server) {
				plan, _ = vaulttest.Running(t, vaulttest.OnEmulator(t, server), small("plan"))
			},
			func(t *testing.T, v *azblob.Vault) { _ = v.Delete(t.Context(), target) },
			func(n int) bool { return n == 3 },
		},
		{
			"completion", 2, 3,
			func(t *testing.T, server *emulator.Server) {
				_, plan = vaulttest.Running(t, vaulttest.OnEmulator(t, server), small("plan"))
			},
			func(t *testing.T, v *azblob.Vault) {
				mine := *plan
				_ = v.UpdatePlan(t.Context(), &mine)
			},
			func(int) bool { return true },
		},
	}
	list = append(list, space{
		name: "a recovery of a creation broken off and then a creation of the same ID and a reader",
		prepare: func(t *testing.T, server *emulator.Server) {
			vaulttest.Dies(t, server, emulator.On().Nth(7), func(v *azblob.Vault) { _ = v.Create(t.Context(), small("first")) })
			time.Sleep(vaulttest.PastGrace)
		},
		actors: []actor{recoverer("recovery"), creator("second", "second").then("recovery"), reader(&second)},
		judge: func(r *run, v *azblob.Vault) {
			r.creators(v, map[string]*workflow.Plan{"second": second})
			r.returned("recovery")
		},
		replaced: true,
	})
	for _, n := range []int{3, 7} {
		prepare := func(t *testing.T, server *emulator.Server) {
			vaulttest.Dies(t, server, emulator.On().Nth(n), func(v *azblob.Vault) { _ = v.Create(t.Context(), small("first")) })
			time.Sleep(vaulttest.PastGrace)
		}
		both := []actor{creator("first", "first"), creator("second", "second")}
		list = append(list,
			space{
				name: fmt.Sprintf("two creators that clear a creation broken off at %d", n), prepare: prepare, actors: both,
				judge: func(r *run, v *azblob.Vault) {
					r.creators(v, map[string]*workflow.Plan{"first": first, "second": second})
				},
			},
			space{
				name: fmt.Sprintf("two creators that clear a creation broken off at %d and a recovery", n), prepare: prepare,
				actors: append(both, recoverer("recovery")),
				judge: func(r *run, v *azblob.Vault) {
					r.creators(v, map[string]*workflow.Plan{"first": first, "second": second})
					r.returned("recovery")
				},
			})
	}
	for _, left := range remains {
		for n := left.from; n <= left.to; n++ {
			prepare := func(t *testing.T, server *emulator.Server) {
				left.prepare(t, server)
				vaulttest.Dies(t, server, emulator.On().Nth(n), func(v *azblob.Vault) { left.call(t, v) })
				time.Sleep(vaulttest.PastGrace)
			}
			name := fmt.Sprintf("a %s broken off at %d", left.name, n)
			judge := func(r *run, v *azblob.Vault) {
				if there := r.atEnd(v, plan); (there != nil) != left.there(n) {
					r.Errorf("the plan is there: %v", there != nil)
				}
				for _, a := range r.actors {
					r.returned(a.name)
				}
			}
			list = append(list, space{
				name: "two recoveries of " + name, prepare: prepare, judge: judge,
				actors: []actor{recoverer("recovery"), recoverer("other")},
			})
			if left.there(n) {
				list = append(list, space{
					name: "a recovery of " + name + " and a reader", prepare: prepare, judge: judge,
					actors: []actor{recoverer("recovery"), reader(&plan)},
				})
				continue
			}
			list = append(list, space{
				name: "a recovery of " + name + " and a creation of the same ID", prepare: prepare,
				actors: []actor{recoverer("recovery"), creator("second", "second")},
				judge: func(r *run, v *azblob.Vault) {
					r.creators(v, map[string]*workflow.Plan{"second": second})
					r.returned("recovery")
				},
			})
		}
	}
	return list
}

// slowDeleter checks a Delete that may have been frozen, and a recovery beside it.
func (r *run) slowDeleter(v *azblob.Vault, plan *workflow.Plan) {
	r.Helper()
	there := r.atEnd(v, plan)
	if r.returned("deleter", storage.ErrNotFound, storage.ErrUnknown, storage.ErrUnavailable) && there != nil {
		r.Error("the deleter returned nil, and the plan is there")
	}
	r.returned("recovery")
}

// deleters checks several Deletes of a plan, which had one of the given states.
func (r *run) deleters(v *azblob.Vault, plans []*workflow.Plan, names ...string) {
	r.Helper()
	there := r.atEnd(v, plans...)
	for _, name := range names {
		if r.returned(name, storage.ErrNotFound) && there != nil {
			r.Errorf("%s returned nil, and the plan is there", name)
		}
	}
}

// rivalSpaces returns spaces of writers of the same plan that do not know of each other.
func rivalSpaces() (list []space) {
	var before, part, after, other *workflow.Plan
	first := small("first")
	prepare := func(t *testing.T, server *emulator.Server) {
		before, after = vaulttest.Running(t, vaulttest.OnEmulator(t, server), small("plan"))
		part = withAction(before)
		copied := *after
		copied.State.Status, copied.Reason = workflow.Failed, workflow.BlockFailed
		other = &copied
	}
	partUpdater := updater("updater", &part, func(ctx context.Context, v *azblob.Vault, plan *workflow.Plan) error {
		action := *plan.Blocks[0].Sequences[0].Actions[0]
		return v.UpdateAction(ctx, &action)
	})
	var notStarted, started *workflow.Plan
	for _, u := range []struct {
		name    string
		prepare func(t *testing.T, server *emulator.Server)
		actor   actor
		states  []**workflow.Plan
	}{
		{"an update to Running", func(t *testing.T, server *emulator.Server) {
			notStarted = small("plan")
			vaulttest.Must(t, vaulttest.OnEmulator(t, server).Create(t.Context(), notStarted))
			plan := *notStarted
			plan.State.Status = workflow.Running
			started = &plan
		}, completer("updater", &started), []**workflow.Plan{&notStarted, &started}},
		{"an update of a sub-object", prepare, partUpdater, []**workflow.Plan{&before, &part}},
		{"a completion", prepare, completer("updater", &after), []**workflow.Plan{&before, &after}},
	} {
		judge := func(r *run, v *azblob.Vault) {
			r.deleters(v, []*workflow.Plan{*u.states[0], *u.states[1]}, "deleter")
			r.returned("updater", storage.ErrNotFound)
		}
		list = append(list,
			space{name: u.name + " and a deletion", prepare: u.prepare, judge: judge, actors: []actor{u.actor, deleter("deleter")}},
			space{name: u.name + " and a deletion and a reader", prepare: u.prepare, judge: judge, actors: []actor{u.actor, deleter("deleter"), reader(u.states...)}},
			space{name: u.name + " and a deletion and a recovery", prepare: u.prepare, judge: judge, actors: []actor{u.actor, deleter("deleter"), recoverer("recovery")}},
		)
	}
	return append(list,
		space{
			name: "two completions", prepare: prepare,
			actors: []actor{completer("first", &after), completer("second", &other)},
			judge: func(r *run, v *azblob.Vault) {
				there := r.atEnd(v, before, after, other)
				one, two := r.returned("first", storage.ErrConflict), r.returned("second", storage.ErrConflict)
				if one && two || one && there != after || two && there != other {
					r.Errorf("first succeeded: %v, second: %v", one, two)
				}
			},
		},
		space{
			name: "two deletions", prepare: prepare,
			actors: []actor{deleter("deleter"), deleter("other")},
			judge:  func(r *run, v *azblob.Vault) { r.deleters(v, []*workflow.Plan{before}, "deleter", "other") },
		},
		space{
			name:   "a creation and then a deletion and a reader",
			actors: []actor{creator("first", "first"), deleter("deleter").then("first"), reader(&first)},
			judge: func(r *run, v *azblob.Vault) {
				r.deleters(v, []*workflow.Plan{first}, "deleter")
				r.returned("first", storage.ErrUnknown)
			},
		},
	)
}

// TestReadBesideAnotherCreation deletes a plan and creates another one with the same ID between the two
// requests of a Read, which must return one of the two.
func TestReadBesideAnotherCreation(t *testing.T) {
	vaulttest.InBubble(t, "after a deletion", func(t *testing.T, server *emulator.Server) {
		v := vaulttest.OnEmulator(t, server)
		one, other := small("one"), small("another")
		vaulttest.Must(t, v.Create(t.Context(), one))
		transport := server.Transport()
		asked := 0
		transport.SetGate(vaulttest.Gate(func(emulator.Request) {
			if asked++; asked == 2 {
				if err := errors.Join(v.Delete(t.Context(), target), v.Create(t.Context(), other)); err != nil {
					t.Error(err)
				}
			}
		}))
		got := vaulttest.Reread(t, vaulttest.OnEmulator(t, server, azblob.WithTransport(transport), azblob.WithConcurrency(1)), one)
		if d := plantest.Diff(other, got); d != "" && plantest.Diff(one, got) != "" {
			t.Error(d)
		}
	})
}

// otherParts returns a plan with the target's ID whose sub-objects have other IDs.
func otherParts() *workflow.Plan {
	plan := numbered(plantest.Small(), 3)
	plan.ID, plan.Name, plan.Blocks[0].Name = target, "second", "second"
	driver.Complete(plan)
	return plan
}
