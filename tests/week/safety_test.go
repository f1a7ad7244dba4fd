package week_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/workflow"
)

// ledger is what the store has of a plan, and what was done for it.
type ledger struct {
	number  int
	stored  bool // its Create is acknowledged, or a node works on it
	status  workflow.Status
	owner   uuid.UUID
	epoch   int64
	owned   time.Time // since when it has this owner
	wakeAt  time.Time // until when it sleeps
	sleptOn uuid.UUID // the node that let it sleep
	woken   bool      // it slept before its present owner
	works   bool      // it has a turn for each of its keys
	parts   map[uuid.UUID]*deed
	// laters are the actions that are to be called again, and signals when each signal was stored.
	laters  map[uuid.UUID]workflow.Later
	signals map[int]time.Time
	asked   bool      // somebody tried to stop it
	stopped time.Time // when a request to stop it was acknowledged
	// paused means that the note of a pause was stored, at pausedAt, and is not removed.
	paused   bool
	pausedAt time.Time
	story    []string
}

// deed is what became of a sub-object.
type deed struct {
	status         workflow.Status
	epoch          int64              // in which it became final
	fenced         int64              // the last epoch whose owner has stored it
	returned       map[uuid.UUID]bool // nodes to which a call returned
	memo           memo               // the state that is stored
	fails, crashes int
	unended        int // calls that did not end
}

// engineCrashes is how many calls of an action may not end, by default, before the action fails.
const engineCrashes = 3

// call is a call of a plugin.
type call struct {
	engine.Call
	c    *career
	p    *process
	node uuid.UUID
}

func (c *career) deed(part uuid.UUID) *deed {
	d := c.parts[part]
	if d == nil {
		d = &deed{returned: map[uuid.UUID]bool{}}
		c.parts[part] = d
	}
	return d
}

// catchUp notes what the store has accepted since it was called last, also requests that were late.
func (w *week) catchUp() {
	requests := w.server.Requests()
	w.server.ResetRequests()
	w.requests += len(requests)
	if len(requests) > 0 {
		w.recent = append(w.recent, requests...)
		w.recent = w.recent[max(0, len(w.recent)-keptRequests):]
	}
	for _, r := range requests {
		dir, name := path.Split(r.Blob)
		if r.Op == emulator.ListBlobs && r.Prefix == "keys/" {
			w.counts["sweep"]++
		}
		if r.Op != emulator.PutBlob || r.Status != 201 || dir == "open/" {
			continue
		}
		if note, ok := strings.CutPrefix(r.Blob, "notes/signal-"); ok {
			w.signalled(note)
			continue
		}
		id, isEntry := strings.CutSuffix(name, "-entry.json")
		if !isEntry {
			id = path.Base(dir)
		}
		plan, _ := uuid.Parse(id)
		switch c := w.plans[plan]; {
		case c == nil:
		case isEntry:
			w.entry(c, r)
		default:
			w.part(c, uuid.MustParse(strings.TrimSuffix(name, ".json")), r)
		}
	}
}

// keptRequests are shown if something is found.
const keptRequests = 4000

// entry notes an entry that the store has accepted.
func (w *week) entry(c *career, r emulator.Request) {
	var s workflow.State
	if err := json.Unmarshal([]byte(r.Metadata["state"]), &s); err != nil {
		w.t.Error(err)
	}
	owner, _ := uuid.Parse(r.Metadata["owner"])
	epoch, _ := strconv.ParseInt(r.Metadata["epoch"], 10, 64)
	wakeAt, _ := time.Parse(time.RFC3339, r.Metadata["wakeat"])
	switch {
	case epoch < c.epoch, epoch == c.epoch && owner != c.owner && wakeAt.IsZero():
		w.find("epoch", c, "%s stores epoch %d of %s after epoch %d of %s", r.Client, epoch, owner, c.epoch, c.owner)
	case c.status.Final() && s.Status != c.status, s.Status < c.status:
		w.find("end", c, "%s makes it %s after it was %s", r.Client, s.Status, c.status)
	}
	if epoch != c.epoch {
		w.note(nil, c, "%s owns it with epoch %d", r.Client, epoch)
		c.passed, c.owned, c.woken, c.sleptOn = map[*process]time.Time{}, time.Now(), !c.wakeAt.IsZero(), uuid.Nil
		if p := w.nodes[owner]; p != nil && epoch == 1 {
			w.passes(p)
		}
		if c.kind == "submit" { // if the owner dies now, its TTL counts
			c.moves()
		}
	}
	if c.wakeAt = wakeAt; !wakeAt.IsZero() && epoch > 0 && c.owner != uuid.Nil {
		w.note(nil, c, "%s lets it sleep until %s", r.Client, wakeAt.Sub(w.began))
		w.counts["sleep"]++
		c.sleptOn = c.owner
		c.moves()
	}
	c.works = c.works && !s.Status.Final() && r.Metadata["waitsfor"] == ""
	final := s.Status.Final() && !c.status.Final()
	c.owner, c.epoch, c.status = owner, epoch, s.Status
	if !c.stored && c.status != workflow.NotStarted {
		w.created(c)
	}
	if !final {
		return
	}
	w.note(nil, c, "%s", c.status)
	w.counts[c.status.String()]++
	delete(w.open, c.plan.ID)
	if i := slices.IndexFunc(w.alive, func(p *process) bool { return p.name == r.Client }); i >= 0 && len(c.plan.Keys) > 0 {
		w.ended = append(w.ended, ending{c, w.alive[i], r.Time})
	}
	for _, d := range c.parts {
		c.completes = c.completes && d.unended < engineCrashes // one more may be stored without a call
	}
	if !c.asked && (c.completes && c.status != workflow.Completed || c.status == workflow.Stopped) {
		w.find("outcome", c, "it is %s", c.status)
	}
	if c.status != workflow.Completed && c.shape != "fork" && w.draws("fork", c.number).IntN(2) == 0 {
		w.after(time.Minute, func() { w.fork(c) })
	}
}

// part notes a sub-object that the store has accepted. Its own status is the first one.
func (w *week) part(c *career, id uuid.UUID, r emulator.Request) {
	d := c.deed(id)
	switch owner := w.nodes[c.owner]; {
	case c.epoch > 0 && c.owner == uuid.Nil:
		w.find("stale", c, "%s stores %s while the plan sleeps", r.Client, r.Blob)
	case owner != nil && owner.name == r.Client:
		d.fenced = c.epoch
	case (c.woken || d.fenced == c.epoch) && c.epoch > 0:
		w.find("stale", c, "%s stores %s, although %s owns it in epoch %d (woken: %t)", r.Client, r.Blob, owner, c.epoch, c.woken)
	}
	b, _ := w.server.Blob(r.Container, r.Blob)
	var s workflow.Status
	_, text, begun := bytes.Cut(b.Body, []byte(`"state":{"status":"`))
	text, _, _ = bytes.Cut(text, []byte(`"`))
	if err := s.UnmarshalText(text); begun && err != nil {
		w.t.Errorf("%s: %v", b.Body, err)
	}
	switch {
	case d.status.Final() && s != d.status, s < d.status:
		w.find("lost", c, "%s: %s is %s after it was %s", r.Client, r.Blob, s, d.status)
	case s.Final() && !d.status.Final():
		d.epoch = c.epoch
	}
	d.status = s
	if strings.HasPrefix(r.Blob, "actions/") {
		w.later(c, id, d, b.Body)
	}
}

// later notes whether an action is to be called again, and with what.
func (w *week) later(c *career, id uuid.UUID, d *deed, body []byte) {
	if _, waited := c.laters[id]; waited {
		c.moves() // its owner goes on, and has no answer yet
	}
	delete(c.laters, id)
	d.memo = memo{}
	if !bytes.Contains(body, []byte(`"later":`)) {
		return
	}
	var a struct{ Attempts []workflow.Attempt }
	_, text, _ := bytes.Cut(body, []byte(`"attempts":`))
	if err := json.NewDecoder(bytes.NewReader(text)).Decode(&a.Attempts); err != nil {
		w.t.Errorf("%s: %v", body, err)
	}
	l := (&workflow.Action{Attempts: a.Attempts}).Later()
	if l == nil {
		return
	}
	if len(l.State) > 0 {
		if err := json.Unmarshal(l.State, &d.memo); err != nil {
			w.find("state", c, "action %s has the state %.200s: %v", id, l.State, err)
		}
	}
	if !l.Called && !d.status.Final() {
		c.laters[id] = *l
	}
}

// signalled notes a signal that the store has accepted.
func (w *week) signalled(note string) {
	digits, number, _ := strings.Cut(note, "-")
	plan, _ := uuid.Parse(digits)
	n, _ := strconv.Atoi(strings.TrimSuffix(number, path.Ext(number)))
	if c := w.plans[plan]; c != nil && c.signals[n].IsZero() {
		w.note(nil, c, "has signal %d", n)
		w.counts["signal"]++
		c.signals[n] = time.Now()
	}
}

// sees notes what a plugin that waits is told: the state that is stored, and all signals that the node can know of.
func (w *week) sees(k *call, m memo, signals []fleet.Signal, err error) {
	c, p := k.c, k.p
	if k.node != c.owner || k.Epoch != c.epoch {
		return // it may know less
	}
	if stored := c.deed(k.Action).memo; m != stored {
		w.find("state", c, "%s: action %s is called with the state %.100v, and %.100v is stored", p.name, k.Action, m, stored)
	}
	if c.wants == 0 || err != nil || len(p.lasting) > 0 {
		return
	}
	for n, stored := range c.signals {
		known := slices.ContainsFunc(signals, func(s fleet.Signal) bool { return s.Number == n })
		if late := min(time.Since(stored), time.Since(p.hit), time.Since(p.joined)); !known && late > 2*p.o.Interval+slack {
			w.find("signal", c, "%s: action %s is not told of signal %d, which has been there for %v", p.name, k.Action, n, late)
		}
	}
}

// changed notes what a process was told to be stored.
func (w *week) changed(p *process, o workflow.Object) {
	h := o.Header()
	c := w.plans[*h.PlanID]
	if c == nil {
		return
	}
	w.catchUp()
	if !c.beside[*h.ID] {
		w.note(p, c, "%s %.8s is %s", o.Kind(), h.ID.String()[28:], h.State.Status)
		c.moves()
	}
	is := c.status
	if o.Kind() != workflow.KindPlan {
		is = c.deed(*h.ID).status
	}
	if h.State.Status.Final() && is != h.State.Status {
		w.find("lost", c, "%s was told that %s %s is %s, but it is %s", p.name, o.Kind(), h.ID, h.State.Status, is)
	}
}

// begins notes the begin of a call.
func (w *week) begins(p *process, of engine.Call, t task) (k *call, crashes, fails bool) {
	c := w.plans[of.Plan]
	w.catchUp()
	delete(c.laters, of.Action)
	w.calls++
	d := c.deed(of.Action)
	k = &call{of, c, p, p.node}
	if !c.beside[of.Action] {
		w.note(p, c, "call of %s, epoch %d, attempt %d", of.Action.String()[28:], of.Epoch, of.Attempt)
		c.moves()
		c.active[k] = true
	}
	if d.status.Final() && of.Epoch >= d.epoch {
		w.find("rerun", c, "%s: action %s was %s in epoch %d and runs in epoch %d", p.name, of.Action, d.status, d.epoch, of.Epoch)
	}
	if d.returned[p.node] && !c.beside[of.Action] {
		w.find("dropped", c, "%s: action %s runs again on the node that has its result", p.name, of.Action)
	}
	d.unended++
	w.obeys(k)
	w.hasTurns(of, c, p)
	if fails = t.Fails < 0 || d.fails < t.Fails; fails {
		d.fails++
	}
	if crashes = t.Crashes < 0 || d.crashes < t.Crashes; crashes {
		most := 5
		if c.idempotent[of.Action] {
			most++
		}
		if d.crashes++; d.crashes > most {
			w.find("crash", c, "action %s ends its process for the %dth time", of.Action, d.crashes)
		}
	}
	return k, crashes, fails
}

// ends notes the end of a call.
func (w *week) ends(p *process, k *call, err error) {
	delete(k.c.active, k)
	if k.node == p.node && !p.suffers() && !errors.Is(err, fleet.ErrFenced) { // it can store the end
		k.c.deed(k.Action).unended--
	}
	if k.c.beside[k.Action] {
		return
	}
	w.note(p, k.c, "end of the call of %s: %v", k.Action.String()[28:], err)
	if err == nil && k.node == p.node {
		k.c.deed(k.Action).returned[k.node] = true
		k.c.moves()
	}
}
