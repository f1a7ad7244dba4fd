package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/plannote"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// A signal is a note of the vault. Its name has the plan and the signal's number, so the one list that each node asks for
// anyway says which plans have new signals, and two writers can't take the same number.

// Signal is something that somebody outside tells a plan: an approval, an event, an answer.
type Signal struct {
	// Number counts the signals of the plan, whatever their names, from 1 in the order in which the store took them.
	Number int `json:"-"`
	// Name says what the signal is about, in 1 to [MaxSignalName] bytes.
	Name string `json:"name"`
	// Payload is JSON of at most [MaxSignal] bytes, or empty.
	Payload json.RawMessage `json:"payload,omitempty"`
	// By says who sent it, and why, if that is known. Its At is when it was stored, by the store's clock.
	By workflow.Attribution `json:"by,omitzero"`
	// Key makes signals of the plan with one name one signal, if it is not empty. It has at most MaxSignalName bytes.
	Key string `json:"key,omitempty"`
}

// The limits of signals. Names, keys and payloads are in bytes.
const (
	MaxSignal     = 60 << 10
	MaxSignalName = 128
	MaxSignals    = 1000 // of a plan
)

// Send stores a signal for a plan, and returns its number. s.Number is ignored, and so is s.By.At. An action of the plan that
// waits is called again within the fleet's Interval, see engine.Later. Nobody need run the plan now: signals are kept until it
// is final, and may come before the action begins that wants them.
//
// A signal is delivered at least once: after an error that is [storage.ErrUnknown], and after a crash, send it again. Without
// a Key it may then be there twice. With a Key, Send returns the number of the first signal of this name and key, whose
// payload counts.
//
// Send costs the Search for one ID, the list of the fleet's records, and a write. With a Key, it also reads the signals that
// the plan has. It repeats a write whose outcome is unknown until ctx ends. The audit log does not have it.
//
// Errors: [storage.ErrInvalid] for a name, payload, key or By that is too long or no text, and if the plan has [MaxSignals];
// [storage.ErrNotFound] if there is no such plan; [ErrNotRunning] if the plan is final; [errors.ErrUnsupported] for a vault that
// does not offer [storage.Control]; otherwise those of the vault.
func Send(ctx context.Context, vault storage.Vault, plan uuid.UUID, s Signal) (number int, err error) {
	to, err := storeOf("Send", vault)
	if err != nil {
		return 0, err
	}
	if err := s.check(); err != nil {
		return 0, &storage.Error{Op: "Send", Plan: plan, Err: err}
	}
	if _, err = to.findOpen(ctx, plan); err == nil {
		number, err = to.send(ctx, plan, s)
	}
	return number, doing("signal plan "+plan.String(), err)
}

// check reports what is wrong with a signal that is to be sent.
func (s Signal) check() error {
	texts := []struct {
		field, text string
		least       int
	}{{"Name", s.Name, 1}, {"Key", s.Key, 0}}
	for _, t := range texts {
		switch {
		case len(t.text) < t.least || len(t.text) > MaxSignalName:
			return driver.Invalid(t.field, "has %d bytes, %d to %d are allowed", len(t.text), t.least, MaxSignalName)
		case !utf8.ValidString(t.text) || strings.ContainsFunc(t.text, unicode.IsControl):
			return driver.Invalid(t.field, "is not valid UTF-8 without control characters")
		}
	}
	switch {
	case len(s.Payload) > MaxSignal:
		return driver.Invalid("Payload", "has %d bytes, at most %d are allowed", len(s.Payload), MaxSignal)
	case len(s.Payload) > 0 && !json.Valid(s.Payload):
		return driver.Invalid("Payload", "is not JSON")
	}
	if err := workflow.CheckAttribution(s.By); err != nil {
		return fmt.Errorf("%w: By: %w", storage.ErrInvalid, err)
	}
	_, err := s.note("check")
	return err
}

// note returns the note that stores the signal.
func (s Signal) note(name string) (storage.Note, error) {
	s.By.At = time.Time{} // the store's clock tells
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false) // a payload must not grow
	if err := e.Encode(s); err != nil {
		return storage.Note{}, driver.Invalid("Payload", "can't be stored: %v", err)
	}
	n := storage.Note{Name: name, Text: bytes.TrimSpace(text.Bytes())}
	return n, driver.CheckNote(n)
}

// send stores a signal with the first number that is free.
func (s store) send(ctx context.Context, plan uuid.UUID, signal Signal) (number int, err error) {
	roster, err := s.Roster(ctx)
	if err != nil {
		return 0, err
	}
	last := LastSignals(roster)[plan]
	if signal.Key != "" {
		if number, err := s.sent(ctx, plan, signal, 1, last); number > 0 || err != nil {
			return number, err
		}
	}
	for number = last + 1; number <= MaxSignals; number++ {
		n, err := signal.note(plannote.Signal(plan, number))
		if err != nil {
			return 0, err
		}
		err = settle(ctx, func() error { _, err := s.PutNote(ctx, n); return err })
		if !errors.Is(err, storage.ErrExists) {
			return number, err
		}
		if signal.Key == "" {
			continue
		}
		if number, err := s.sent(ctx, plan, signal, number, number); number > 0 || err != nil {
			return number, err
		}
	}
	return 0, driver.Invalid("Plan", "has %d signals already", MaxSignals)
}

// sent returns the number of the signal with the name and key of another one among some numbers, or 0 if there is none.
func (s store) sent(ctx context.Context, plan uuid.UUID, signal Signal, from, to int) (number int, err error) {
	there, err := s.signals(ctx, plan, from, to)
	if err != nil && !unreadable(err) {
		return 0, err
	}
	same := slices.IndexFunc(there, func(other Signal) bool { return other.Name == signal.Name && other.Key == signal.Key })
	if same < 0 {
		return 0, nil
	}
	return there[same].Number, nil
}

// Signals returns the signals of a plan after a number, in their order, as far as the store has them now. It costs the list
// of the fleet's records and a read for each signal. A plan that is final, or does not exist, has none. A signal that can't be
// read is left out, and the error, which is [storage.ErrCorrupt] or [storage.ErrSchema], comes with the others.
func Signals(ctx context.Context, vault storage.Vault, plan uuid.UUID, after int) ([]Signal, error) {
	s, err := storeOf("Signals", vault)
	if err != nil {
		return nil, err
	}
	roster, err := s.Roster(ctx)
	if err != nil {
		return nil, doing("list the signals of plan "+plan.String(), err)
	}
	there, err := s.signals(ctx, plan, after+1, LastSignals(roster)[plan])
	return there, doing("read the signals of plan "+plan.String(), err)
}

// ReadSignals is [Signals] for a caller that knows the number of the last one: it sends no request but the reads.
func ReadSignals(ctx context.Context, vault storage.Vault, plan uuid.UUID, after, last int) ([]Signal, error) {
	s, err := storeOf("ReadSignals", vault)
	if err != nil {
		return nil, err
	}
	there, err := s.signals(ctx, plan, after+1, last)
	return there, doing("read the signals of plan "+plan.String(), err)
}

// signals reads the signals with some numbers. Those that are gone are left out, and those that can't be read with an error.
func (s store) signals(ctx context.Context, plan uuid.UUID, from, to int) ([]Signal, error) {
	var numbers []int
	for n := max(from, 1); n <= min(to, MaxSignals); n++ {
		numbers = append(numbers, n)
	}
	found, damage := make([]Signal, len(numbers)), make([]error, len(numbers))
	err := atOnce(numbers, func(number int) error {
		i := number - numbers[0]
		n, err := s.FindNote(ctx, plannote.Signal(plan, number))
		switch {
		case errors.Is(err, storage.ErrNotFound):
			return nil
		case err == nil:
			found[i], err = storage.ReadNote[Signal](n)
		}
		if unreadable(err) {
			damage[i], err = err, nil
		}
		found[i].Number, found[i].By.At = number, n.Stored
		return err
	})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(found, func(s Signal) bool { return s.Name == "" }), errors.Join(damage...)
}

// RemoveSignals removes the signals of a plan that is final, a pause, and a request to stop. An engine calls it after the end of
// a plan that had some. It costs the list of the fleet's records and a request for each. What it leaves after an error, a node of the fleet removes
// within a day.
func RemoveSignals(ctx context.Context, vault storage.Vault, plan uuid.UUID) error {
	s, err := storeOf("RemoveSignals", vault)
	if err != nil {
		return err
	}
	roster, err := s.Roster(ctx)
	if err != nil {
		return doing("list the signals of plan "+plan.String(), err)
	}
	var of []request
	for _, r := range s.requestsOf(roster) {
		if r.plan == plan {
			of = append(of, r)
		}
	}
	return doing("remove the signals of plan "+plan.String(), removeAll(ctx, of))
}

// Signals returns the largest number of a signal for a plan at the node's last look, and a channel that is closed when there
// are more signals for it, or when the node does not own the plan.
func (n *Node) Signals(plan uuid.UUID) (last int, more <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	w := n.work[plan]
	if w == nil {
		closed := make(chan struct{})
		close(closed)
		return n.signals[plan], closed
	}
	if w.signalled == nil {
		w.signalled = make(chan struct{})
	}
	return n.signals[plan], w.signalled
}

// noteSignalsLocked stores which signals a roster has, tells the work on their plans, and wakes those that sleep.
func (n *Node) noteSignalsLocked(r storage.Roster) {
	before := n.signals
	n.signals = LastSignals(r)
	for plan, last := range n.signals {
		n.wakeSignalledLocked(plan)
		if w := n.work[plan]; w != nil && w.signalled != nil && last > before[plan] {
			close(w.signalled)
			w.signalled = nil
		}
	}
}

// LastSignals returns the largest number of a signal of each plan that has any, as a list of the fleet's records shows it.
func LastSignals(r storage.Roster) map[uuid.UUID]int {
	last := map[uuid.UUID]int{}
	for _, n := range r.Notes {
		if plan, number, ok := plannote.ParseSignal(n.Name); ok {
			last[plan] = max(last[plan], number)
		}
	}
	return last
}
