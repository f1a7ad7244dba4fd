package verbs_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"

	"github.com/planvault/azblob/tests/vaulttest"
)

// remedy is the remedy that the comment of a ProblemKind recommends.
type remedy func(ctx context.Context, v *azblob.Vault, plan uuid.UUID) error

func recovers(ctx context.Context, v *azblob.Vault, _ uuid.UUID) error { return v.Recovery(ctx) }

func thorough(ctx context.Context, v *azblob.Vault, _ uuid.UUID) error {
	_, err := v.Repair(ctx, vaulttest.Thorough)
	return err
}

func deletes(ctx context.Context, v *azblob.Vault, plan uuid.UUID) error { return v.Delete(ctx, plan) }

// TestCheckFindsWhatIsBroken breaks each invariant in turn, and then applies the documented remedy.
func TestCheckFindsWhatIsBroken(t *testing.T) {
	efforttest.NotShort(t, "TestCheckBesideWork runs Check concurrently")
	type store struct {
		*emulator.Server
		container  string
		plan, done *workflow.Plan
	}
	var at time.Time
	var prepared store
	vaulttest.InBubble(t, "preparation", func(t *testing.T, server *emulator.Server) {
		v := vaulttest.OnEmulator(t, server)
		prepared = store{Server: server, plan: vaulttest.Created(t, v, plantest.Full())}
		_, prepared.done = vaulttest.Running(t, v, plantest.Full())
		vaulttest.Must(t, v.UpdatePlan(t.Context(), prepared.done))
		for prepared.container = range server.Containers() {
		}
		at = time.Now().Round(0)
	})
	name := func(s store, role string) string { return "plans/" + s.plan.ID.String() + "-" + role + ".json" }
	part := func(s store) string {
		return "actions/" + s.plan.ID.String() + "/" + s.plan.Blocks[0].Sequences[0].Actions[0].ID.String() + ".json"
	}
	rewrite := func(s store, blob string, body func(string) string, metadata func(map[string]string)) {
		b, ok := s.Blob(s.container, blob)
		if !ok {
			t.Fatalf("there is no %s", blob)
		}
		metadata(b.Metadata)
		s.Put(s.container, blob, []byte(body(string(b.Body))), b.Metadata)
	}
	as := func(s string) string { return s }
	nothing := func(map[string]string) {}
	for what, c := range map[string]struct {
		breaks func(s store)
		want   azblob.ProblemKind
		remedy remedy
	}{
		"nothing":              {func(store) {}, "", nil},
		"the object is gone":   {func(s store) { s.Remove(s.container, name(s, "object")) }, azblob.IncompletePlan, recovers},
		"the entry is gone":    {func(s store) { s.Remove(s.container, name(s, "entry")) }, azblob.Missing, thorough},
		"markers of no plan":   {func(s store) { s.Put(s.container, "open/"+vaulttest.IDAt(time.Now()).String(), nil, nil) }, azblob.IncompletePlan, recovers},
		"a sub-object is gone": {func(s store) { s.Remove(s.container, part(s)) }, azblob.Missing, thorough},
		"a sub-object too many": {func(s store) {
			s.Put(s.container, "blocks/"+s.plan.ID.String()+"/"+workflow.NewV7().String()+".json", []byte("{}"), nil)
		}, azblob.Orphan, thorough},
		"sub-objects of no plan": {func(s store) {
			id := vaulttest.IDAt(time.Now()).String()
			s.Put(s.container, "blocks/"+id+"/"+id+".json", []byte("{}"), nil)
		}, azblob.Orphan, thorough},
		"an open plan without marker": {func(s store) { s.Remove(s.container, "open/"+s.plan.ID.String()) }, azblob.Unmarked, thorough},
		"a final plan with a marker":  {func(s store) { s.Put(s.container, "open/"+s.done.ID.String(), nil, nil) }, azblob.LeftMarker, recovers},
		"a delete marker":             {func(s store) { s.Put(s.container, "open/"+s.plan.ID.String()+"-delete", nil, nil) }, azblob.LeftMarker, recovers},
		"a flipped bit":               {func(s store) { s.Corrupt(s.container, part(s), func(b []byte) []byte { b[9] ^= 4; return b }) }, azblob.Unreadable, deletes},
		"a newer schema": {func(s store) {
			rewrite(s, part(s), func(b string) string { return strings.Replace(b, `"schema":1`, `"schema":9`, 1) }, nothing)
		}, azblob.Unreadable, deletes},
		"another status in metadata": {func(s store) {
			rewrite(s, part(s), as, func(m map[string]string) { m["state"] = `{"status":"Failed"}` })
		}, azblob.Disagreement, deletes},
		"other attempts in metadata": {func(s store) { rewrite(s, part(s), as, func(m map[string]string) { m["attempts"] = "7" }) }, azblob.Disagreement, deletes},
		"another name in metadata":   {func(s store) { rewrite(s, name(s, "entry"), as, func(m map[string]string) { m["name"] = "x" }) }, azblob.Disagreement, deletes},
		"an object set back":         {func(s store) { vaulttest.RewriteStatus(s.Server, s.container, s.done, "object", "Running") }, azblob.Unfinalized, thorough},
		"an entry set back":          {func(s store) { vaulttest.RewriteStatus(s.Server, s.container, s.done, "entry", "Running") }, azblob.Disagreement, deletes},
		"an entry with other children": {func(s store) {
			rewrite(s, name(s, "entry"), func(b string) string {
				return strings.Replace(b, s.plan.Blocks[0].ID.String(), s.plan.Blocks[1].ID.String(), 1)
			}, nothing)
		}, azblob.Disagreement, deletes},
		"a sub-object with other children": {func(s store) {
			seq := s.plan.Blocks[0].Sequences[0]
			rewrite(s, "sequences/"+s.plan.ID.String()+"/"+seq.ID.String()+".json", func(b string) string {
				return strings.Replace(b, seq.Actions[0].ID.String(), workflow.NewV7().String(), 1)
			}, nothing)
		}, azblob.Disagreement, deletes},
		"a blob between":    {func(s store) { s.Put(s.container, "notes.txt", []byte("hello"), nil) }, azblob.Stray, nil},
		"a blob before all": {func(s store) { s.Put(s.container, "0", []byte("hello"), nil) }, azblob.Stray, nil},
		"a blob behind all": {func(s store) { s.Put(s.container, "zz/"+s.plan.ID.String(), []byte("hello"), nil) }, azblob.Stray, nil},
		"a strange name":    {func(s store) { s.Put(s.container, "plans/README", []byte("hello"), nil) }, azblob.Stray, nil},
		"a plan of another day": {func(s store) {
			s.Put(s.container, "open/"+vaulttest.IDAt(time.Now().AddDate(0, 0, -3)).String(), nil, nil)
		}, azblob.Stray, nil},
	} {
		t.Run(what, func(t *testing.T) {
			vaulttest.InBubbleOf(t, prepared.Clone(), func(t *testing.T, server *emulator.Server) {
				time.Sleep(time.Until(at))
				vaulttest.Strict(t, server)
				v := vaulttest.OnEmulator(t, server)
				s := prepared
				s.Server = server
				c.breaks(s)
				if now, err := v.Check(t.Context(), azblob.CheckOptions{}); err != nil || now.InProgress == 0 && len(now.Problems) == 0 && c.want != "" {
					t.Errorf("at once: %+v, %v", now, err)
				}
				time.Sleep(vaulttest.PastGrace)
				report, err := v.Check(t.Context(), azblob.CheckOptions{})
				vaulttest.Must(t, err)
				if c.want == "" {
					if len(report.Problems) != 0 || report.Plans != 2 || report.Days != 1 || report.InProgress != 0 || report.Blobs != vaulttest.Stored(server) || report.Bytes == 0 {
						t.Errorf("%+v; %d blobs are stored", report, vaulttest.Stored(server))
					}
					return
				}
				if len(report.Problems) != 1 || report.Problems[0].Kind != c.want || report.Problems[0].Detail == "" {
					t.Errorf("want %q alone, got %v", c.want, report.Problems)
				}
				if n := vaulttest.Stored(server); report.Blobs != n {
					t.Errorf("%d blobs were looked at, %d are stored", report.Blobs, n)
				}
				if c.remedy == nil {
					return
				}
				if err := c.remedy(t.Context(), v, report.Problems[0].Plan); err != nil {
					t.Errorf("the remedy: %v", err)
				}
				vaulttest.Sound(t, v)
			})
		})
	}
}

// TestCheckBesideWork checks the store repeatedly while plans are created, run and deleted. Check finds
// nothing.
func TestCheckBesideWork(t *testing.T) {
	vaulttest.InBubbleOf(t, emulator.New(emulator.WithLatency(7*time.Millisecond)), func(t *testing.T, server *emulator.Server) {
		var wg sync.WaitGroup
		done := make(chan struct{})
		wg.Go(func() {
			defer close(done)
			v := vaulttest.OnEmulator(t, server)
			for range 5 {
				_, plan := vaulttest.Running(t, v, plantest.Small())
				vaulttest.Should(t, v.UpdatePlan(t.Context(), plan))
				vaulttest.Should(t, v.Delete(t.Context(), plan.ID))
			}
		})
		v := vaulttest.OnEmulator(t, server)
		for n := 0; ; n++ {
			vaulttest.Sound(t, v)
			select {
			case <-done:
				wg.Wait()
				if n < 3 {
					t.Errorf("only %d checks ran", n)
				}
				return
			default:
			}
		}
	})
}

func TestCheckChoosesDays(t *testing.T) {
	vaulttest.InBubble(t, "by time", func(t *testing.T, server *emulator.Server) {
		v := vaulttest.OnEmulator(t, server)
		now := time.Now().UTC()
		for i := range 5 {
			vaulttest.Must(t, v.Create(t.Context(), &workflow.Plan{ID: vaulttest.IDAt(now.AddDate(0, 0, -i))}))
		}
		for want, o := range map[int]azblob.CheckOptions{
			5: {}, 2: {After: now.AddDate(0, 0, -1)}, 3: {Before: now.AddDate(0, 0, -1)}, 1: {After: now.AddDate(0, 0, -3), Before: now.AddDate(0, 0, -2)},
		} {
			if report, err := v.Check(t.Context(), o); err != nil || report.Days != want || report.Plans != want {
				t.Errorf("%+v: %+v, %v, want %d", o, report, err, want)
			}
		}
	})
}

func ExampleProblem_String() {
	fmt.Println(azblob.Problem{
		Kind: azblob.Missing, Plan: uuid.MustParse("019a0c3e-5c00-7000-8000-000000000001"),
		Blob: "prod-2025-10-22/actions/019a0c3e-5c00-7000-8000-000000000001/019a0c3e-5c00-7000-8000-000000000002.json", Detail: "the object has it",
	})
	// Output:
	// missing: plan 019a0c3e-5c00-7000-8000-000000000001 (prod-2025-10-22/actions/019a0c3e-5c00-7000-8000-000000000001/019a0c3e-5c00-7000-8000-000000000002.json): the object has it
}
