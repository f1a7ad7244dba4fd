package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/plannote"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// A plan with Keys works only while it has a turn for each of them. A key's record in the store says which plans have turns:
// plans, and not nodes, so that the death of a node changes nothing. Only the owner of a plan takes turns for it, with a write
// that names the record's version. Whoever removes a plan from a record first reads the record, and then finds that the plan is
// not entitled to a turn: it has ended, or sleeps without its turns. docs/fleet.md has the rules.

// ErrNoTurn means that a plan has to wait for a turn. It comes in a [NoTurnError].
var ErrNoTurn = errors.New("the plan waits for a turn")

// NoTurnError is [ErrNoTurn] with what a plan waits for.
type NoTurnError struct {
	// Name is that of the key, or the plan's Unique if Unique is set.
	Name   string
	Unique bool
	// Holder is one of the plans that have the turns, or are to have the next ones. It is uuid.Nil if the key is paused.
	Holder uuid.UUID
	// PausedUntil is until when the key is paused, if it is.
	PausedUntil time.Time
	// Limit is how many plans may have turns at once, as the plan, those that have turns and the operator say.
	Limit int
	// Stored is when the record was last changed, by the store's clock.
	Stored time.Time
	// Err is set if the record can't be read or written: it is damaged or newer than this program, or the vault refuses it.
	Err error
}

// Error says what the plan waits for.
func (e *NoTurnError) Error() string {
	what := "key"
	if e.Unique {
		what = "unique"
	}
	switch {
	case e.Err != nil:
		return fmt.Sprintf("%v for %s %q: %v", ErrNoTurn, what, e.Name, e.Err)
	case e.Holder == uuid.Nil:
		return fmt.Sprintf("%v: %s %q is paused until %s", ErrNoTurn, what, e.Name, e.PausedUntil.UTC().Format(time.RFC3339))
	}
	return fmt.Sprintf("%v: plan %s is before it for %s %q", ErrNoTurn, e.Holder, what, e.Name)
}

// damaged returns a [NoTurnError] for a record that can't be read: it gives nobody a turn, until somebody repairs it.
func (t turn) damaged(err error) error {
	if !errors.Is(err, storage.ErrCorrupt) && !errors.Is(err, storage.ErrSchema) {
		return err
	}
	if errors.Is(err, storage.ErrCorrupt) {
		err = fmt.Errorf("%w; see fleet.RepairKey and RepairUnique", err)
	}
	return &NoTurnError{Name: t.name, Unique: t.unique, Err: err}
}

// Unwrap returns ErrNoTurn.
func (e *NoTurnError) Unwrap() error { return ErrNoTurn }

// The names of records begin with these.
const (
	keyRecord    = "key:"
	uniqueRecord = plannote.UniqueRecord
)

// KeyOf returns the name of the key in the name of a record, or the text of a plan's Unique.
func KeyOf(record string) (name string, unique bool) {
	if name, unique = strings.CutPrefix(record, uniqueRecord); unique {
		return name, true
	}
	return strings.TrimPrefix(record, keyRecord), false
}

// turn is what a plan takes.
type turn struct {
	plan     uuid.UUID
	name     string
	unique   bool
	limit    int
	deadline time.Time // of the plan, by the store's clock: then it ends without
}

func (t turn) record() string {
	if t.unique {
		return uniqueRecord + t.name
	}
	return keyRecord + t.name
}

// turnsOf returns the turns that a plan takes, in the order in which all plans take them: fewer take one in vain.
func turnsOf(p *workflow.Plan) (all []turn) {
	for _, k := range p.Keys {
		all = append(all, turn{p.ID, k.Name, false, cmp.Or(k.Limit, 1), p.Deadline})
	}
	slices.SortFunc(all, func(a, b turn) int { return strings.Compare(a.name, b.name) })
	if p.Unique != "" {
		all = append(all, turn{p.ID, p.Unique, true, 1, p.Deadline})
	}
	return all
}

// TakesTurns reports whether a plan works only with turns.
func TakesTurns(p *workflow.Plan) bool { return len(p.Keys) > 0 || p.Unique != "" }

// OnlyEnds reports whether nothing more of a plan begins at a time of the store's clock, but what is deferred: it was asked to stop,
// its deadline has passed, or its outcome is stored. Such a plan needs no turns. A stop request that its owner has not yet stored
// does not show.
func OnlyEnds(p *workflow.Plan, at time.Time) bool {
	return p.Reason == workflow.StopRequested || p.Reason == workflow.DeadlineExceeded || !p.Ending.At.IsZero() || overdue(p.Deadline, at)
}

// overdue reports whether a plan's deadline has passed, if it has one.
func overdue(deadline, at time.Time) bool { return !deadline.IsZero() && !deadline.After(at) }

// TakeTurns takes the turns of a running plan for its owner, who calls it before anything of the plan runs: after a claim, a
// takeover and a wake. Nodes and claims of a [Placer] do so by themselves.
//
// If one is not to be had, the error is a [NoTurnError]: the owner lets the plan sleep with WaitsFor set, and then calls
// [GiveTurns]. TakeTurns costs two requests for each key; for a new key, or one whose record was lost, also the Search of its
// open plans and a write; and a Search for each holder if there is no room. Other errors are those of the vault: call it again.
func TakeTurns(ctx context.Context, vault storage.Vault, plan *workflow.Plan) error {
	s, err := storeOf("TakeTurns", vault)
	if err != nil {
		return err
	}
	return doing("take the turns of plan "+plan.ID.String(), s.takeTurns(ctx, plan))
}

func (s store) takeTurns(ctx context.Context, plan *workflow.Plan) error {
	for _, t := range turnsOf(plan) {
		if err := s.takeTurn(ctx, t, true); err != nil {
			return err
		}
	}
	return nil
}

// takeTurn takes one turn. It always writes, because reading that the plan has the turn does not refuse a removal under way. A plan
// with an owner takes room after a search even if it gets no turn: it may have begun before the record was lost.
func (s store) takeTurn(ctx context.Context, t turn, owned bool) error {
	for {
		k, err := s.findKey(ctx, t)
		if err != nil {
			return err
		}
		full := t.full(k)
		switch {
		case !k.Searched:
			if k.Holders, err = s.searchHolders(ctx, t); err != nil {
				return err
			}
			k.Searched, full = true, t.full(k)
		case full != nil:
			if k, full, err = s.weed(ctx, t, k, full); err != nil || full != nil {
				return cmp.Or(err, full)
			}
		}
		k.Holders, k.Waiting = slices.DeleteFunc(slices.Clone(k.Holders), t.isOf), slices.DeleteFunc(waiters(k), t.isNotedBy)
		if owned || full == nil {
			k.Holders = append(k.Holders, storage.Holder{Plan: t.plan, Limit: t.limit, Taken: full == nil})
		}
		switch err := s.putKey(ctx, k); {
		case overtaken(err):
		case err != nil && full != nil:
			return fmt.Errorf("%w: %w", full, err)
		default:
			return cmp.Or(err, full)
		}
	}
}

func (t turn) isOf(h storage.Holder) bool { return h.Plan == t.plan }

// most returns how many plans may have turns at once, of what this plan and the operator say.
func (t turn) most(k storage.KeyRecord) int { return min(t.limit, cmp.Or(k.Limit, t.limit)) }

// full returns a [NoTurnError] unless the plan has the turn, or there is room for it beside holders and plans that come before it.
func (t turn) full(k storage.KeyRecord) error {
	least, others := t.most(k), 0
	no := &NoTurnError{Name: t.name, Unique: t.unique, Stored: k.Stored}
	for _, h := range k.Holders {
		switch {
		case t.isOf(h) && h.Taken:
			return nil
		case !t.isOf(h):
			least, others, no.Holder = min(least, cmp.Or(h.Limit, 1)), others+1, h.Plan
		}
	}
	for _, w := range t.ahead(k) {
		least, others, no.Holder = min(least, cmp.Or(w.Limit, 1)), others+1, w.Plan
	}
	no.Limit = least
	switch {
	case k.PausedUntil.After(k.Now):
		no.Holder, no.PausedUntil = uuid.Nil, k.PausedUntil
	case others < least:
		return nil
	}
	return no
}

// findKey reads a record. It creates one that is not there: that of a key is then to be searched. A Unique is searched for only if
// its record was repaired.
func (s store) findKey(ctx context.Context, t turn) (storage.KeyRecord, error) {
	for {
		k, err := s.FindKey(ctx, t.record())
		switch {
		case errors.Is(err, storage.ErrNotFound) && t.unique:
			return storage.KeyRecord{Name: t.record(), Searched: true}, nil
		case errors.Is(err, storage.ErrNotFound):
			if err = s.putKey(ctx, storage.KeyRecord{Name: t.record()}); err == nil || overtaken(err) {
				continue
			}
			return k, err
		}
		return k, t.damaged(err)
	}
}

// putKey stores a record in place of the version that was read. The error is [storage.ErrConflict] if somebody has created it, unless
// the store still says that it is not there.
func (s store) putKey(ctx context.Context, k storage.KeyRecord) error {
	err := settle(ctx, func() error { _, err := s.PutKey(ctx, k); return err })
	if !errors.Is(err, storage.ErrExists) {
		return err
	}
	if _, err := s.FindKey(ctx, k.Name); errors.Is(err, storage.ErrNotFound) {
		return fmt.Errorf("%w: the service contradicts itself about whether there is a record of %s: call again", storage.ErrUnavailable, k.Name)
	}
	return storage.ErrConflict
}

// searchHolders returns the plans that may have a turn for a key, but for the plan itself. The caller has read the record.
func (s store) searchHolders(ctx context.Context, t turn) (holders []storage.Holder, err error) {
	if t.unique {
		return s.searchUnique(ctx, t)
	}
	plans, err := s.running.find(ctx, s)
	for _, p := range plans {
		if p.ID != t.plan && slices.Contains(p.Keys, t.name) && mayHaveTurn(p) {
			holders = append(holders, storage.Holder{Plan: p.ID, Limit: s.limitOf(ctx, p.ID, t.name)})
		}
	}
	return holders, err
}

// searchUnique is searchHolders for a Unique. If no other plan may have it, it goes to the oldest one that is open, as if Submit had
// reserved it.
func (s store) searchUnique(ctx context.Context, t turn) (holders []storage.Holder, err error) {
	var oldest uuid.UUID
	err = s.eachPlan(ctx, storage.Filters{ByStatus: []workflow.Status{workflow.NotStarted, workflow.Running}}, func(p storage.ListResult) {
		switch {
		case p.Unique != t.name, p.ID == t.plan:
		case mayHaveTurn(p):
			holders = append(holders, storage.Holder{Plan: p.ID, Limit: 1})
		case oldest == uuid.Nil || driver.NewestFirst(p.ID, oldest) > 0:
			oldest = p.ID
		}
	})
	if len(holders) == 0 && oldest != uuid.Nil {
		holders = append(holders, storage.Holder{Plan: oldest, Limit: 1, Taken: true})
	}
	return holders, err
}

// limitOf returns the limit that another plan names for a key, or 1 if it can't be read.
func (s store) limitOf(ctx context.Context, plan uuid.UUID, name string) int {
	p, err := s.Read(ctx, plan)
	if err != nil {
		return 1
	}
	for _, k := range p.Keys {
		if k.Name == name {
			return cmp.Or(k.Limit, 1)
		}
	}
	return 1
}

// mayHaveTurn reports whether a plan is entitled to a turn for its keys.
func mayHaveTurn(p storage.ListResult) bool {
	return p.State.Status == workflow.Running && !(p.Asleep() && p.WaitsFor != "")
}

// mostHolders is how many holders are looked at at a time.
const mostHolders = 64

// reservedFor is how long a place for a Unique is kept for a plan that is not there: its Create may be under way.
const reservedFor = 10 * time.Minute

// entitled returns the holders of a record without those that are not entitled to a turn. The record was read before. It looks at
// some of them if there are many, at others each time.
func (s store) entitled(ctx context.Context, t turn, k storage.KeyRecord) ([]storage.Holder, error) {
	gone := map[uuid.UUID]storage.Holder{}
	for _, i := range rand.Perm(len(k.Holders)) {
		if h := k.Holders[i]; !t.isOf(h) && len(gone) < mostHolders {
			gone[h.Plan] = h
		}
	}
	if len(gone) == 0 {
		return k.Holders, nil
	}
	found, err := s.Search(ctx, storage.Filters{ByIDs: slices.Collect(maps.Keys(gone))})
	if err != nil {
		return nil, err
	}
	over := map[uuid.UUID]bool{}
	for f := range found {
		id := f.Result.ID
		if f.Err != nil {
			if id = planOf(f.Err); id == uuid.Nil {
				return nil, f.Err
			}
		}
		over[id] = f.Err == nil && !t.keeps(f.Result, gone[id])
		delete(gone, id)
	}
	for id := range gone {
		if _, err := s.Read(ctx, id); errors.Is(err, storage.ErrNotFound) && (!t.unique || k.Now.Sub(k.Stored) > reservedFor) {
			over[id] = true
		} else if err != nil && !errors.Is(err, storage.ErrNotFound) && !unreadable(err) {
			return nil, err
		}
	}
	return slices.DeleteFunc(slices.Clone(k.Holders), func(h storage.Holder) bool { return over[h.Plan] }), nil
}

// GiveTurns gives back the turns of a plan that is final, or sleeps without them. Its owner calls it after the write that made it
// so. A plan that may have turns keeps them. GiveTurns costs two requests and the Search for one ID for each key. The error is the
// first one. What it leaves then, whoever waits for a turn removes.
func GiveTurns(ctx context.Context, vault storage.Vault, plan *workflow.Plan) error {
	s, err := storeOf("GiveTurns", vault)
	if err != nil {
		return err
	}
	for _, t := range turnsOf(plan) {
		err = cmp.Or(err, s.giveTurn(ctx, t)) // the others too, whatever becomes of one
	}
	return doing("give back the turns of plan "+plan.ID.String(), err)
}

func (s store) giveTurn(ctx context.Context, t turn) error {
	for {
		k, err := s.FindKey(ctx, t.record())
		switch {
		case errors.Is(err, storage.ErrNotFound), err == nil && !slices.ContainsFunc(k.Holders, t.isOf):
			return nil
		case err != nil:
			return err
		}
		only := storage.KeyRecord{Holders: []storage.Holder{{Plan: t.plan, Taken: true}}, Stored: k.Stored, Now: k.Now}
		kept, err := s.entitled(ctx, turn{name: t.name, unique: t.unique}, only)
		if err != nil || len(kept) > 0 {
			return err
		}
		k.Holders = slices.DeleteFunc(k.Holders, t.isOf)
		if err := s.putKey(ctx, k); !overtaken(err) {
			return err
		}
	}
}

// LookForTurns returns a [NoTurnError] if there is no room for a plan, as far as a look shows, or if the look fails. It is for an
// engine without a fleet that has not begun a plan, or not woken it: [TakeTurns] decides. It looks again every ten seconds. It costs
// a request for each key, and a Search for each holder if there is no room; and a Search and a write in every third look if a
// younger plan has overtaken the plan.
func LookForTurns(ctx context.Context, vault storage.Vault, plan *workflow.Plan) error {
	s, err := storeOf("LookForTurns", vault)
	if err != nil {
		return err
	}
	return doing("look for the turns of plan "+plan.ID.String(), s.lookAtTurns(ctx, turnsOf(plan), DefaultInterval))
}

// lookAtTurns returns a [NoTurnError] if there is no room for a plan, as far as a look shows, and removes holders that are not
// entitled. It changes nothing of the plan, and gives no turn. A plan that was overtaken is noted as waiting, if every, the time
// between two looks, is not 0.
func (s store) lookAtTurns(ctx context.Context, turns []turn, every time.Duration) error {
	for i, t := range turns {
		k, err := s.lookAtTurn(ctx, t)
		if no, waits := errors.AsType[*NoTurnError](err); waits && no.Err == nil && every > 0 {
			err = cmp.Or(s.note(ctx, t, k, turns[i+1:], every), err)
		}
		if errors.Is(err, ErrNoTurn) {
			return err
		} else if err != nil {
			return &NoTurnError{Name: t.name, Unique: t.unique, Err: err}
		}
	}
	return nil
}

func (s store) lookAtTurn(ctx context.Context, t turn) (storage.KeyRecord, error) {
	k, err := s.FindKey(ctx, t.record())
	switch full := t.full(k); {
	case errors.Is(err, storage.ErrNotFound):
		return k, nil
	case err != nil:
		return k, t.damaged(err)
	case full != nil && k.Searched:
		k, full, err = s.weed(ctx, t, k, full)
		return k, cmp.Or(err, full)
	}
	return k, nil
}

// weed removes holders that are not entitled to a turn from a record that has no room. It stores the rest if there is still no
// room; otherwise whoever takes the turn does, with the same write.
func (s store) weed(ctx context.Context, t turn, k storage.KeyRecord, full error) (storage.KeyRecord, error, error) {
	kept, err := s.entitled(ctx, t, k)
	if err != nil || len(kept) == len(k.Holders) {
		return k, full, err
	}
	k.Holders = kept
	if full = t.full(k); full != nil {
		if err = s.putKey(ctx, k); overtaken(err) {
			err = nil
		}
	}
	return k, full, err
}

// ReserveUnique takes the turn for the Unique of a new plan, before its Create. It returns the ID of the plan that has it, and
// [storage.ErrExists], while that plan is open or may be being created: for ten minutes. It does nothing for a plan without
// Unique. It costs two requests, and the Search for one ID if another plan has the turn.
func ReserveUnique(ctx context.Context, vault storage.Vault, plan *workflow.Plan) (holder uuid.UUID, err error) {
	if plan.Unique == "" {
		return uuid.Nil, nil
	}
	s, err := storeOf("ReserveUnique", vault)
	if err != nil {
		return uuid.Nil, err
	}
	err = s.takeTurn(ctx, turn{plan.ID, plan.Unique, true, 1, plan.Deadline}, false)
	if no, ok := errors.AsType[*NoTurnError](err); ok && no.Err == nil {
		return no.Holder, fmt.Errorf("plan %s has unique %q: %w", no.Holder, plan.Unique, storage.ErrExists)
	}
	return uuid.Nil, doing(fmt.Sprintf("reserve unique %q", plan.Unique), err)
}

// KeySettings is what an operator says of a key. The settings of the record and the limits of plans both hold.
type KeySettings struct {
	// Limit is how many plans work at once at most. 0 means what the plans say.
	Limit int
	// PausedUntil is the time of the store's clock before which no plan gets a turn. Plans that have one keep it. It is zero if
	// that has passed.
	PausedUntil time.Time
}

// settingsAt returns what an operator has said of a key, at a time by the store's clock.
func settingsAt(limit int, pausedUntil, now time.Time) KeySettings {
	if !pausedUntil.After(now) {
		pausedUntil = time.Time{}
	}
	return KeySettings{limit, pausedUntil}
}

// SetKey stores what change returns for the settings of a key, and who wants that. Plans that have turns keep them, also above
// a lower limit. A waiting plan sees a change within its node's Interval, one that is placed when it is next looked at. SetKey
// costs two requests, and two for the audit log, which has it as key.
//
// Errors: [storage.ErrInvalid] for a wrong name or limit, and if by does not say who asks; [storage.ErrCorrupt] for a record that
// is damaged, see [RepairKey]; otherwise those of the vault.
func SetKey(ctx context.Context, vault storage.Vault, name string, by workflow.Attribution, change func(KeySettings) KeySettings) error {
	s, err := storeOf("SetKey", vault)
	if err != nil {
		return err
	}
	return s.audited(ctx, "set", keyRecord, name, by, func(k storage.KeyRecord, err error) (storage.KeyRecord, error) {
		now := change(settingsAt(k.Limit, k.PausedUntil, k.Now))
		k.Limit, k.PausedUntil = now.Limit, now.PausedUntil.UTC()
		return k, err
	})
}

// RepairKey replaces the record of a key that is damaged, or doubted: with these settings, and without holders. The next plan
// that wants a turn searches for those that have one. The audit log has it as key. The error is [storage.ErrNotFound] if the key
// has neither a record nor an open plan.
func RepairKey(ctx context.Context, vault storage.Vault, name string, by workflow.Attribution, o KeySettings) error {
	return repair(ctx, vault, "repair", keyRecord, name, by, o)
}

// RepairUnique is [RepairKey] for the record of a Unique. If no plan works that has this Unique, the oldest open one has it then.
func RepairUnique(ctx context.Context, vault storage.Vault, unique string, by workflow.Attribution) error {
	return repair(ctx, vault, "repair unique", uniqueRecord, unique, by, KeySettings{})
}

func repair(ctx context.Context, vault storage.Vault, doingWhat, space, name string, by workflow.Attribution, o KeySettings) error {
	s, err := storeOf("RepairKey", vault)
	if err != nil {
		return err
	}
	return s.audited(ctx, doingWhat, space, name, by, func(k storage.KeyRecord, err error) (storage.KeyRecord, error) {
		switch {
		case errors.Is(err, storage.ErrCorrupt):
			err = nil
		case err == nil && k.Version == "":
			_, _, err = s.keyHolders(ctx, turn{name: name, unique: space == uniqueRecord})
		}
		return storage.KeyRecord{Name: k.Name, Version: k.Version, Limit: o.Limit, PausedUntil: o.PausedUntil.UTC()}, err
	})
}

func (s store) audited(ctx context.Context, doingWhat, space, name string, by workflow.Attribution, change func(storage.KeyRecord, error) (storage.KeyRecord, error)) error {
	err := cmp.Or(storage.CheckBy(by), checkKeyName(name))
	if err == nil {
		entry := storage.AuditEntry{What: "key", By: by, Detail: doingWhat + " " + name}
		err = storage.Audit(ctx, s, entry, func(ctx context.Context) error { return s.changeKey(ctx, space+name, by, change) })
	}
	if space == keyRecord {
		doingWhat += " key"
	}
	return doing(fmt.Sprintf("%s %q", doingWhat, name), err)
}

func checkKeyName(name string) error {
	if err := workflow.CheckKey(workflow.Key{Name: name}); err != nil {
		return fmt.Errorf("%w: %w", storage.ErrInvalid, err)
	}
	return nil
}

// PauseKey makes nobody get a turn for a key before a time of the store's clock, such as after an answer 429 with Retry-After. A
// later pause stays. It costs two requests. The errors are those of [SetKey].
func PauseKey(ctx context.Context, vault storage.Vault, name string, until time.Time, by workflow.Attribution) error {
	s, err := storeOf("PauseKey", vault)
	if err == nil {
		err = checkKeyName(name)
	}
	if err == nil {
		err = s.changeKey(ctx, keyRecord+name, by, func(k storage.KeyRecord, err error) (storage.KeyRecord, error) {
			if !until.After(k.PausedUntil) {
				return k, cmp.Or(err, errUnchanged)
			}
			k.PausedUntil = until.UTC()
			return k, err
		})
	}
	return doing(fmt.Sprintf("pause key %q", name), err)
}

// errUnchanged says that a record is not to be stored.
var errUnchanged = errors.New("unchanged")

// changeKey reads the record of a key, changes it and stores it, until nobody else has meanwhile.
func (s store) changeKey(ctx context.Context, record string, by workflow.Attribution, change func(storage.KeyRecord, error) (storage.KeyRecord, error)) error {
	for {
		k, err := s.FindKey(ctx, record)
		if errors.Is(err, storage.ErrNotFound) {
			k, err = storage.KeyRecord{Name: record}, nil
		}
		if k, err = change(k, err); err != nil {
			if errors.Is(err, errUnchanged) {
				return nil
			}
			return err
		}
		if by.At.IsZero() {
			by.At = time.Now().UTC()
		}
		k.By = by
		if err := s.putKey(ctx, k); !overtaken(err) {
			return err
		}
	}
}
