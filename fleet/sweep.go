package fleet

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/planvault/azblob/storage"
)

// Holders that are not entitled to a turn are removed by whoever waits for one. Where nobody waits, a sweep does it.

// keptUnused is how long the record of a key stays that has neither holders nor settings.
const keptUnused = 30 * day

// SweepTurns removes from the records of all keys and Uniques the plans that have no turn, and the records that have neither
// plans nor settings and have not changed for 30 days. now is the time by the store's clock. The member of a fleet that looks
// after the gauges does so an hour after its start, and then once a day, and so does an engine without a fleet; no turn waits for it.
//
// It costs a list for each 5,000 records, and for each one with plans a read, the Search of these, and a write if one has no turn;
// and a read, the Search of all open plans and a write for each Unique whose record was repaired, once.
// It goes on after the errors of single records, and returns them with the others of the vault. Two sweeps at once do no harm.
func SweepTurns(ctx context.Context, vault storage.Vault, now time.Time) error {
	s, err := storeOf("SweepTurns", vault)
	if err != nil {
		return err
	}
	return doing("sweep the turns", s.sweepTurns(ctx, now))
}

func (s store) sweepTurns(ctx context.Context, now time.Time) error {
	keys, err := s.Keys(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for k := range keys {
		switch _, unique := KeyOf(k.Result.Name); {
		case k.Err != nil:
			errs = append(errs, k.Err)
		case k.Result.Holders > 0, unique && !k.Result.Searched:
			errs = append(errs, s.sweepKey(ctx, k.Result.Name))
		case k.Result.Limit == 0 && k.Result.PausedUntil.Before(now) && now.Sub(k.Result.Stored) > keptUnused:
			if err := s.RemoveKey(ctx, k.Result.Name, k.Result.Version); !overtaken(err) {
				errs = append(errs, err)
			}
		}
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(errs...)
}

// sweepKey removes the holders of a record that are not entitled. It searches for the holder of a Unique whose record was repaired:
// one that is not there counts as searched. If somebody else changes the record, that is left to the next sweep.
func (s store) sweepKey(ctx context.Context, record string) error {
	k, err := s.FindKey(ctx, record)
	if err != nil {
		if overtaken(err) {
			err = nil
		}
		return err
	}
	var t turn
	t.name, t.unique = KeyOf(record)
	var kept []storage.Holder
	searched := k.Searched
	if t.unique && !searched {
		k.Searched = true
		if k.Holders, err = s.searchUnique(ctx, t); err != nil {
			return err
		}
	}
	for part := range slices.Chunk(k.Holders, mostHolders) {
		some := k
		some.Holders = part
		if part, err = s.entitled(ctx, t, some); err != nil {
			return err
		}
		kept = append(kept, part...)
	}
	if len(kept) == len(k.Holders) && k.Searched == searched {
		return nil
	}
	k.Holders = kept
	if err = s.putKey(ctx, k); overtaken(err) {
		err = nil
	}
	return err
}

// sweepsTurns sweeps the turns on each day by the store's clock, if this node looks after the gauges: within an hour of its join,
// of midnight, or of being elected. A fleet whose nodes live for less than a day sweeps, too. A failure is repeated an hour later.
func (n *Node) sweepsTurns() {
	var swept time.Time
	n.every(time.Hour, nil, func(ctx context.Context) (time.Duration, error) {
		if today := n.Now().Truncate(day); !today.Equal(swept) && n.looksAfterGauges() {
			if err := n.store.sweepTurns(ctx, n.Now()); err != nil {
				n.retries("sweep the turns", err)
			} else {
				swept = today
			}
		}
		return time.Hour, nil
	})
}
