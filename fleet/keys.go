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

// KeyState says how a key is doing, or a Unique: who has its turns, and who waits.
type KeyState struct {
	Name   string
	Unique bool
	KeySettings
	// By says who has changed the settings last, when and why. The audit log has earlier changes.
	By workflow.Attribution
	// Holders is the number of plans that take room, and Holder one of them, if [Inspect] knows it.
	Holders int
	Holder  uuid.UUID
	// Plans is the number of open plans that have the key, Waiting of those that have no turn and are due, and Next the oldest
	// of these. A plan that has not begun counts as waiting, even if there is room for it.
	Plans, Waiting int
	Next           uuid.UUID
	// Stored is when the record was changed last. It is zero if there is none.
	Stored time.Time
	// Err says why the record can't be read. Nobody gets a turn for the key then; [RepairKey] helps.
	Err error
}

// KeyHolder is a plan that takes room in the record of a key.
type KeyHolder struct {
	// Plan has the ID alone if the plan is gone or can't be read, or has ended and was not looked at.
	Plan storage.ListResult
	// Turn reports whether the plan has a turn, or may have one. If not, whoever waits for the turn removes the plan from the record.
	Turn bool
}

// Keys returns the keys that have a record or an open plan, most waited for first. It costs a Roster, a listing of the records and
// the Search for open plans. A record whose name alone can be read has an Err. Errors are those of the vault.
func Keys(ctx context.Context, vault storage.Vault) ([]KeyState, error) {
	s, err := storeOf("Keys", vault)
	if err != nil {
		return nil, err
	}
	roster, err := s.Roster(ctx)
	if err != nil {
		return nil, err
	}
	found, err := s.Keys(ctx)
	if err != nil {
		return nil, err
	}
	all := keyStates{}
	var bad []KeyState
	for f := range found {
		k := f.Result
		switch {
		case unreadable(f.Err):
			bad = append(bad, KeyState{Err: f.Err})
		case f.Err != nil:
			return nil, f.Err
		default:
			all.of(k.Name).note(k, roster.Now)
		}
	}
	if err := s.addOpen(ctx, all, storage.Filters{}, roster.Now, nil); err != nil {
		return nil, err
	}
	return append(bad, all.sorted()...), nil
}

// KeyHolders returns how a key is doing, and the plans that take room. It costs a read, the Search for its open plans, and one
// for holders that are not open, of which it looks at 64; and a Roster if there is no record. For a Unique it searches all open
// plans. A record that can't be read is in KeyState.Err.
//
// Errors: [storage.ErrInvalid] for a wrong name; [storage.ErrNotFound] if the key has no record and no open plan; otherwise those
// of the vault.
func KeyHolders(ctx context.Context, vault storage.Vault, name string, unique bool) (KeyState, []KeyHolder, error) {
	s, err := storeOf("KeyHolders", vault)
	if err == nil {
		err = checkKeyName(name)
	}
	var state KeyState
	var holders []KeyHolder
	if err == nil {
		state, holders, err = s.keyHolders(ctx, turn{name: name, unique: unique})
	}
	return state, holders, doing(fmt.Sprintf("look at key %q", name), err)
}

func (s store) keyHolders(ctx context.Context, t turn) (KeyState, []KeyHolder, error) {
	k, err := s.FindKey(ctx, t.record())
	damaged := err
	switch {
	case errors.Is(err, storage.ErrNotFound):
		roster, err := s.Roster(ctx)
		if k.Now = roster.Now; err != nil {
			return KeyState{}, nil, err
		}
	case err != nil && !unreadable(err):
		return KeyState{}, nil, err
	}
	all, open, filters := keyStates{}, map[uuid.UUID]storage.ListResult{}, storage.Filters{}
	if !t.unique {
		filters.ByKey = t.name
	}
	if err := s.addOpen(ctx, all, filters, k.Now, open); err != nil {
		return KeyState{}, nil, err
	}
	state := all.of(t.record())
	if errors.Is(damaged, storage.ErrNotFound) {
		if damaged = nil; state.Plans == 0 {
			return *state, nil, fmt.Errorf("%w: it has no record, and no open plan has it", storage.ErrNotFound)
		}
	}
	state.note(driver.ListedKey(k), k.Now)
	state.Err = damaged
	var others []uuid.UUID
	for _, h := range k.Holders {
		if _, is := open[h.Plan]; !is && len(others) < mostHolders {
			others = append(others, h.Plan)
		}
	}
	if len(others) > 0 {
		found, err := s.Search(ctx, storage.Filters{ByIDs: others})
		if err != nil {
			return *state, nil, err
		}
		for f := range found {
			if f.Err == nil {
				open[f.Result.ID] = f.Result
			} else if planOf(f.Err) == uuid.Nil {
				return *state, nil, f.Err
			}
		}
	}
	var holders []KeyHolder
	for _, h := range k.Holders {
		p, found := open[h.Plan]
		p.ID = h.Plan
		holders = append(holders, KeyHolder{p, !found || t.keeps(p, h)})
	}
	return *state, holders, nil
}

// keeps reports whether a holder is entitled to a turn, as far as a listing shows.
func (t turn) keeps(p storage.ListResult, h storage.Holder) bool {
	return mayHaveTurn(p) || t.unique && h.Taken && !p.State.Status.Final()
}

// addOpen counts open plans that filters select at a time by the store's clock, and collects them in open, if that is not nil.
func (s store) addOpen(ctx context.Context, all keyStates, filters storage.Filters, now time.Time, open map[uuid.UUID]storage.ListResult) error {
	filters.ByStatus = []workflow.Status{workflow.NotStarted, workflow.Running}
	return s.eachPlan(ctx, filters, func(p storage.ListResult) {
		all.add(p, now)
		if open != nil {
			open[p.ID] = p
		}
	})
}

// note notes what the record of a key says at a time by the store's clock.
func (k *KeyState) note(r storage.ListedKey, now time.Time) {
	k.KeySettings, k.By, k.Holders, k.Stored = settingsAt(r.Limit, r.PausedUntil, now), r.By, r.Holders, r.Stored
}

// Kind returns "key", or "unique" for a Unique.
func (k KeyState) Kind() string {
	if k.Unique {
		return "unique"
	}
	return "key"
}

func (k KeyState) record() string { return turn{name: k.Name, unique: k.Unique}.record() }

// keyStates are the states of keys by the names of their records.
type keyStates map[string]*KeyState

func (all keyStates) of(record string) *KeyState {
	if all[record] == nil {
		name, unique := KeyOf(record)
		all[record] = &KeyState{Name: name, Unique: unique}
	}
	return all[record]
}

// add counts an open plan for its keys.
func (all keyStates) add(p storage.ListResult, now time.Time) {
	for _, name := range p.Keys {
		all.of(keyRecord+name).Plans++
	}
	if p.Unique != "" {
		all.of(uniqueRecord+p.Unique).Plans++
	}
	for _, t := range awaited(p, now) {
		k := all.of(t.record())
		if k.Waiting++; k.Next == uuid.Nil || driver.NewestFirst(p.ID, k.Next) > 0 {
			k.Next = p.ID
		}
	}
}

// sorted returns the states, most waited for first.
func (all keyStates) sorted() (list []KeyState) {
	for _, k := range all {
		list = append(list, *k)
	}
	slices.SortFunc(list, func(a, b KeyState) int {
		return cmp.Or(b.Waiting-a.Waiting, b.Holders-a.Holders, b.Plans-a.Plans, strings.Compare(a.record(), b.record()))
	})
	return list
}

// awaited returns the turns that a plan waits for at a time by the store's clock. One that has not begun may find room. One whose
// deadline has passed ends without.
func awaited(p storage.ListResult, now time.Time) []turn {
	if p.Owner != uuid.Nil || p.WakeAt.After(now.Add(resolution)) || overdue(p.Deadline, now) {
		return nil
	}
	begun := p.State.Status != workflow.NotStarted
	return slices.DeleteFunc(turnsIn(p), func(t turn) bool { return begun && t.name != p.WaitsFor })
}
