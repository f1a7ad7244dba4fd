package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// TurnWait says for which turn a plan waits.
type TurnWait struct {
	// Key is how the key is doing. If its Err is set, nobody gets a turn until somebody repairs the record.
	Key KeyState
	// Holder is one of the plans that have the turns. It is uuid.Nil if the key is paused, or nothing shows who has them.
	Holder uuid.UUID
	// Before is the number of plans that wait for the key and were submitted before, among those that were looked at.
	Before int

	sure bool // nothing happens before another plan does something, or a pause ends
}

// mostKeys is how many records of keys an inspection reads: those of the keys for which most plans may wait.
const mostKeys = 48

// lookedAt is a key that plans may wait for, as an inspection finds it.
type lookedAt struct {
	state  KeyState
	record storage.KeyRecord // with the holders that are entitled, as far as the listing shows
	read   bool
	hidden bool      // a holder is not among the plans that were looked at
	holder uuid.UUID // the oldest plan of the listing that may have a turn
	may    int       // how many plans may wait
}

// noteTurns notes which plans wait for a turn, and for which plans others wait. It reads the records of at most mostKeys keys.
func (i *inspector) noteTurns(ctx context.Context) error {
	keys, listed := map[string]*lookedAt{}, map[uuid.UUID]storage.ListResult{}
	for n := range i.Plans {
		p := &i.Plans[n]
		listed[p.Plan.ID] = p.Plan
		for _, t := range i.awaits(p) {
			k := keys[t.record()]
			if k == nil {
				k = &lookedAt{state: KeyState{Name: t.name, Unique: t.unique}}
				keys[t.record()] = k
			}
			k.may++
		}
	}
	if len(keys) == 0 {
		return nil
	}
	if err := i.readKeys(ctx, keys, listed); err != nil {
		return err
	}
	for n := range slices.Backward(i.Plans) { // the oldest first
		p := &i.Plans[n]
		for _, name := range p.Plan.Keys {
			if k := keys[keyRecord+name]; k != nil && k.holder == uuid.Nil && mayHaveTurn(p.Plan) {
				k.holder = p.Plan.ID
			}
		}
	}
	for n := range slices.Backward(i.Plans) {
		p := &i.Plans[n]
		for _, t := range i.awaits(p) {
			k := keys[t.record()]
			p.turnsChanged = latest(p.turnsChanged, k.state.Stored)
			w, full := k.waitOf(t, p.Plan)
			if full || p.Turn == nil {
				p.Turn = w
			}
			if full {
				break
			}
		}
		if p.Turn != nil {
			p.turnsChanged = latest(p.turnsChanged, p.StopRequested) // then it ends without
		}
	}
	i.countWaits(keys)
	return nil
}

// awaits returns the turns that a plan may wait for.
func (i *inspector) awaits(p *OpenPlan) []turn {
	if p.Err != nil || !p.PausedSince.IsZero() {
		return nil
	}
	return awaited(p.Plan, i.Now)
}

// readKeys reads the records of the keys for which most plans may wait. Holders that are known to have ended, or to sleep without
// their turns, are left out: whoever waits removes them.
func (i *inspector) readKeys(ctx context.Context, keys map[string]*lookedAt, listed map[uuid.UUID]storage.ListResult) error {
	var most []*lookedAt
	for _, k := range keys {
		most = append(most, k)
	}
	slices.SortFunc(most, func(a, b *lookedAt) int {
		return cmp.Or(b.may-a.may, strings.Compare(a.state.record(), b.state.record()))
	})
	part := i.More || len(i.o.Plans) > 0
	return atMost(readAtOnce, most[:min(len(most), mostKeys)], func(k *lookedAt) error {
		record, err := i.store.FindKey(ctx, k.state.record())
		switch {
		case errors.Is(err, storage.ErrNotFound):
		case unreadable(err):
			k.state.Err = err
		case err != nil:
			return err
		}
		t := turn{name: k.state.Name, unique: k.state.Unique}
		record.Holders = slices.DeleteFunc(record.Holders, func(h storage.Holder) bool {
			p, is := listed[h.Plan]
			k.hidden = k.hidden || !is && part
			return is && !t.keeps(p, h) || !is && !part
		})
		record.Waiting = nil // the listing shows who waits
		k.read, k.record = true, record
		k.state.note(driver.ListedKey(record), i.Now)
		return nil
	})
}

// waitOf returns how a plan waits for a key, or nil if there is room for it, and whether the record shows that there is none. A
// listing does not show the limit that the plan names: one that sleeps for want of a turn is believed.
func (k *lookedAt) waitOf(t turn, p storage.ListResult) (w *TurnWait, full bool) {
	w = &TurnWait{Key: k.state, Holder: k.holder}
	sleeps := p.State.Status != workflow.NotStarted
	switch {
	case k.state.Err != nil:
		return w, true
	case !k.read && (sleeps || k.holder != uuid.Nil):
		return w, false
	case !k.read || !k.record.Searched:
		return nil, false
	}
	var no *NoTurnError
	if errors.As(t.full(k.record), &no) {
		w.Holder, w.sure = no.Holder, !k.hidden || no.Holder == uuid.Nil
		return w, true
	}
	if sleeps && len(k.record.Holders) > 0 {
		w.Holder = k.record.Holders[0].Plan
		return w, false
	}
	return nil, false
}

// countWaits counts the plans that wait for each key, and notes for which plans others wait.
func (i *inspector) countWaits(keys map[string]*lookedAt) {
	for n := range slices.Backward(i.Plans) {
		w := i.Plans[n].Turn
		if w == nil {
			continue
		}
		k := &keys[w.Key.record()].state
		if w.Before = k.Waiting; k.Waiting == 0 {
			k.Next, k.Holder = i.Plans[n].Plan.ID, w.Holder
		}
		k.Waiting++
	}
	for n := range i.Plans {
		p := &i.Plans[n]
		if p.Turn != nil {
			p.Turn.Key = keys[p.Turn.Key.record()].state
			continue
		}
		for _, name := range p.Plan.Keys {
			if k := keys[keyRecord+name]; k != nil && k.state.Waiting > p.others && mayHaveTurn(p.Plan) {
				p.others, p.wanted = k.state.Waiting, name
			}
		}
	}
	all := keyStates{}
	for record, k := range keys {
		if k.state.Waiting > 0 {
			all[record] = &k.state
		}
	}
	i.Keys = all.sorted()
}

// sleepsFor returns for which turn a plan sleeps, as far as the plan itself shows it.
func sleepsFor(p storage.ListResult, now time.Time) *TurnWait {
	if turns := awaited(p, now); len(turns) > 0 && p.State.Status == workflow.Running {
		return &TurnWait{Key: KeyState{Name: turns[0].name, Unique: turns[0].unique}}
	}
	return nil
}

// whyTurn says for what a plan waits.
func (f fleetFacts) whyTurn(w TurnWait) string {
	what := fmt.Sprintf("%s %q", w.Key.Kind(), w.Key.Name)
	if w.Key.Err != nil {
		why := fmt.Sprintf("Nobody gets a turn for %s, because its record can't be read: %v.", what, w.Key.Err)
		switch {
		case errors.Is(w.Key.Err, storage.ErrSchema):
			return why
		case w.Key.Unique:
			return why + " Run planvault key repair --unique with its name: it finds the plan that has it."
		}
		return why + " Run planvault key repair with its name: it finds the plans that have turns."
	}
	why := "It waits for a turn for " + what
	switch {
	case w.Holder != uuid.Nil && w.Key.Holders > 1:
		why += fmt.Sprintf(": plan %s and %d more have them.", w.Holder, w.Key.Holders-1)
	case w.Holder != uuid.Nil:
		why += fmt.Sprintf(": plan %s has it.", w.Holder)
	case w.Key.PausedUntil.After(f.now):
		why += fmt.Sprintf(", which is paused until %s, in %s", w.Key.PausedUntil.UTC().Format(time.RFC3339), short(w.Key.PausedUntil.Sub(f.now)))
		if w.Key.By.By != "" {
			why += ", last set by " + cut(w.Key.By.By)
		}
		if w.Key.By.Why != "" {
			why += " (" + cut(w.Key.By.Why) + ")"
		}
		why += "."
	default:
		why += ". See planvault keys."
	}
	switch w.Before {
	case 0:
		return why
	case 1:
		return why + " 1 plan waits before it."
	}
	return why + fmt.Sprintf(" %d plans wait before it.", w.Before)
}

// whyOthers says how many plans wait for a turn that a plan has.
func (p OpenPlan) whyOthers() string {
	keeps, wait := "has", "plan waits"
	if p.Condition == ConditionAsleep || p.Condition == ConditionPaused {
		keeps = "keeps"
	}
	if p.others > 1 {
		wait = "plans wait"
	}
	if p.others == 0 {
		return ""
	}
	return fmt.Sprintf(" It %s a turn for key %q, for which %d %s.", keeps, p.wanted, p.others, wait)
}
