package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/internal/sleep"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// The plans of a chaos with -keys take turns. Those for the first key name the highest limit, and the chaos changes that of
// its record meanwhile.

// mostAtOnce is the highest limit that plans name.
const mostAtOnce = 3

func keyName(i int) string { return fmt.Sprintf("key-%d", i) }

// keyed gives a plan one to three keys, in any order. Some of these plans sleep until they get a signal.
func keyed(p *workflow.Plan, seed uint64, keys int) {
	r := rand.New(rand.NewPCG(seed, 1))
	for _, i := range r.Perm(keys)[:min(1+r.IntN(3), keys)] {
		k := workflow.Key{Name: keyName(i), Limit: 1 + r.IntN(mostAtOnce)}
		if i == 0 {
			k.Limit = mostAtOnce
		}
		p.Keys = append(p.Keys, k)
	}
	p.KeepTurn = workflow.KeepTurn(r.IntN(2))
	naps := r.IntN(3) == 0
	for _, b := range p.Blocks {
		for _, s := range b.Sequences {
			for _, a := range s.Actions {
				t := a.Req.(task)
				t.Takes /= 4 // plans wait for each other
				t.Naps, naps = naps, false
				a.Req, a.Timeout = t, time.Hour
			}
		}
	}
}

// wake sends a signal to a plan that waits for one, after a while.
func (c *chaos) wake(ctx context.Context, plan uuid.UUID) {
	sleep.For(ctx, c.cfg.interval/2+rand.N(2*c.cfg.interval))
	for pause := 100 * time.Millisecond; ; pause *= 2 {
		_, err := fleet.Send(ctx, c.vault, plan, fleet.Signal{Name: "go", By: workflow.Attribution{By: "chaos"}})
		if err == nil || errors.Is(err, fleet.ErrNotRunning) || ctx.Err() != nil {
			return
		}
		sleep.For(ctx, pause)
	}
}

// setLimits changes the limit of the first key as long as ctx lasts, and notes what it was.
func (c *chaos) setLimits(ctx context.Context) {
	r := rand.New(rand.NewPCG(c.cfg.seed, 1<<34))
	for sleep.For(ctx, time.Duration(r.Int64N(int64(c.ttl)))) {
		limit := r.IntN(mostAtOnce + 1)
		c.judge.note(message{What: limited, Begin: true, Limit: limit, At: time.Now().UnixNano()})
		err := fleet.SetKey(ctx, c.vault, keyName(0), workflow.Attribution{By: "chaos"}, func(k fleet.KeySettings) fleet.KeySettings {
			k.Limit = limit
			return k
		})
		if err == nil {
			c.judge.note(message{What: limited, Limit: limit, At: time.Now().UnixNano()})
			c.add("limits set", 1)
		}
	}
}

// takeLast lets one more plan end for each key, alone. The turns that dead nodes have not given back are in its way.
func (c *chaos) takeLast(ctx context.Context) {
	for i := range c.cfg.keys {
		p := plantest.Sized(1, 1, 1)
		p.Keys = []workflow.Key{{Name: keyName(i)}}
		a := p.Blocks[0].Sequences[0].Actions[0]
		a.Plugin, a.Req = taskName, task{}
		driver.Complete(p)
		m := message{What: created, Plan: p.ID, Begin: true, At: time.Now().UnixNano()}
		c.judge.note(m)
		if err := c.vault.Create(ctx, p); err != nil {
			c.find(finding{half, p.ID, oneLine(err)})
			continue
		}
		m.Begin, m.At = false, time.Now().UnixNano()
		c.judge.note(m)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stirred = time.Now()
}

// turnsLeft returns the keys that are held. No plan is open.
func (c *chaos) turnsLeft(ctx context.Context) (found []finding) {
	keys, err := c.vault.Control().Keys(ctx)
	if err != nil {
		return []finding{{What: half, Detail: oneLine(err)}}
	}
	for k := range keys {
		if k.Err != nil || k.Result.Holders > 0 {
			found = append(found, finding{What: leftOver, Detail: fmt.Sprintf("%d turns for %q: %v", k.Result.Holders, k.Result.Name, k.Err)})
		}
	}
	return found
}
