package fleet

import "time"

// clock is the store's clock as far as a node knows it. It follows the node's monotonic clock from a moment on.
type clock struct {
	at     time.Time     // the moment, by the node's clock
	offset time.Duration // the store's time at that moment, less the node's
}

// tolerance is how far a node's clock may be from the store's before the node corrects it. The store's clock has whole
// seconds, and answers take time, so smaller differences mean nothing.
const tolerance = 2 * time.Second

// when returns the store's time at a moment of the node's clock.
func (c clock) when(t time.Time) time.Time {
	return c.at.Round(0).Add(t.Sub(c.at) + c.offset).UTC()
}

// hear corrects the clock after the store said its time in answer to a request. It keeps the clock if the store may
// have meant the same time, give or take the tolerance, so it does not jump with each answer.
func (c clock) hear(store, asked, answered time.Time) clock {
	took := answered.Sub(asked) // the store's time at asked is between store-took and store+resolution
	ahead := c.when(asked).Sub(store)
	if ahead >= -took-tolerance && ahead <= resolution+tolerance {
		return c
	}
	return clock{at: asked, offset: store.Sub(asked.Round(0)) + (resolution-took)/2}
}

// Now returns the time by the store's clock as far as the node knows it, in UTC. It follows the node's monotonic clock,
// and is corrected when the store shows at a look at the members that it is off by more than two seconds. Nodes whose
// clocks differ can compare such times.
func (n *Node) Now() time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.clock.when(time.Now())
}
