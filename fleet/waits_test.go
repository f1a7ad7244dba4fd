package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/internal/processtest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/memvault"
	"github.com/planvault/azblob/workflow"
)

// waitsAs fails the test unless an inspection finds a plan in a condition, stuck for a reason or not, and says all of says.
func waitsAs(t testing.TB, i fleet.Inspection, id uuid.UUID, c fleet.Condition, r fleet.Reason, stuck bool, says ...string) {
	t.Helper()
	p := openPlan(t, i, id)
	if p.Condition != c || p.Reason != r || p.Stuck != stuck {
		t.Errorf("a plan is %s, stuck %v for %q: %s", p.Condition, p.Stuck, p.Reason, p.Why)
	}
	for _, text := range says {
		if !strings.Contains(p.Why, text) {
			t.Errorf("%q does not say %q", p.Why, text)
		}
	}
}

func openPlan(t testing.TB, i fleet.Inspection, id uuid.UUID) fleet.OpenPlan {
	t.Helper()
	for _, p := range i.Plans {
		if p.Plan.ID == id {
			return p
		}
	}
	t.Fatalf("plan %s is not there", id)
	return fleet.OpenPlan{}
}

// TestInspectTurns has plans that wait for turns, behind a plan that works, is paused, or has ended, for a paused key, and for
// one with a damaged record.
func TestInspectTurns(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		p, n := start(t, store, fleet.Options{TTL: 12 * time.Hour})
		make := func(name string, keys ...workflow.Key) *workflow.Plan {
			defer time.Sleep(time.Millisecond)
			return keyed(t, p, name, keys...)
		}
		holder := make("holder", workflow.Key{Name: "a"})
		must(t, n.Claim(t.Context(), holder))
		first, second := make("first", workflow.Key{Name: "a"}), make("second", workflow.Key{Name: "a"}, workflow.Key{Name: "z"})
		if err := n.Claim(t.Context(), second); !errors.Is(err, fleet.ErrNoTurn) {
			t.Fatal(err)
		}
		free, held := make("free", workflow.Key{Name: "b"}), make("held", workflow.Key{Name: "c"})
		by := workflow.Attribution{By: "ana", Why: "429"}
		must(t, fleet.PauseKey(t.Context(), p, "c", time.Now().Add(3*time.Hour), by))
		time.Sleep(time.Hour)

		look := func() fleet.Inspection { return inspect(t, p, fleet.InspectOptions{}) }
		i := look()
		waitsAs(t, i, first.ID, fleet.ConditionTurn, fleet.ReasonTurn, false, fmt.Sprintf("It waits for a turn for key \"a\": plan %s has it.", holder.ID))
		waitsAs(t, i, second.ID, fleet.ConditionTurn, fleet.ReasonTurn, false, holder.ID.String(), "1 plan waits before it.")
		waitsAs(t, i, free.ID, fleet.ConditionWaiting, fleet.ReasonNotPickedUp, true)
		waitsAs(t, i, holder.ID, fleet.ConditionWorking, fleet.ReasonNoProgress, true, `It has a turn for key "a", for which 2 plans wait.`)
		if len(i.Keys) != 1 || i.Keys[0].Name != "a" || i.Keys[0].Waiting != 2 || i.Keys[0].Holders != 1 || i.Keys[0].Holder != holder.ID || i.Keys[0].Next != first.ID {
			t.Errorf("the keys are %+v", i.Keys)
		}
		if g := i.Gauges(); g.Open != 5 || g.Asleep != 2 || g.Waiting != 2 || len(g.Keys) != 1 {
			t.Errorf("the gauges are %+v", g)
		}
		if alone := fleet.Describe(read(t, p, second.ID), time.Now()); alone.Condition != fleet.ConditionTurn || alone.Stuck || !strings.Contains(alone.Why, `key "a". See planvault keys.`) {
			t.Errorf("it describes itself as %+v", alone)
		}
		part := inspect(t, p, fleet.InspectOptions{Plans: []uuid.UUID{first.ID}})
		waitsAs(t, part, first.ID, fleet.ConditionTurn, fleet.ReasonTurn, false, holder.ID.String())
		if part.Gauges().Asleep != 0 {
			t.Error("a look at one plan knows that its holder goes on")
		}

		waitsAs(t, i, held.ID, fleet.ConditionWaiting, fleet.ReasonNotPickedUp, true) // nobody has searched for holders
		if err := n.Claim(t.Context(), read(t, p, held.ID)); !errors.Is(err, fleet.ErrNoTurn) {
			t.Fatal(err)
		}
		waitsAs(t, look(), held.ID, fleet.ConditionTurn, fleet.ReasonTurn, false, `key "c", which is paused until `, ", in 2h, last set by ana (429).")

		must(t, fleet.PausePlan(t.Context(), p, holder.ID, ana))
		must(t, n.Sleep(t.Context(), holder, time.Now().Add(time.Hour), 0))
		waitsAs(t, look(), holder.ID, fleet.ConditionPaused, fleet.ReasonPaused, false, `It keeps a turn for key "a", for which 2 plans wait.`)

		for _, id := range []uuid.UUID{first.ID, second.ID} {
			must(t, fleet.Stop(t.Context(), p, id, ana))
		}
		waitsAs(t, look(), first.ID, fleet.ConditionWaiting, fleet.ReasonNotPickedUp, false, "It was asked to stop")
		waitsAs(t, look(), second.ID, fleet.ConditionAsleep, fleet.ReasonAsleep, false, "It was asked to stop")
		time.Sleep(20 * time.Minute)
		waitsAs(t, look(), first.ID, fleet.ConditionWaiting, fleet.ReasonNotPickedUp, true, "It was asked to stop")
		waitsAs(t, look(), second.ID, fleet.ConditionAsleep, fleet.ReasonNotPickedUp, true, "It was asked to stop")

		roster, err := p.Roster(t.Context())
		must(t, err)
		for _, stop := range roster.Stops {
			must(t, p.RemoveStop(t.Context(), stop.Plan, stop.Version))
		}
		var unique [2]*workflow.Plan
		for i := range unique {
			unique[i] = plantest.Sized(1, 1, 1)
			unique[i].Unique = "u"
			must(t, p.Create(t.Context(), unique[i]))
			if err := n.Claim(t.Context(), unique[i]); i == 0 {
				must(t, err)
			} else if !errors.Is(err, fleet.ErrNoTurn) {
				t.Fatal(err)
			}
		}
		p.OnOp("FindKey", func(context.Context, processtest.Call, func() error) error { return storage.ErrCorrupt })
		broken := look()
		waitsAs(t, broken, second.ID, fleet.ConditionTurn, fleet.ReasonKeyDamaged, true, `Nobody gets a turn for key "a"`, "planvault key repair with")
		waitsAs(t, broken, unique[1].ID, fleet.ConditionTurn, fleet.ReasonKeyDamaged, true, `Nobody gets a turn for unique "u"`, "planvault key repair --unique with")
		p.OnOp("FindKey", func(context.Context, processtest.Call, func() error) error { return storage.ErrSchema })
		if newer := look(); strings.Contains(openPlan(t, newer, second.ID).Why+fmt.Sprint(fleet.LookForTurns(t.Context(), p, second)), "epair") {
			t.Error("a record of a newer schema is to be repaired")
		}
	})
}

// TestInspectTurnsLeft has a holder that ended with its node, and one that sleeps without its turn: nobody has given their turns
// back, and so the plans that wait need a node.
func TestInspectTurnsLeft(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		p, n := start(t, store, fleet.Options{})
		holder := keyed(t, p, "holder", workflow.Key{Name: "a"})
		must(t, n.Claim(t.Context(), holder))
		time.Sleep(time.Millisecond)
		waits, began := keyed(t, p, "waits", workflow.Key{Name: "a"}), keyed(t, p, "began", workflow.Key{Name: "a"})
		if err := n.Claim(t.Context(), began); !errors.Is(err, fleet.ErrNoTurn) {
			t.Fatal(err)
		}
		must(t, finish(t.Context(), p, holder))
		sleeper := plantest.Sized(1, 1, 1)
		sleeper.Keys, sleeper.KeepTurn = []workflow.Key{{Name: "b"}}, workflow.KeepWhileAwake
		must(t, p.Create(t.Context(), sleeper))
		must(t, n.Claim(t.Context(), sleeper))
		p.OnOp("PutKey", func(context.Context, processtest.Call, func() error) error { return errors.New("broken") })
		must(t, n.Sleep(t.Context(), sleeper, time.Now().Add(time.Hour), 0))
		behind := keyed(t, p, "behind", workflow.Key{Name: "b"})
		p.Kill()
		q := open(store)
		time.Sleep(time.Minute)
		i := inspect(t, q, fleet.InspectOptions{})
		waitsAs(t, i, waits.ID, fleet.ConditionWaiting, fleet.ReasonNoNode, false)
		waitsAs(t, i, began.ID, fleet.ConditionAsleep, fleet.ReasonAsleep, false)
		waitsAs(t, i, behind.ID, fleet.ConditionWaiting, fleet.ReasonNoNode, false)
		waitsAs(t, i, sleeper.ID, fleet.ConditionAsleep, fleet.ReasonAsleep, false)
		if g := i.Gauges(); g.Open != 4 || g.Asleep != 1 || len(g.Keys) != 0 {
			t.Errorf("the gauges are %+v", g)
		}
	})
}

// TestInspectUniqueNamedAsKey has a plan that waits for its Unique, which has the name of one of its keys.
func TestInspectUniqueNamedAsKey(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		p, n := start(t, store, fleet.Options{})
		var plans []*workflow.Plan
		for range 2 {
			plan := plantest.Sized(1, 1, 1)
			plan.Keys, plan.Unique = []workflow.Key{{Name: "a", Limit: 9}}, "a"
			must(t, p.Create(t.Context(), plan))
			plans = append(plans, plan)
			time.Sleep(time.Millisecond)
		}
		must(t, n.Claim(t.Context(), plans[0]))
		if err := n.Claim(t.Context(), plans[1]); !errors.Is(err, fleet.ErrNoTurn) {
			t.Fatal(err)
		}
		waitsAs(t, inspect(t, p, fleet.InspectOptions{}), plans[1].ID, fleet.ConditionTurn, fleet.ReasonTurn, false,
			fmt.Sprintf("It waits for a turn for unique \"a\": plan %s has it.", plans[0].ID))
		if k, _, err := fleet.KeyHolders(t.Context(), p, "a", true); err != nil || k.Waiting != 1 {
			t.Errorf("%+v, %v", k, err)
		}
	})
}

// TestInspectManyTurns bounds the records that a look reads. Of other keys, the listing tells who works.
func TestInspectManyTurns(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		p, n := start(t, store, fleet.Options{TTL: time.Hour})
		const keys = 60
		for k := range keys {
			key := workflow.Key{Name: fmt.Sprint("key ", k)}
			must(t, n.Claim(t.Context(), keyed(t, p, "has", key)))
			time.Sleep(time.Millisecond)
			keyed(t, p, "waits", key)
		}
		time.Sleep(20 * time.Minute)
		var read atomic.Int64
		p.Before("FindKey", func() { read.Add(1) })
		i := inspect(t, p, fleet.InspectOptions{NoReads: true})
		turn := 0
		for _, o := range i.Plans {
			if o.Condition == fleet.ConditionTurn && !o.Stuck && o.Turn.Holder != uuid.Nil {
				turn++
			}
		}
		if g := i.Gauges(); turn != keys || read.Load() != 48 || g.Asleep != 48 || len(i.Keys) != keys || len(g.Keys) != 10 {
			t.Errorf("%d plans wait, %d records were read, %d plans are asleep, for %d and %d keys", turn, read.Load(), g.Asleep, len(i.Keys), len(g.Keys))
		}
	})
}
