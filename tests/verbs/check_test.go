package verbs_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/audited"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/internal/settings"
	"github.com/planvault/azblob/internal/vaulttest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// remedy is the remedy that the comment of a ProblemKind recommends.
type remedy func(ctx context.Context, v *azblob.Vault, plan uuid.UUID) error

func recovers(ctx context.Context, v *azblob.Vault, _ uuid.UUID) error { return v.Recovery(ctx) }

func thorough(ctx context.Context, v *azblob.Vault, _ uuid.UUID) error {
	return vaulttest.ErrOf(v.Admin().Repair(audited.Mark(ctx), vaulttest.Thorough))
}

func deletes(ctx context.Context, v *azblob.Vault, plan uuid.UUID) error { return v.Delete(ctx, plan) }

// TestCheckFindsWhatIsBroken breaks each invariant in turn, and applies the documented remedy as soon as Check says that it
// works. Two seconds before, Recovery leaves alone what the problem is about.
func TestCheckFindsWhatIsBroken(t *testing.T) {
	efforttest.NotShort(t, "TestCheckBesideWork runs Check concurrently")
	var at time.Time
	var prepared vaulttest.Damaged
	var done *workflow.Plan
	vaulttest.InBubble(t, "preparation", func(t *testing.T, server *emulator.Server) {
		v := vaulttest.OnEmulator(t, server)
		prepared = vaulttest.DamagedOf(server, vaulttest.Created(t, v, plantest.Full()))
		done, _ = vaulttest.Final(t, vaulttest.WorldOf(server), plantest.Full())
		at = time.Now().Round(0)
	})
	container, plan := prepared.Container, prepared.Plan
	seq := plan.Blocks[0].Sequences[0]
	entry, object, marker := prepared.Name("entry"), prepared.Name("object"), prepared.Marker()
	nameOf := func(dir string, id uuid.UUID) string {
		return dir + "/" + plan.ID.String() + "/" + id.String() + ".json"
	}
	part, sequence := nameOf("actions", seq.Actions[0].ID), nameOf("sequences", seq.ID)
	nobody, older := workflow.NewV7At(at).String(), workflow.NewV7At(at.AddDate(0, 0, -3)).String()

	type breaks = func(s *emulator.Server)
	loses := func(name string) breaks { return func(s *emulator.Server) { s.Remove(container, name) } }
	gets := func(name string) breaks {
		return func(s *emulator.Server) { s.Put(container, name, []byte("{}"), map[string]string{"schema": "1"}) }
	}
	bare := func(name string) breaks {
		return func(s *emulator.Server) { s.Put(container, name, []byte("{}"), nil) }
	}
	theirs := func(name string) breaks {
		return func(s *emulator.Server) {
			s.Put(container, name, []byte(`{"type":1}`), map[string]string{"planid": plan.ID.String(), "state": `{"Status":1}`})
		}
	}
	body := func(name, before, after string) breaks {
		return func(s *emulator.Server) {
			b, _ := s.Blob(container, name)
			s.Put(container, name, []byte(strings.Replace(string(b.Body), before, after, 1)), b.Metadata)
		}
	}
	metadata := func(name, key, value string) breaks {
		return func(s *emulator.Server) {
			b, _ := s.Blob(container, name)
			b.Metadata[key] = value
			s.Put(container, name, b.Body, b.Metadata)
		}
	}
	setBack := func(role string) breaks {
		return func(s *emulator.Server) { vaulttest.RewriteStatus(s, container, done, role, "Running") }
	}
	for what, c := range map[string]struct {
		breaks breaks
		want   azblob.ProblemKind
		remedy remedy
	}{
		"nothing":                          {func(*emulator.Server) {}, "", nil},
		"the object is gone":               {loses(object), azblob.ProblemIncompletePlan, recovers},
		"the entry is gone":                {loses(entry), azblob.ProblemMissing, thorough},
		"markers of no plan":               {gets("open/" + nobody), azblob.ProblemIncompletePlan, recovers},
		"a sub-object is gone":             {loses(part), azblob.ProblemMissing, thorough},
		"a sub-object too many":            {gets(nameOf("blocks", workflow.NewV7())), azblob.ProblemOrphan, thorough},
		"sub-objects of no plan":           {gets("blocks/" + nobody + "/" + nobody + ".json"), azblob.ProblemOrphan, thorough},
		"an open plan without marker":      {loses(marker), azblob.ProblemUnmarked, thorough},
		"a final plan with a marker":       {gets("open/" + done.ID.String()), azblob.ProblemLeftMarker, recovers},
		"a delete marker":                  {gets(marker + "-delete"), azblob.ProblemLeftMarker, recovers},
		"a flipped bit":                    {func(s *emulator.Server) { s.Corrupt(container, part, func(b []byte) []byte { b[9] ^= 4; return b }) }, azblob.ProblemUnreadable, deletes},
		"a newer schema":                   {body(part, `"schema":1`, `"schema":9`), azblob.ProblemUnreadable, deletes},
		"another status in metadata":       {metadata(part, "state", `{"status":"Failed"}`), azblob.ProblemDisagreement, deletes},
		"other attempts in metadata":       {metadata(part, "attempts", "7"), azblob.ProblemDisagreement, deletes},
		"another name in metadata":         {metadata(entry, "name", "x"), azblob.ProblemDisagreement, deletes},
		"an object set back":               {setBack("object"), azblob.ProblemUnfinalized, thorough},
		"an entry set back":                {setBack("entry"), azblob.ProblemDisagreement, deletes},
		"an entry with other children":     {body(entry, plan.Blocks[0].ID.String(), plan.Blocks[1].ID.String()), azblob.ProblemDisagreement, deletes},
		"a sub-object with other children": {body(sequence, seq.Actions[0].ID.String(), nobody), azblob.ProblemDisagreement, deletes},
		"a foreign object":                 {theirs(object), azblob.ProblemForeign, nil},
		"a foreign entry":                  {theirs(entry), azblob.ProblemForeign, nil},
		"a foreign sub-object":             {body(part, `"schema":1,"type":"action"`, `"type":6`), azblob.ProblemForeign, nil},
		"a bare sub-object":                {bare(nameOf("blocks", workflow.NewV7())), azblob.ProblemStray, nil},
		"a bare sub-object of no plan":     {bare("blocks/" + nobody + "/" + nobody + ".json"), azblob.ProblemStray, nil},
		"a blob between":                   {gets("notes.txt"), azblob.ProblemStray, nil},
		"a blob before all":                {gets("0"), azblob.ProblemStray, nil},
		"a blob behind all":                {gets("zz/" + plan.ID.String()), azblob.ProblemStray, nil},
		"a strange name":                   {gets("plans/README"), azblob.ProblemStray, nil},
		"a plan of another day":            {gets("open/" + older), azblob.ProblemStray, nil},
	} {
		t.Run(what, func(t *testing.T) {
			vaulttest.InBubbleOf(t, prepared.Clone(), func(t *testing.T, server *emulator.Server) {
				time.Sleep(time.Until(at))
				vaulttest.Strict(t, server)
				v := vaulttest.OnEmulator(t, server)
				c.breaks(server)
				now, err := v.Admin().Check(t.Context(), azblob.CheckOptions{})
				if err != nil || now.InProgress == 0 && len(now.Problems) == 0 && c.want != "" || (now.InProgress > 0) != (now.Wait > 0) {
					t.Errorf("at once: %+v, %v", now, err)
				}
				time.Sleep(now.Wait)
				for _, p := range now.Problems {
					if p.Wait > 0 {
						time.Sleep(p.Wait - 2*time.Second)
						vaulttest.Must(t, thorough(t.Context(), v, plan.ID))
						time.Sleep(2 * time.Second)
					}
				}
				report, err := v.Admin().Check(t.Context(), azblob.CheckOptions{})
				vaulttest.Must(t, err)
				if n := vaulttest.Stored(server); report.Blobs != n {
					t.Errorf("%d blobs were looked at, %d are stored", report.Blobs, n)
				}
				if c.want == "" {
					if len(report.Problems) != 0 || report.Plans != 2 || report.Days != 1 || report.InProgress != 0 || report.Bytes == 0 {
						t.Errorf("%+v", report)
					}
					return
				}
				if len(report.Problems) != 1 || report.Problems[0].Kind != c.want || report.Problems[0].Detail == "" {
					t.Fatalf("want %q alone, got %v", c.want, report.Problems)
				}
				if c.remedy != nil {
					vaulttest.Should(t, c.remedy(t.Context(), v, report.Problems[0].Plan))
					vaulttest.Sound(t, v)
				}
			})
		})
	}
}

// TestCheckBesideADelete says that Recovery leaves a plan alone that a Delete may be at work on, whatever is wrong with it.
func TestCheckBesideADelete(t *testing.T) {
	vaulttest.InBubble(t, "lost", func(t *testing.T, server *emulator.Server) {
		v := vaulttest.OnEmulator(t, server)
		plan := vaulttest.Created(t, v, plantest.Small())
		d := vaulttest.DamagedOf(server, plan)
		server.Put(d.Container, d.Marker()+"-delete", nil, nil)
		server.Remove(d.Container, "blocks/"+plan.ID.String()+"/"+plan.Blocks[0].ID.String()+".json")
		missing := func() (list []azblob.Problem) {
			report, err := v.Admin().Check(t.Context(), azblob.CheckOptions{})
			vaulttest.Must(t, err)
			return slices.DeleteFunc(report.Problems, func(p azblob.Problem) bool { return p.Kind != azblob.ProblemMissing })
		}
		list := missing()
		if len(list) != 1 || list[0].Wait < 12*time.Minute {
			t.Fatalf("%+v", list)
		}
		vaulttest.Must(t, thorough(t.Context(), v, plan.ID))
		if now := missing(); len(now) != 1 {
			t.Errorf("it was repaired before %v", list[0].Wait)
		}
		time.Sleep(list[0].Wait)
		if now := missing(); len(now) != 1 || now[0].Wait != 0 {
			t.Errorf("%+v", now)
		}
		vaulttest.Must(t, thorough(t.Context(), v, plan.ID))
		vaulttest.Sound(t, v)
	})
}

// TestCheckBesideWork checks the store repeatedly while plans are created, run and deleted. Check finds
// nothing.
func TestCheckBesideWork(t *testing.T) {
	vaulttest.InBubbleOf(t, emulator.New(emulator.Options{Latency: 7 * time.Millisecond}), func(t *testing.T, server *emulator.Server) {
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
		now, today := time.Now(), storage.DayOf(time.Now())
		for i := range 5 {
			vaulttest.Must(t, v.Create(t.Context(), &workflow.Plan{ID: workflow.NewV7At(now.AddDate(0, 0, -i))}))
		}
		for want, o := range map[int]azblob.CheckOptions{
			5: {}, 2: {From: today.Add(-1)}, 3: {To: today.Add(-2)}, 1: {From: today.Add(-3), To: today.Add(-3)},
		} {
			if report, err := v.Admin().Check(t.Context(), o); err != nil || report.Days != want || report.Plans != want {
				t.Errorf("%+v: %+v, %v, want %d", o, report, err, want)
			}
		}
	})
}

func ExampleProblem_String() {
	fmt.Println(azblob.Problem{
		Kind: azblob.ProblemMissing, Plan: uuid.MustParse("019a0c3e-5c00-7000-8000-000000000001"),
		Blob: "prod-2025-10-22/actions/019a0c3e-5c00-7000-8000-000000000001/019a0c3e-5c00-7000-8000-000000000002.json", Detail: "the object has it",
	})
	// Output:
	// missing: plan 019a0c3e-5c00-7000-8000-000000000001 (prod-2025-10-22/actions/019a0c3e-5c00-7000-8000-000000000001/019a0c3e-5c00-7000-8000-000000000002.json): the object has it
}

// TestStraysOnAnyService checks a store on services that support startFrom and on older ones. Both find the
// same strays with the same number of requests. A thorough Repair reports them, and leaves them alone.
func TestStraysOnAnyService(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	strays := []string{"0", "blocks", "notes.txt", "plans.bak", "old/1", "old/2", "old/deeper/3", "zz/1"}
	for _, names := range [][]string{nil, strays} {
		vaulttest.InBubbleOf(t, emulator.New(emulator.Options{}), func(t *testing.T, server *emulator.Server) {
			v := vaulttest.OnEmulator(t, server)
			for range 30 {
				vaulttest.Created(t, v, vaulttest.EachKind())
			}
			for c := range server.Containers() {
				for _, name := range names {
					server.Put(c, name, []byte("hello"), nil)
				}
			}
			time.Sleep(vaulttest.PastGrace)
			check := func(v *azblob.Vault) (found []string, requests int) {
				server.ResetRequests()
				report, err := v.Admin().Check(t.Context(), azblob.CheckOptions{})
				vaulttest.Must(t, err)
				for _, p := range report.Problems {
					_, name, _ := strings.Cut(p.Blob, "/")
					found = append(found, string(p.Kind)+" "+name)
				}
				if n := vaulttest.Stored(server); report.Blobs != n || report.Plans != 30 {
					t.Errorf("%d blobs of %d plans were looked at, %d blobs are stored", report.Blobs, report.Plans, n)
				}
				slices.Sort(found)
				return found, len(server.Requests())
			}
			var want []string
			for _, name := range names {
				want = append(want, "stray "+name)
			}
			slices.Sort(want)
			untouched := vaulttest.Untouched(t, server)
			if report, err := v.Admin().Repair(audited.Mark(t.Context()), vaulttest.Thorough); err != nil || len(report.Strays) != len(names) || len(report.Plans) != 0 || report.Open != 30 {
				t.Errorf("a thorough Repair: %+v, %v", report, err)
			}
			untouched()
			now, requests := check(v)
			if !slices.Equal(now, want) {
				t.Errorf("found %v, want %v", now, want)
			}
			old, oldRequests := check(vaulttest.WithToken(t, server, settings.Over(vaulttest.Startless(server.Transport()))))
			if !slices.Equal(old, want) {
				t.Errorf("where startFrom is ignored: found %d problems, want %v", len(old), want)
			}
			if oldRequests != requests {
				t.Errorf("where startFrom is ignored: %d requests, else %d", oldRequests, requests)
			}
		})
	}
}

// TestListingsThatAreRefused refuses each listing of a Check and of a thorough Recover in turn, the later pages of a
// directory too. Neither takes the first page for everything.
func TestListingsThatAreRefused(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	vaulttest.InBubbleOf(t, emulator.New(emulator.Options{PageLimit: 3}), func(t *testing.T, server *emulator.Server) {
		for range 4 {
			vaulttest.Created(t, vaulttest.OnEmulator(t, server), plantest.Full())
		}
		server.Put(vaulttest.ContainerOf(time.Now().UTC()), "old/1", []byte("hello"), nil)
		time.Sleep(vaulttest.PastGrace)
		for name, call := range map[string]func(v *azblob.Vault) error{
			"Check": func(v *azblob.Vault) error {
				return vaulttest.ErrOf(v.Admin().Check(t.Context(), azblob.CheckOptions{}))
			},
			"a thorough Recover": func(v *azblob.Vault) error {
				return vaulttest.ErrOf(v.Admin().Repair(audited.Mark(t.Context()), azblob.RepairOptions{Thorough: true}))
			},
		} {
			all := emulator.On(emulator.ListBlobs).Do(emulator.Duplicate(0)) // harmless
			vaulttest.Must(t, call(vaulttest.Faulty(t, server, all)))
			if all.Seen() < 30 {
				t.Fatalf("%s: %d listings", name, all.Seen())
			}
			for n := range all.Seen() {
				v := vaulttest.Faulty(t, server, emulator.On(emulator.ListBlobs).Nth(n+1).Do(emulator.Answer(403, "AuthorizationFailure")))
				vaulttest.Fails(t, call(v), storage.ErrDenied)
			}
		}
	})
}
