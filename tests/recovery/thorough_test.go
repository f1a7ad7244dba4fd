package recovery_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/audited"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/internal/vaulttest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// atOne prepares a plan that is Running with only its first action changed.
func atOne(t *testing.T, w vaulttest.World, plan *workflow.Plan) (about, shown *workflow.Plan) {
	t.Helper()
	v := w.Vault(t)
	plan = vaulttest.Created(t, v, plan)
	plan.State.Status = workflow.Running
	action := plan.Blocks[0].Sequences[0].Actions[0]
	action.State.Status, action.State.Start = workflow.Running, time.Now()
	for _, o := range []workflow.Object{plan, action} {
		vaulttest.Must(t, storage.Update(t.Context(), v, o))
	}
	return plan, plan
}

// TestThoroughRecovery damages a plan from outside. A thorough Repair repairs what it can, and the default
// one leaves the damage alone. Neither changes anything in a dry run, or while a writer may be at work.
func TestThoroughRecovery(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	shownAs := func(status workflow.Status) func(*testing.T, *azblob.Vault, *workflow.Plan) {
		return func(t *testing.T, v *azblob.Vault, plan *workflow.Plan) {
			t.Helper()
			plan.State.Status = status
			vaulttest.Same(t, v, plan)
			open := vaulttest.Collect(t, v, storage.Filters{ByStatus: []workflow.Status{workflow.NotStarted, workflow.Running}})
			if (len(open) == 1) == status.Final() {
				t.Errorf("%d plans are open", len(open))
			}
		}
	}
	gone := func(t *testing.T, v *azblob.Vault, plan *workflow.Plan) {
		t.Helper()
		if report := vaulttest.Sound(t, v); report.Blobs != 0 {
			t.Errorf("%d blobs are left", report.Blobs)
		}
	}
	partsNotStarted := func(t *testing.T, v *azblob.Vault, plan *workflow.Plan) {
		t.Helper()
		got := vaulttest.Reread(t, v, plan)
		if got.State.Status != workflow.Running {
			t.Errorf("the plan is %s", got.State.Status)
		}
		for o, parent := range workflow.Walk(got) {
			if parent != nil && o.Header().State.Status != workflow.NotStarted {
				t.Errorf("%s is %s", o.Kind(), o.Header().State.Status)
			}
		}
	}
	for what, c := range map[string]struct {
		in     vaulttest.State
		damage func(d vaulttest.Damaged)
		did    string // by a thorough Repair
		blind  bool   // the default one does not come across it
		young  bool   // it waits for grace period and margin
		then   func(t *testing.T, v *azblob.Vault, plan *workflow.Plan)
	}{
		"marker of a plan not started":      {vaulttest.NotStarted, func(d vaulttest.Damaged) { d.Lose(d.Marker()) }, "restored the marker", true, false, shownAs(workflow.NotStarted)},
		"marker of a running plan":          {atOne, func(d vaulttest.Damaged) { d.Lose(d.Marker()) }, "restored the marker", true, false, shownAs(workflow.Running)},
		"entry of a plan not started":       {vaulttest.NotStarted, func(d vaulttest.Damaged) { d.Lose(d.Name("entry")) }, "restored the entry from the object, as Running", false, true, shownAs(workflow.Running)},
		"entry of a running plan":           {atOne, func(d vaulttest.Damaged) { d.Lose(d.Name("entry")) }, "restored the entry from the object, as Running", false, true, shownAs(workflow.Running)},
		"entry of a final plan":             {vaulttest.Final, func(d vaulttest.Damaged) { d.Lose(d.Name("entry")) }, "restored the entry from the object, as Completed", true, true, shownAs(workflow.Completed)},
		"sub-objects of a plan not started": {vaulttest.NotStarted, func(d vaulttest.Damaged) { d.Lose(d.Parts()...) }, "rewrote them from the object", true, false, shownAs(workflow.NotStarted)},
		"sub-objects of a running plan":     {atOne, func(d vaulttest.Damaged) { d.Lose(d.Parts()...) }, "they may run again", true, false, partsNotStarted},
		"sub-objects of a final plan":       {vaulttest.Final, func(d vaulttest.Damaged) { d.Lose(d.Parts()...) }, "rewrote them from the object", true, false, shownAs(workflow.Completed)},
		"entry and a sub-object":            {atOne, func(d vaulttest.Damaged) { d.Lose(d.Name("entry"), d.Parts()[0]) }, "restored the entry", false, true, nil},
		"a sub-object of a plan that was being completed": {vaulttest.CompletionBroken(emulator.PutBlob, "-object.json"), func(d vaulttest.Damaged) { d.Lose(d.Parts()[0]) }, "rewrote them from the object", false, false, func(t *testing.T, v *azblob.Vault, plan *workflow.Plan) {
			t.Helper()
			if got := vaulttest.Reread(t, v, plan); !got.State.Status.Final() {
				t.Errorf("the plan is %s", got.State.Status)
			}
		}},
		"all but a sub-object": {vaulttest.NotStarted, func(d vaulttest.Damaged) {
			d.Lose(append(d.Parts()[1:], d.Marker(), d.Name("entry"), d.Name("object"))...)
		}, "removed what was left", true, true, gone},
		"object and marker": {vaulttest.NotStarted, func(d vaulttest.Damaged) { d.Lose(d.Marker(), d.Name("object")) }, "removed what was left", true, true, gone},
		"nothing, and a sub-object too many": {atOne, func(d vaulttest.Damaged) {
			d.Put(d.Container, "blocks/"+d.Plan.ID.String()+"/"+workflow.NewV7().String()+".json", []byte("{}"), map[string]string{"schema": "1"})
		}, "removed them", true, true, shownAs(workflow.Running)},
	} {
		vaulttest.InBubble(t, what, func(t *testing.T, server *emulator.Server) {
			plan, _ := c.in(t, vaulttest.WorldOf(server), vaulttest.EachKind())
			d := vaulttest.DamagedOf(server, plan)
			c.damage(d)
			v := vaulttest.OnEmulator(t, server)
			untouched := func(o azblob.RepairOptions, found bool) {
				t.Helper()
				check := vaulttest.Untouched(t, server)
				report, _ := v.Admin().Repair(audited.Mark(t.Context()), o)
				check()
				if (len(report.Plans) > 0) != found {
					t.Errorf("%+v: %+v", o, report)
				}
			}
			untouched(azblob.RepairOptions{Thorough: true, DryRun: true}, !c.young)
			if c.young {
				untouched(azblob.RepairOptions{Thorough: true}, false)
			}
			time.Sleep(vaulttest.PastGrace)
			untouched(azblob.RepairOptions{}, !c.blind)
			untouched(azblob.RepairOptions{Thorough: true, DryRun: true}, true)

			report, err := v.Admin().Repair(audited.Mark(t.Context()), vaulttest.Thorough)
			said := func(p azblob.RepairedPlan) bool { return strings.Contains(p.Did, c.did) }
			if err != nil || !slices.ContainsFunc(report.Plans, said) {
				t.Errorf("it did not say %q: %+v, %v", c.did, report, err)
			}
			if c.then != nil {
				c.then(t, v, d.Plan)
			}
			vaulttest.Sound(t, v)
			untouched(azblob.RepairOptions{Thorough: true}, false)
		})
	}
}

// TestRecoveryLeavesLossesAlone removes blobs of a plan. No crash of a vault leaves that, so
// Recovery leaves the other blobs, and its error names the remedy, which works.
func TestRecoveryLeavesLossesAlone(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	entry := func(d vaulttest.Damaged) []string { return []string{d.Name("entry")} }
	object := func(d vaulttest.Damaged) []string { return []string{d.Name("object")} }
	restored := func(t *testing.T, v *azblob.Vault, d vaulttest.Damaged, _ []emulator.Blob) {
		vaulttest.Should(t, vaulttest.ErrOf(v.Admin().Repair(audited.Mark(t.Context()), vaulttest.Thorough)))
		d.Plan.State.Status = workflow.Running // nobody can know better
		vaulttest.Same(t, v, d.Plan)
		vaulttest.Sound(t, v)
	}
	for name, c := range map[string]struct {
		in       vaulttest.State
		loses    func(d vaulttest.Damaged) []string
		thorough bool // Recovery
		says     string
		remedy   func(t *testing.T, v *azblob.Vault, d vaulttest.Damaged, lost []emulator.Blob)
	}{
		"entry, not started": {vaulttest.NotStarted, entry, false, "a thorough Repair restores it", restored},
		"entry, running":     {vaulttest.AtWork, entry, false, "a thorough Repair restores it", restored},
		"object":             {vaulttest.AtWork, object, true, "restore the blob from a backup, or Delete the plan", fromBackup},
	} {
		vaulttest.InBubble(t, name, func(t *testing.T, server *emulator.Server) {
			plan, _ := c.in(t, vaulttest.WorldOf(server), plantest.Full())
			d := vaulttest.DamagedOf(server, plan)
			var lost []emulator.Blob
			for _, name := range c.loses(d) {
				b, _ := d.Blob(d.Container, name)
				lost = append(lost, b)
				d.Lose(name)
			}
			time.Sleep(vaulttest.PastGrace)
			v := vaulttest.OnEmulator(t, server)
			for _, thorough := range slices.Compact([]bool{false, c.thorough}) {
				leavesAlone(t, server, v, azblob.RepairOptions{Thorough: thorough}, storage.ErrCorrupt, c.says)
			}
			untouched := vaulttest.Untouched(t, server)
			vaulttest.Fails(t, v.Create(t.Context(), vaulttest.CopyOf(plan)), storage.ErrConflict)
			untouched()
			c.remedy(t, v, d, lost)
		})
	}
	vaulttest.InBubble(t, "entry, where nothing may be written", func(t *testing.T, server *emulator.Server) {
		plan, _ := vaulttest.AtWork(t, vaulttest.WorldOf(server), plantest.Full())
		d := vaulttest.DamagedOf(server, plan)
		d.Lose(d.Name("entry"))
		time.Sleep(vaulttest.PastGrace)
		denied := vaulttest.Faulty(t, server, emulator.On(emulator.PutBlob).Do(vaulttest.Denied))
		leavesAlone(t, server, denied, vaulttest.Thorough, storage.ErrDenied, "")
	})
	vaulttest.InBubble(t, "a sub-object", func(t *testing.T, server *emulator.Server) {
		plan, _ := vaulttest.AtWork(t, vaulttest.WorldOf(server), plantest.Full())
		d := vaulttest.DamagedOf(server, plan)
		d.Lose(d.Parts()[0])
		v := vaulttest.OnEmulator(t, server)
		if _, err := v.Read(t.Context(), plan.ID); !errors.Is(err, storage.ErrCorrupt) || !strings.Contains(err.Error(), "a thorough Repair restores it") {
			t.Errorf("Read: %v", err)
		}
		vaulttest.Should(t, vaulttest.ErrOf(v.Admin().Repair(audited.Mark(t.Context()), vaulttest.Thorough)))
		vaulttest.Reread(t, v, plan)
	})
}

// leavesAlone runs a Recovery that reports one plan, and changes nothing.
func leavesAlone(t *testing.T, server *emulator.Server, v *azblob.Vault, o azblob.RepairOptions, want error, says string) {
	t.Helper()
	untouched := vaulttest.Untouched(t, server)
	report, err := v.Admin().Repair(audited.Mark(t.Context()), o)
	if !errors.Is(err, want) || !strings.HasSuffix(err.Error(), says) || len(report.Plans) != 1 || report.Plans[0].Err == nil || report.Plans[0].Did != "" {
		t.Errorf("%+v, %v", report, err)
	}
	untouched()
}

// fromBackup restores blobs as they were.
func fromBackup(t *testing.T, v *azblob.Vault, d vaulttest.Damaged, lost []emulator.Blob) {
	for _, b := range lost {
		d.Restore(d.Container, b)
	}
	vaulttest.Settled(t, v)
	vaulttest.Same(t, v, d.Plan)
}

// TestRecoveryReadsWhatItCompletes gives Recovery an entry, or an object beside an entry that was set back, whose metadata says
// Completed and whose content says Running. Recovery reports it, and touches nothing.
func TestRecoveryReadsWhatItCompletes(t *testing.T) {
	for role, c := range map[string]struct {
		in vaulttest.State
		o  azblob.RepairOptions
	}{
		"entry":  {vaulttest.CompletionBroken(emulator.PutBlob, "-object.json"), azblob.RepairOptions{}},
		"object": {vaulttest.Final, vaulttest.Thorough},
	} {
		vaulttest.InBubble(t, role, func(t *testing.T, server *emulator.Server) {
			plan, _ := c.in(t, vaulttest.WorldOf(server), plantest.Small())
			d := vaulttest.DamagedOf(server, plan)
			var backups []emulator.Blob
			for _, role := range slices.Compact([]string{"entry", role}) {
				b, _ := d.Blob(d.Container, d.Name(role))
				backups = append(backups, b)
				vaulttest.RewriteStatus(server, d.Container, plan, role, "Running")
			}
			b, _ := d.Blob(d.Container, d.Name(role))
			server.Put(d.Container, b.Name, b.Body, backups[len(backups)-1].Metadata)
			time.Sleep(vaulttest.PastGrace)
			v := vaulttest.OnEmulator(t, server)
			leavesAlone(t, server, v, c.o, storage.ErrCorrupt, "restore the blob from a backup")
			fromBackup(t, v, d, backups)
		})
	}
}

// TestRecoveryLeavesANewerObjectAlone puts an old delete marker on a plan that newer code wrote.
func TestRecoveryLeavesANewerObjectAlone(t *testing.T) {
	vaulttest.InBubble(t, "with a delete marker", func(t *testing.T, server *emulator.Server) {
		plan, _ := vaulttest.NotStarted(t, vaulttest.WorldOf(server), plantest.Small())
		d := vaulttest.DamagedOf(server, plan)
		b, _ := d.Blob(d.Container, d.Name("object"))
		server.Put(d.Container, b.Name, []byte(strings.Replace(string(b.Body), `"schema":1`, `"schema":4`, 1)), b.Metadata)
		server.Put(d.Container, d.Marker()+"-delete", nil, nil)
		time.Sleep(vaulttest.PastGrace)
		leavesAlone(t, server, vaulttest.OnEmulator(t, server), azblob.RepairOptions{}, storage.ErrSchema, "")
	})
}

// TestThoroughRecoveryBesideWork runs while plans are created, completed and deleted. It repairs nothing,
// because nothing is wrong.
func TestThoroughRecoveryBesideWork(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	vaulttest.BeforeEach(t, "a thorough Repair", func(t *testing.T, server *emulator.Server, at *vaulttest.NthRequest) {
		v := vaulttest.OnEmulator(t, server)
		_, ending := vaulttest.Running(t, v, plantest.Small())
		doomed := vaulttest.Created(t, v, plantest.Small())
		recovering := at.Vault(t, server, func() {
			vaulttest.Should(t, errors.Join(v.UpdatePlan(t.Context(), ending), v.Delete(t.Context(), doomed.ID), v.Create(t.Context(), plantest.Small())))
		})
		report, err := recovering.Admin().Repair(audited.Mark(t.Context()), vaulttest.Thorough)
		if err != nil || len(report.Plans) != 0 {
			t.Errorf("%+v, %v", report, err)
		}
		vaulttest.Settled(t, v)
		if at.Came() {
			vaulttest.Same(t, v, ending)
		}
	})
}

// TestRestoredEntryBesideOthers deletes a plan whose entry was lost, at each request of the
// Recovery that restores it. Afterwards the plan is gone, also if the Delete dies.
func TestRestoredEntryBesideOthers(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	for _, dies := range []bool{false, true} {
		vaulttest.BeforeEach(t, fmt.Sprint("dies ", dies), func(t *testing.T, server *emulator.Server, at *vaulttest.NthRequest) {
			v := vaulttest.OnEmulator(t, server)
			_, plan := vaulttest.Running(t, v, plantest.Small())
			d := vaulttest.DamagedOf(server, plan)
			d.Lose(d.Name("entry"))
			time.Sleep(vaulttest.PastGrace)
			_, err := at.Vault(t, server, func() {
				if dies {
					vaulttest.Dies(t, server, emulator.On(emulator.BatchDelete).Path("open/"), func(v *azblob.Vault) { _ = v.Delete(t.Context(), plan.ID) })
				} else {
					vaulttest.Should(t, v.Delete(t.Context(), plan.ID))
				}
			}).Admin().Repair(audited.Mark(t.Context()), vaulttest.Thorough)
			vaulttest.Should(t, err)
			vaulttest.Settled(t, v)
			if at.Came() {
				vaulttest.Empty(t, server)
			}
		})
	}
}

// TestTakenMarkerIsNobodysAlone lets a Create take over another Create's marker with a lost answer and a
// false 404. Its undo leaves the marker to the first Create.
func TestTakenMarkerIsNobodysAlone(t *testing.T) {
	vaulttest.InBubble(t, "all", func(t *testing.T, server *emulator.Server) {
		plan := plantest.Small()
		driver.Complete(plan)
		over := func(r emulator.Request) bool { return strings.HasPrefix(r.Blob, "open/") && r.IfMatch != "" }
		second := vaulttest.Faulty(t, server,
			emulator.On(emulator.PutBlob).Where(over).Nth(1).Do(emulator.LostAnswer()),
			emulator.On(emulator.PutBlob).Where(over).Nth(2).Do(emulator.Answer(412, "ConditionNotMet")),
			emulator.On(emulator.HeadBlob).Path("open/").Nth(3).Do(vaulttest.Absences[0]),
			emulator.On(emulator.PutBlob).Path("actions/").Do(vaulttest.Denied))
		first := vaulttest.Meanwhile(t, server, emulator.PutBlob, "-entry.json", func() {
			other := plantest.Small()
			other.ID = plan.ID
			vaulttest.Fails(t, second.Create(t.Context(), other), storage.ErrDenied)
		})
		vaulttest.Must(t, first.Create(t.Context(), plan))
		vaulttest.Sound(t, first)
		vaulttest.Same(t, first, plan)
	})
}

// TestRewrittenPartsAreUpdated loses sub-objects of a plan that has not started, and lets a thorough Repair
// rewrite them. Updates accept the versions that a Read returns afterwards. The same holds after a Recovery
// that died at one of its writes, or that worked beside another, once the next one has run.
func TestRewrittenPartsAreUpdated(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	dies := func(rule *emulator.Rule) func(t *testing.T, server *emulator.Server) {
		return func(t *testing.T, server *emulator.Server) {
			vaulttest.Fails(t, vaulttest.ErrOf(vaulttest.Faulty(t, server, rule.Do(vaulttest.Denied)).Admin().Repair(audited.Mark(t.Context()), vaulttest.Thorough)), storage.ErrDenied)
		}
	}
	for what, first := range map[string]func(t *testing.T, server *emulator.Server){
		"by one": func(*testing.T, *emulator.Server) {},
		"by one that dies at its second sub-object": dies(emulator.On(emulator.PutBlob).Nth(2)),
		"by two that die at the object": func(t *testing.T, server *emulator.Server) {
			for range 2 { // the second one finds all sub-objects
				dies(emulator.On(emulator.PutBlob).Path("-object.json"))(t, server)
				time.Sleep(vaulttest.PastGrace)
			}
		},
		"by two": func(t *testing.T, server *emulator.Server) {
			recovers := func(v *azblob.Vault) {
				vaulttest.Should(t, vaulttest.ErrOf(v.Admin().Repair(audited.Mark(t.Context()), vaulttest.Thorough)))
			}
			recovers(vaulttest.Meanwhile(t, server, emulator.PutBlob, "actions/", func() { recovers(vaulttest.OnEmulator(t, server)) }))
		},
	} {
		vaulttest.InBubble(t, what, func(t *testing.T, server *emulator.Server) {
			v := vaulttest.OnEmulator(t, server)
			d := vaulttest.DamagedOf(server, vaulttest.Created(t, v, vaulttest.EachKind()))
			d.Lose(d.Parts()[1:]...)
			time.Sleep(vaulttest.PastGrace)
			first(t, server)
			time.Sleep(vaulttest.PastGrace)
			vaulttest.Must(t, vaulttest.ErrOf(v.Admin().Repair(audited.Mark(t.Context()), vaulttest.Thorough)))
			if report, err := v.Admin().Repair(audited.Mark(t.Context()), vaulttest.Thorough); err != nil || len(report.Plans) != 0 {
				t.Errorf("once more: %+v, %v", report, err)
			}
			vaulttest.Same(t, v, d.Plan)
			plan := vaulttest.Reread(t, v, d.Plan)
			vaulttest.Moved(plan, workflow.Running)
			for o := range workflow.Walk(plan) {
				vaulttest.Should(t, storage.Update(t.Context(), v, o))
			}
			vaulttest.Same(t, v, plan)
			vaulttest.Sound(t, v)
		})
	}
}
