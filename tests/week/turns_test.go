package week_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/vaulttest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// manyKeys is how many keys the plans of a week take turns for.
const manyKeys = 4

func keyName(i int) string { return fmt.Sprint("key ", i) }

// keyed gives some plans one or two keys, and lets some of them give their turns back while they sleep.
func (w *week) keyed(c *career) {
	r := w.draws("keys", c.number)
	if r.IntN(2) == 0 || c.shape == "odd" || c.shape == "signal" {
		return
	}
	for _, i := range r.Perm(manyKeys)[:1+r.IntN(2)] {
		c.plan.Keys = append(c.plan.Keys, workflow.Key{Name: keyName(i), Limit: 1 + r.IntN(2)})
	}
	c.plan.KeepTurn = workflow.KeepTurn(r.IntN(2))
}

// hasTurns notes that a plan works, and checks that no more plans do than its keys allow. A plan works from the first call that
// is not fenced until its entry says that it is final, or sleeps without its turns. What is deferred needs no turn.
func (w *week) hasTurns(of engine.Call, c *career, p *process) {
	if len(c.plan.Keys) == 0 || c.status.Final() || !c.wakeAt.IsZero() || of.Epoch != c.epoch || p.node != c.owner || c.ending[of.Action] || c.works {
		return
	}
	c.works = true
	w.counts["turn"]++
	for _, k := range c.plan.Keys {
		n, most := 0, k.Limit
		for _, other := range w.openPlans() {
			for _, has := range other.plan.Keys {
				if other.works && has.Name == k.Name {
					n, most = n+1, min(most, has.Limit)
				}
			}
		}
		if n > most {
			w.find("crowded", c, "%s: %d plans work with %q, at most %d may", p.name, n, k.Name, most)
		}
		if pause := w.pauses[k.Name]; time.Now().Before(pause.until) && !pause.holders[c.plan.ID] {
			w.find("key pause", c, "%s begins it although %q is paused until %v", p.name, k.Name, pause.until.Sub(w.began))
		}
	}
}

// holders returns the plans in the record of a key.
func (w *week) holders(name string) map[uuid.UUID]bool {
	record, err := w.operator.Control().FindKey(context.WithoutCancel(w.ctx), "key:"+name)
	if err != nil && !errors.Is(err, storage.ErrNotFound) {
		w.t.Error(err)
	}
	all := map[uuid.UUID]bool{}
	for _, h := range record.Holders {
		all[h.Plan] = true
	}
	return all
}

// keyWritten finds plans that work and are no longer in the record of a key, which a process has just stored.
func (w *week) keyWritten(p *process) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range manyKeys {
		all := w.holders(keyName(i))
		w.catchUp()
		for _, c := range w.openPlans() {
			if c.works && !all[c.plan.ID] && c.has(keyName(i)) {
				w.find("robbed", c, "%s stores a record, and %q has no turn of it any more", p.name, keyName(i))
				c.works = false
			}
		}
	}
}

func (c *career) has(key string) bool {
	return slices.ContainsFunc(c.plan.Keys, func(k workflow.Key) bool { return k.Name == key })
}

// givesBack finds plans whose turns a process has not given back although nothing happened to it since it ended them.
func (w *week) givesBack(now time.Time) {
	w.ended = slices.DeleteFunc(w.ended, func(e ending) bool {
		if now.Sub(e.at) < slack {
			return false
		}
		for _, k := range e.c.plan.Keys {
			if p := e.p; !p.dead && !p.suffers() && p.hit.Before(e.at.Add(-time.Minute)) && w.holders(k.Name)[e.c.plan.ID] {
				w.find("kept", e.c, "%s has ended it and not given back %q", p.name, k.Name)
			}
		}
		return true
	})
}

// ending is the end of a plan with keys by a process.
type ending struct {
	c  *career
	p  *process
	at time.Time
}

// keyPause is a pause of a key.
type keyPause struct {
	until   time.Time
	holders map[uuid.UUID]bool // when it began
}

// pauseKey pauses a key, so that no plan begins that has no turn yet.
func (w *week) pauseKey(_ *process) {
	name, until := keyName(w.r.IntN(manyKeys)), time.Now().Add(w.span(time.Second, 20*time.Minute))
	if !until.After(w.pauses[name].until) {
		return
	}
	if err := fleet.PauseKey(w.ctx, w.operator, name, until, person); err != nil {
		w.t.Error(err)
	}
	w.pauses[name] = keyPause{until, w.holders(name)}
	w.note(nil, nil, "key %q is paused until %v", name, until.Sub(w.began))
}

// turnsLeft finds plans in the records of keys, of which none is open any more.
func (w *week) turnsLeft() {
	for i := range manyKeys {
		for id := range w.holders(keyName(i)) {
			w.find("turn", w.plans[id], "%q has a turn of plan %s", keyName(i), id)
		}
	}
}

// leaves puts a plan that has ended into a record, as a process leaves it that dies before it gives a turn back.
func (w *week) leaves() {
	for id, c := range w.plans {
		if c.status.Final() && c.stored {
			k, err := w.operator.Control().FindKey(w.ctx, "key:"+keyName(0))
			vaulttest.Must(w.t, err)
			k.Holders = append(k.Holders, storage.Holder{Plan: id, Limit: 1, Taken: true})
			_, err = w.operator.Control().PutKey(w.ctx, k)
			vaulttest.Must(w.t, err)
			return
		}
	}
}

// held reports whether a record of a key has a plan.
func (w *week) held() bool {
	for b := range w.server.Blobs(prefix + "-control") {
		if n := b.Metadata["holders"]; strings.HasPrefix(b.Name, "keys/") && n != "" && n != "0" {
			return true
		}
	}
	return false
}

// sweepTime is the time in which a node that has just joined sweeps the records of keys, also if its first try fails.
const sweepTime = 2*time.Hour + 15*time.Minute
