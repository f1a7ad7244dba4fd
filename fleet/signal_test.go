package fleet_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/processtest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/memvault"
	"github.com/planvault/azblob/workflow"
)

func send(t testing.TB, v storage.Vault, plan uuid.UUID, s fleet.Signal) int {
	t.Helper()
	number, err := fleet.Send(t.Context(), v, plan, s)
	must(t, err)
	return number
}

func signals(t testing.TB, v storage.Vault, plan uuid.UUID, after int) (list []string) {
	t.Helper()
	all, err := fleet.Signals(t.Context(), v, plan, after)
	must(t, err)
	for _, s := range all {
		list = append(list, fmt.Sprintf("%d %s %s", s.Number, s.Name, s.Payload))
	}
	return list
}

// TestSend: signals are numbered in order for each plan, a key makes two of one name one, and writers who meet take two
// numbers.
func TestSend(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		p := open(store)
		plan, other := create(t, p, 1).ID, create(t, p, 1).ID
		approve := fleet.Signal{Name: "approve", Payload: json.RawMessage(`{"a":"<1>"}`), By: ana}
		for want, s := range []fleet.Signal{
			1: approve, 2: approve,
			3: {Name: "approve", Key: "ben"}, 4: {Name: "reject", Key: "ben"},
		} {
			if want > 0 {
				if got := send(t, p, plan, s); got != want {
					t.Errorf("signal %d has number %d", want, got)
				}
			}
		}
		if n := send(t, p, plan, fleet.Signal{Name: "approve", Key: "ben", Payload: json.RawMessage("2")}); n != 3 {
			t.Errorf("the same key made signal %d", n)
		}
		if n := send(t, p, other, fleet.Signal{Name: "approve", Key: "ben"}); n != 1 {
			t.Errorf("another plan's signal has number %d", n)
		}
		want := []string{`1 approve {"a":"<1>"}`, `2 approve {"a":"<1>"}`, "3 approve ", "4 reject "}
		if got := signals(t, p, plan, 0); !slices.Equal(got, want) {
			t.Errorf("the signals are %q, want %q", got, want)
		}
		if got := signals(t, p, plan, 3); !slices.Equal(got, want[3:]) {
			t.Errorf("the signals after 3 are %q", got)
		}
		all, _ := fleet.Signals(t.Context(), p, plan, 0)
		if all[0].By.By != ana.By || all[0].By.At.IsZero() {
			t.Errorf("the first is by %+v", all[0].By)
		}

		p.OnOp("PutNote", func(_ context.Context, _ processtest.Call, do func() error) error { // somebody is faster
			p.On(nil)
			send(t, p, plan, fleet.Signal{Name: "go", Key: "x"})
			return do()
		})
		if n := send(t, p, plan, fleet.Signal{Name: "go", Key: "x"}); n != 5 {
			t.Errorf("a writer who met the same key got %d", n)
		}
		var both sync.WaitGroup
		for range 8 {
			both.Go(func() { send(t, p, plan, fleet.Signal{Name: "at once"}) })
		}
		both.Wait()
		if got := signals(t, p, plan, 5); len(got) != 8 {
			t.Errorf("eight writers at once left %q", got)
		}
	})
}

// TestSendRefuses: what can't be a signal, or is for no plan that could get it, is refused and leaves nothing.
func TestSendRefuses(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		p, n := start(t, store, fleet.Options{})
		open, final := create(t, p, 1).ID, claimed(t, p, n, 1)
		must(t, finish(t.Context(), p, final))
		fit := fleet.Signal{
			Name: strings.Repeat("n", fleet.MaxSignalName), Key: strings.Repeat("k", fleet.MaxSignalName),
			Payload: json.RawMessage(`"` + strings.Repeat("<", fleet.MaxSignal-2) + `"`), By: workflow.Attribution{By: strings.Repeat("<", workflow.MaxBy), Why: strings.Repeat("\"", workflow.MaxWhy)},
		}
		send(t, p, open, fit)
		for _, test := range []struct {
			name   string
			plan   uuid.UUID
			change func(s *fleet.Signal)
			want   error
		}{
			{"no name", open, func(s *fleet.Signal) { s.Name = "" }, storage.ErrInvalid},
			{"a long name", open, func(s *fleet.Signal) { s.Name += "n" }, storage.ErrInvalid},
			{"a name with a control character", open, func(s *fleet.Signal) { s.Name = "a\x1b[2J" }, storage.ErrInvalid},
			{"a long key", open, func(s *fleet.Signal) { s.Key += "k" }, storage.ErrInvalid},
			{"a key that is no text", open, func(s *fleet.Signal) { s.Key = "\xff" }, storage.ErrInvalid},
			{"a long payload", open, func(s *fleet.Signal) { s.Payload = append(s.Payload, ' ') }, storage.ErrInvalid},
			{"no JSON", open, func(s *fleet.Signal) { s.Payload = json.RawMessage("{") }, storage.ErrInvalid},
			{"deep JSON", open, func(s *fleet.Signal) {
				s.Payload = json.RawMessage(strings.Repeat("[", 9_999) + strings.Repeat("]", 9_999))
			}, storage.ErrInvalid},
			{"a long reason", open, func(s *fleet.Signal) { s.By.Why += "w" }, storage.ErrInvalid},
			{"a final plan", final.ID, func(*fleet.Signal) {}, fleet.ErrNotRunning},
			{"an unknown plan", workflow.NewV7(), func(*fleet.Signal) {}, storage.ErrNotFound},
			{"no plan", uuid.Nil, func(*fleet.Signal) {}, storage.ErrNotFound},
		} {
			s := fit
			test.change(&s)
			fails(t, second(fleet.Send(t.Context(), p, test.plan, s)), test.want, "%s", test.name)
		}
		for number := 2; number < fleet.MaxSignals; number++ {
			must(t, second(p.PutNote(t.Context(), storage.Note{Name: fmt.Sprintf("signal-%x-%04d", open[:], number), Text: []byte(`{"name":"more"}`)})))
		}
		if n := send(t, p, open, fleet.Signal{Name: "the last"}); n != fleet.MaxSignals {
			t.Errorf("the last signal has number %d", n)
		}
		fails(t, second(fleet.Send(t.Context(), p, open, fleet.Signal{Name: "one too many"})), storage.ErrInvalid, "a signal too many")
		if got := len(signals(t, p, open, 0)); got != fleet.MaxSignals {
			t.Errorf("%d signals are stored", got)
		}
	})
}

// TestSignalsReachTheOwner: the owner hears of a signal within an interval, the next owner at once. Damaged signals keep no
// other one. The signals stay while the plan is open, and go after its end, whoever removes them.
func TestSignalsReachTheOwner(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		p, n := start(t, store, fleet.Options{})
		plan := claimed(t, p, n, 1)
		last, more := n.Signals(plan.ID)
		if last != 0 {
			t.Errorf("a new plan has signal %d", last)
		}
		send(t, p, plan.ID, fleet.Signal{Name: "first"})
		must(t, second(p.PutNote(t.Context(), storage.Note{Name: fmt.Sprintf("signal-%x-0002", plan.ID[:]), Text: []byte(`{"name":2}`)})))
		send(t, p, plan.ID, fleet.Signal{Name: "third"})
		select {
		case <-more:
		case <-time.After(10*time.Second + 1):
			t.Fatal("the owner heard of no signal within an interval")
		}
		if last, _ = n.Signals(plan.ID); last != 3 {
			t.Errorf("the owner knows of signal %d", last)
		}
		got, err := fleet.Signals(t.Context(), p, plan.ID, 0)
		if !errors.Is(err, storage.ErrCorrupt) || len(got) != 2 || got[1].Number != 3 {
			t.Errorf("beside a damaged signal: %v, %v", got, err)
		}
		_, more = n.Signals(plan.ID)
		time.Sleep(time.Hour)
		select {
		case <-more:
			t.Error("the owner heard of a signal that nobody sent")
		default:
		}
		if got, _ := fleet.Signals(t.Context(), p, plan.ID, 0); len(got) != 2 {
			t.Errorf("after an hour the plan has %v", got)
		}
		must(t, finish(t.Context(), p, plan))
		late := create(t, p, 1).ID
		send(t, p, late, fleet.Signal{Name: "late"})
		must(t, p.Delete(t.Context(), late))
		must(t, fleet.RemoveSignals(t.Context(), p, plan.ID))
		if r, _ := p.Roster(t.Context()); len(r.Notes) != 1 {
			t.Errorf("after RemoveSignals, the notes are %v", r.Notes)
		}
		time.Sleep(2 * time.Minute)
		if r, _ := p.Roster(t.Context()); len(r.Notes) != 0 {
			t.Errorf("after the end of both plans, the notes are %v", r.Notes)
		}
	})
}

// TestSignalsAreComparedSeldom: a plan that waits for months with a signal costs a few searches.
func TestSignalsAreComparedSeldom(t *testing.T) {
	efforttest.NotShort(t, "it counts the searches of a week")
	onStore(t, func(t *testing.T, store *memvault.Store) {
		p := open(store)
		plan := create(t, p, 1).ID
		send(t, p, plan, fleet.Signal{Name: "early"})
		join(t, p, fleet.Options{})
		searches := 0
		p.OnOp("Search", func(_ context.Context, _ processtest.Call, do func() error) error { searches++; return do() })
		time.Sleep(7 * 24 * time.Hour)
		if searches > 25 {
			t.Errorf("%d searches in a week", searches)
		}
		must(t, p.Delete(t.Context(), plan))
		time.Sleep(25 * time.Hour)
		if r, _ := p.Roster(t.Context()); len(r.Notes) != 0 {
			t.Errorf("the notes are %v", r.Notes)
		}
	})
}

// FuzzSignals: whatever notes a vault has, reading a plan's signals returns those that are some, and nothing else.
func FuzzSignals(f *testing.F) {
	plan := workflow.NewV7()
	f.Add(fmt.Sprintf("signal-%x-0001", plan[:]), `{"name":"a","payload":[1],"by":{"by":"x"},"key":"k"}`)
	f.Add(fmt.Sprintf("signal-%x-1", plan[:]), `{"name":"a"}`)
	f.Add(fmt.Sprintf("signal-%x-0001", plan[:]), `{"name":1}`)
	f.Add("signal-zz-0001", `{}`)
	f.Fuzz(func(t *testing.T, name, text string) {
		p := open(memvault.NewStore())
		if _, err := p.PutNote(t.Context(), storage.Note{Name: name, Text: []byte(text)}); err != nil {
			t.Skip()
		}
		got, err := fleet.Signals(t.Context(), p, plan, 0)
		for _, s := range got {
			if s.Name == "" || name != fmt.Sprintf("signal-%x-%04d", plan[:], s.Number) || s.By.At.IsZero() {
				t.Errorf("note %q is signal %+v", name, s)
			}
		}
		if err != nil && !errors.Is(err, storage.ErrCorrupt) {
			t.Errorf("note %q: %v", name, err)
		}
	})
}
