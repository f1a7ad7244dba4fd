package week_test

import (
	"context"
	"fmt"
	"time"

	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/internal/vaulttest"
	"github.com/planvault/azblob/workflow"
)

// manyKeys is how many keys the plans of a week take turns for.
const manyKeys = 6

// keyed gives some plans one or two keys, and lets some of them give their turns back while they sleep.
func (w *week) keyed(c *career) {
	r := w.draws("keys", c.number)
	if r.IntN(4) > 0 || c.shape == "long" || c.shape == "odd" || c.shape == "signal" {
		return
	}
	for _, i := range r.Perm(manyKeys)[:1+r.IntN(2)] {
		c.plan.Keys = append(c.plan.Keys, workflow.Key{Name: fmt.Sprint("key ", i), Limit: 1 + r.IntN(2)})
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
	}
}

// turnsLeft finds plans in the records of keys that are not final although all have ended, and any after the daily sweep.
func (w *week) turnsLeft(ctx context.Context, swept bool) {
	keys, err := w.operator.Control().Keys(ctx)
	vaulttest.Must(w.t, err)
	for k := range keys {
		vaulttest.Must(w.t, k.Err)
		record, err := w.operator.Control().FindKey(ctx, k.Result.Name)
		vaulttest.Must(w.t, err)
		for _, h := range record.Holders {
			if c := w.plans[h.Plan]; swept || c == nil || !c.status.Final() {
				w.find("turn", c, "%q has a turn of plan %s", k.Result.Name, h.Plan)
			}
		}
	}
}

// held reports whether a record of a key has a plan.
func (w *week) held() (held bool) {
	for b := range w.server.Blobs(prefix + "-control") {
		held = held || b.Metadata["holders"] != "" && b.Metadata["holders"] != "0"
	}
	return held
}

// sweepTime is the time in which nodes have swept the records of keys.
const sweepTime = 26 * time.Hour
