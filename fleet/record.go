package fleet

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage"
)

// record is the node's own record in the store. The node's mutex guards its fields.
type record struct {
	self    storage.Member  // what is to be stored, with the version that was stored last
	told    storage.Member  // what was stored last
	pending *storage.Member // a renewal that may have taken effect; only repeated unchanged does the store recognize it
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

// heartbeat renews the node's record. The node is fenced only if an answer says that the record is no longer its own.
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

// renew stores the node's record again, and fences the node if the record is no longer its own. If a renewal took effect
// without an answer, the store recognizes its repetition.
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
func (n *Node) renewed(m storage.Member, again bool, began time.Time, version storage.Version, err error) {
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

// withdraw takes a plan off the list of plans that the node has let go, before the node takes it again. When it returns
// nil, the stored record no longer lists the plan.
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

// unlist takes a plan off the list without storing the record.
func (n *Node) unlist(plan uuid.UUID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	self := &n.record.self
	self.LetGo = slices.DeleteFunc(slices.Clone(self.LetGo), func(id uuid.UUID) bool { return id == plan })
}

// shows reports whether the stored record may list a plan as let go.
func (n *Node) shows(plan uuid.UUID) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	pending := n.record.pending
	return slices.Contains(n.record.told.LetGo, plan) || pending != nil && slices.Contains(pending.LetGo, plan)
}

// Report says for people what hinders the node; an empty text means nothing does. [Inspect] shows it from the node's next
// heartbeat on. Control characters become spaces, and a long text is cut.
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

func (n *Node) adopt(version storage.Version) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.record.self.Version = version
}

func (n *Node) version() storage.Version {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.record.self.Version
}
