package fleet_test

import (
	"bytes"
	"context"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/internal/processtest"
	"github.com/planvault/azblob/storage/memvault"
	"github.com/planvault/azblob/workflow"
)

// observeAll returns an observer that calls see with the name of each of its functions that is called.
func observeAll(see func(name string, ctx context.Context, event any)) (o fleet.Observer) {
	v := reflect.ValueOf(&o).Elem()
	for field, hook := range v.Fields() {
		hook.Set(reflect.MakeFunc(field.Type, func(args []reflect.Value) []reflect.Value {
			see(field.Name, args[0].Interface().(context.Context), args[1].Interface())
			return nil
		}))
	}
	return o
}

// TestObserver is the story of two nodes: A claims a plan and freezes, B removes A's record and takes the plan, and A
// wakes up and finds itself fenced. The store refuses what A writes.
func TestObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		seen := map[string][]any{} // by the node's name and that of the function
		observer := func(node string) fleet.Observer {
			return observeAll(func(name string, _ context.Context, event any) {
				mu.Lock()
				defer mu.Unlock()
				seen[node+" "+name] = append(seen[node+" "+name], event)
			})
		}
		store := memvault.NewStore()
		p, q := open(store), open(store)
		a := join(t, p, fleet.Options{Name: "a", Observer: observer("a")})
		plan := create(t, p, 1)
		claimed := within(t, plans(t.Context(), t, a), time.Minute)
		b := join(t, q, fleet.Options{Name: "b", Observer: observer("b")})
		found := plans(t.Context(), t, b)
		time.Sleep(11 * time.Second)
		q.Fail("Roster", processtest.Unavailable)
		time.Sleep(10 * time.Second)
		q.On(nil)
		p.Freeze()
		within(t, found, time.Minute)
		p.Thaw()
		refused(t, p, claimed)
		fails(t, second(a.Take(t.Context(), plan.ID)), fleet.ErrFenced, "the Take of a former owner")
		time.Sleep(11 * time.Second)

		mu.Lock()
		defer mu.Unlock()
		for name, want := range map[string]any{
			"a Claim":    fleet.ClaimEvent{Node: a.ID(), Plan: plan.ID, Epoch: 1},
			"b Takeover": fleet.TakeoverEvent{Node: b.ID(), Plan: plan.ID, From: a.ID(), Epoch: 2, Rounds: 1},
			"a Fenced":   fleet.FencedEvent{Node: a.ID()},
		} {
			if got := seen[name]; !slices.Equal(got, []any{want}) {
				t.Errorf("%s: %+v, want %+v", name, got, want)
			}
		}
		if got := seen["b Removal"]; len(got) != 1 || got[0].(fleet.RemovalEvent).Node != b.ID() || got[0].(fleet.RemovalEvent).Member.ID != a.ID() {
			t.Errorf("b removed %+v", got)
		}
		if got := seen["b Failure"]; len(got) == 0 || got[0].(fleet.FailureEvent).Node != b.ID() || got[0].(fleet.FailureEvent).Doing == "" || got[0].(fleet.FailureEvent).Err == nil {
			t.Errorf("b's failures: %+v", got)
		}
		frozen := func(e any) bool { // this one returned when a was thawed
			beat := e.(fleet.HeartbeatEvent)
			return beat.Node == a.ID() && beat.Err != nil && beat.Duration > 20*time.Second
		}
		if beats := seen["a Heartbeat"]; !slices.ContainsFunc(beats, frozen) || beats[0].(fleet.HeartbeatEvent).Err != nil {
			t.Errorf("a's heartbeats: %+v", beats)
		}
		for _, name := range []string{"a Claim", "a Heartbeat", "a Fenced", "a Failure", "b Heartbeat", "b Takeover", "b Removal", "b Failure", "a Gauges", "b Gauges"} {
			delete(seen, name)
		}
		if len(seen) > 0 {
			t.Errorf("unexpected: %+v", seen)
		}
	})
}

type contextKey struct{}

// TestTee calls each function of a Tee with a log, and checks that everybody gets the event and its context.
func TestTee(t *testing.T) {
	ctx := context.WithValue(t.Context(), contextKey{}, true)
	var order []string
	note := func(who string) fleet.Observer {
		return observeAll(func(name string, got context.Context, _ any) {
			if got != ctx {
				t.Errorf("%s of %s has another context", name, who)
			}
			order = append(order, who+name)
		})
	}
	var text bytes.Buffer
	tee := fleet.Tee(note("1"), fleet.Observer{}, note("2"), fleet.LogObserver(slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelDebug}))))
	node, plan := uuid.UUID(workflow.NewV7()), plantest.Small()
	for field, hook := range reflect.ValueOf(tee).Fields() {
		order = nil
		text.Reset()
		event := reflect.New(field.Type.In(1)).Elem()
		for name, value := range event.Fields() {
			switch name.Name {
			case "Node":
				value.Set(reflect.ValueOf(node))
			case "Plan":
				value.Set(reflect.ValueOf(plan.ID))
			case "Err":
				value.Set(reflect.ValueOf(processtest.Unavailable("RenewMember")))
			}
		}
		hook.Call([]reflect.Value{reflect.ValueOf(ctx), event})
		if want := []string{"1" + field.Name, "2" + field.Name}; !slices.Equal(order, want) {
			t.Errorf("%s: called were %q, want %q", field.Name, order, want)
		}
		line := text.String()
		if strings.Count(line, "\n") != 1 || !strings.Contains(line, "msg="+strings.ToLower(field.Name)+" node="+node.String()) {
			t.Errorf("%s: logged is %q", field.Name, line)
		}
		level := map[string]string{"Claim": "INFO", "Fenced": "ERROR", "Gauges": "DEBUG"}
		if want := level[field.Name]; want == "" && !strings.Contains(line, "level=WARN") || !strings.Contains(line, "level="+want) {
			t.Errorf("%s: logged is %q", field.Name, line)
		}
	}
	if fleet.Tee(fleet.Observer{}).Gauges != nil {
		t.Error("nobody wants gauges, and a node would look for them")
	}
	text.Reset()
	tee.Heartbeat(ctx, fleet.HeartbeatEvent{Node: node})
	if !strings.Contains(text.String(), "level=DEBUG") {
		t.Errorf("a heartbeat is logged as %q", text.String())
	}
}
