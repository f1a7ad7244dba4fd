package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/sleep"
	"github.com/planvault/azblob/storage"
)

// record is the node's own record in the store. The node's mutex guards its fields.
type record struct {
	self    storage.Member  // what is to be stored, with the version that was stored last
	told    storage.Member  // what was stored last
	pending *storage.Member // a renewal that may have taken effect: the store recognises it only if it is repeated as it was
	wake    chan struct{}   // has an element if the record is to be renewed at once
	writing chan struct{}   // has an element while a renewal is in progress
	beat    time.Time       // when the last successful renewal began
	lapse   time.Duration   // the longest time between two successful renewals since somebody asked
}

// outdated reports whether other members should see something that is not stored yet.
func (r *record) outdated() bool {
	return r.told.Phase != r.self.Phase || !slices.Equal(r.told.LetGo, r.self.LetGo)
}

// announce makes the node renew its record at once if others should see it.
func (r *record) announce() {
	if r.outdated() {
		select {
		case r.wake <- struct{}{}:
		default: // a renewal is about to begin
		}
	}
}

// heartbeat renews the node's record. Only an answer which says that the record is no longer the node's fences
// the node.
func (n *Node) heartbeat(ctx context.Context) (next time.Duration, err error) {
	began := time.Now()
	try, cancel := context.WithTimeout(ctx, n.o.patience())
	defer cancel()
	err = n.renew(try)
	if n.ctx.Err() != nil && !errors.Is(context.Cause(n.ctx), ErrFenced) {
		return 0, err // leaving
	}
	notify(ctx, n.o.Observer.Heartbeat, HeartbeatEvent{n.id, time.Since(began), err})
	return n.o.Interval, err
}

// renew stores the node's record once more, and fences the node if the record is no longer its own. A renewal that
// took effect without an answer is recognised by the store when it is repeated.
func (n *Node) renew(ctx context.Context) error {
	select {
	case n.record.writing <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-n.record.writing }()
	m, again := n.nextRecord()
	began := time.Now()
	version, err := n.store.RenewMember(ctx, m)
	n.renewed(m, again, began, version, err)
	if overtaken(err) {
		n.expelled(ctx)
	}
	return err
}

// expelled fences the node, unless it has left.
func (n *Node) expelled(ctx context.Context) {
	if n.ctx.Err() == nil {
		n.fencing.Do(func() {
			n.end(ErrFenced)
			notify(ctx, n.o.Observer.Fenced, FencedEvent{n.id})
		})
	}
}

// nextRecord returns what the next renewal stores, and whether an earlier renewal may have stored it.
func (n *Node) nextRecord() (m storage.Member, again bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.record.pending != nil {
		return *n.record.pending, true
	}
	m = n.record.self
	n.record.pending = &m
	return m, false
}

// renewed notes the outcome of a renewal.
func (n *Node) renewed(m storage.Member, again bool, began time.Time, version string, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case err == nil:
		n.record.self.Version, n.record.told, n.record.pending = version, m, nil
		n.record.lapse, n.record.beat = max(n.record.lapse, time.Since(n.record.beat)), began
		n.record.announce() // what has changed meanwhile
	case overtaken(err), !again && !errors.Is(err, storage.ErrUnknown):
		n.record.pending = nil
	}
}

// takeLapse returns the longest time between two of the node's heartbeats since the last call.
func (n *Node) takeLapse() (lapse time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	lapse, n.record.lapse = n.record.lapse, 0
	return lapse
}

// change edits the node's record, and makes others see it soon.
func (n *Node) change(edit func(self *storage.Member)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	edit(&n.record.self)
	n.record.announce()
}

// withdraw takes a plan off the list of those that the node has let go, before the node takes it again. When it returns
// nil, whoever asks for the record no longer finds the plan on it.
func (n *Node) withdraw(ctx context.Context, plan uuid.UUID) error {
	n.unlist(plan)
	return settle(ctx, func() error {
		for n.shows(plan) {
			if err := n.renew(ctx); err != nil {
				return err
			}
		}
		return nil
	})
}

// unlist takes a plan off the list of those that the node has let go.
func (n *Node) unlist(plan uuid.UUID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	self := &n.record.self
	self.LetGo = slices.DeleteFunc(slices.Clone(self.LetGo), func(id uuid.UUID) bool { return id == plan })
}

// shows reports whether others may read on the node's record that it has let a plan go.
func (n *Node) shows(plan uuid.UUID) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	pending := n.record.pending
	return slices.Contains(n.record.told.LetGo, plan) || pending != nil && slices.Contains(pending.LetGo, plan)
}

// Drain says that the node takes no more plans and is about to leave. Its record shows it at once, so the others claim
// and take new plans without waiting for this node, and loops over [Node.Plans] end. The node goes on to own its
// plans. It does not come back: the next step is [Node.Leave].
func (n *Node) Drain() {
	n.drain()
	n.change(func(self *storage.Member) { self.Phase = storage.Leaving })
}

// Report says for people what hinders the node now, or with an empty text that nothing does. [Inspect] shows it from
// the node's next heartbeat on. Control characters become spaces, and a long text is cut.
func (n *Node) Report(trouble string) {
	text := strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(trouble, "\uFFFD"))
	n.mu.Lock()
	defer n.mu.Unlock()
	n.record.self.Trouble = cutBytes(strings.TrimSpace(text), storage.MaxTrouble)
}

// cutBytes shortens a text to at most so many bytes.
func cutBytes(text string, most int) string {
	if len(text) <= most {
		return text
	}
	end := 0
	for i := range text {
		if i+len("…") > most {
			break
		}
		end = i
	}
	return text[:end] + "…"
}

// Leave removes the node from the fleet. The record of a node that may own plans stays for a while, marked as left, so
// that each other node sees it at its next look at the members, within its Interval, and takes the plans. Call Leave
// after the engine's calls have ended: Leave ends all contexts of the node with the cause [ErrLeft]. It returns when
// the node's goroutines have ended and the store shows that the node has left. Give ctx a deadline: in an outage Leave
// goes on trying until ctx ends. Others then find the node dead after the TTL. Calling Leave again is allowed.
func (n *Node) Leave(ctx context.Context) error {
	n.end(ErrLeft)
	n.loops.Wait() // their requests have ended with the node's context
	for {
		err := n.resign(ctx)
		switch {
		case err == nil, overtaken(err) && !conflicted(err):
			return nil
		case conflicted(err):
			// A heartbeat whose answer did not arrive has changed the record, or somebody has marked it.
			m, findErr := n.store.FindMember(ctx, n.id)
			switch {
			case errors.Is(findErr, storage.ErrNotFound), findErr == nil && m.Phase == storage.Left:
				return nil
			case findErr == nil && m.Version != n.version():
				n.adopt(m.Version)
				continue
			}
			err = cmp.Or(findErr, err)
		}
		if !errors.Is(err, storage.ErrUnknown) || !sleep.For(ctx, settlePause) {
			return fmt.Errorf("leave as node %s: %w", n.id, err)
		}
	}
}

// resign marks the node's record as left, or removes it if the node has never tried to own a plan.
func (n *Node) resign(ctx context.Context) error {
	n.mu.Lock()
	self, acquires := n.record.self, n.acquires
	n.mu.Unlock()
	if !acquires {
		return n.store.RemoveMember(ctx, n.id, self.Version)
	}
	_, err := n.store.RenewMember(ctx, leftRecord(self))
	return err
}

// leftRecord is the record that replaces m when the member has left. It says no more than whether that is excused: m may
// hold what this program can't store.
func leftRecord(m storage.Member) storage.Member {
	return storage.Member{ID: m.ID, Version: m.Version, Phase: storage.Left, Excused: excused(m)}
}

// excused reports whether the end of a member is no fault of what it runs: it drains, or a person has evicted it.
func excused(m storage.Member) bool { return m.Excused || m.Phase == storage.Leaving }

// retire marks the record of a member as left, in the version that was judged. This fences the member: its next
// heartbeat meets another version. retire returns ErrConflict if the member has renewed its record since, and ErrNotFound
// if somebody else has marked or removed the record. Then left is that mark, which may excuse what this one would not.
func retire(ctx context.Context, store storage.Members, m storage.Member) (left storage.Member, err error) {
	left = leftRecord(m)
	if _, err = store.RenewMember(ctx, left); !conflicted(err) {
		return left, err
	}
	now, findErr := store.FindMember(ctx, m.ID)
	switch {
	case findErr != nil:
		return left, findErr
	case now.Phase == storage.Left:
		return now, storage.ErrNotFound
	}
	return left, err
}

func (n *Node) adopt(version string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.record.self.Version = version
}

func (n *Node) version() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.record.self.Version
}
