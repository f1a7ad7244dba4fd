package protocol

import (
	"bytes"
	"cmp"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/planvault/azblob/internal/efforttest"
)

var full = flag.Bool("protocol.full", false, "explore the medium and large situations, which takes gigabytes; PLANVAULT_LONG explores the medium ones")

func of(rs ...role) []role { return rs }

// The situations in which every promise must hold. By default TestPromises explores the small ones.
var (
	smallSituations = []situation{
		{roles: of(creating), deaths: 1, losses: 2, delays: 1},
		{roles: of(creating), losses: 1, lies: 2},
		{roles: of(creating), plan: incompletePlan, deaths: 1, lies: 1},
		{roles: of(creating), plan: strayPlan, deaths: 1, losses: 1},
		{roles: of(creating, recovering), deaths: 1, losses: 1},
		{roles: of(creating, recovering), deaths: 1, two: true},
		{roles: of(creating, recovering), deaths: 1, lies: 1},
		{roles: of(creating, recovering), deaths: 1, brief: 1 << 1},
		{roles: of(creating, recovering), plan: incompletePlan, losses: 1},
		{roles: of(creating, reading), deaths: 1, losses: 1},
		{roles: of(creating, updating), delays: 1},
		{roles: of(creating, updating), early: true, deaths: 1, losses: 1},
		{roles: of(creating, updating), early: true, lies: 1, two: true},
		{roles: of(creating, updating, recovering), deaths: 1},
		{roles: of(updating, reading), plan: newPlan, deaths: 1, losses: 1},
		{roles: of(updating, reading), plan: runningPlan, two: true},
		{roles: of(updating, listing), plan: newPlan, deaths: 1, losses: 1},
		{roles: of(updating, recovering), plan: newPlan, deaths: 1},
		{roles: of(updating, recovering), plan: newPlan, delays: 1},
		{roles: of(updating, recovering), plan: newPlan, lies: 1},
		{roles: of(updating, recovering), plan: runningPlan, harms: 1},
		{roles: of(updating, recovering), plan: deletedPlan, deaths: 1},
		{roles: of(updating, recovering), plan: markedPlan, deaths: 1},
		{roles: of(updating, updating), plan: runningPlan, deaths: 1, losses: 1},
		{roles: of(updating, updating), plan: runningPlan, delays: 1, two: true},
		{roles: of(updating, updating), plan: completedPlan, deaths: 1, delays: 1},
		{roles: of(restoring), deaths: 1, losses: 1, delays: 1},
		{roles: of(restoringFinal), deaths: 1, losses: 1},
		{roles: of(restoringFinal), plan: incompletePlan, deaths: 1, lies: 1},
		{roles: of(restoring, recovering), deaths: 1, losses: 1},
		{roles: of(restoring, recovering), harms: 1, frozen: true},
		{roles: of(restoringFinal, recovering), deaths: 1, frozen: true},
		{roles: of(restoringFinal, recovering), harms: 1, thorough: true},
		{roles: of(restoring, updating), early: true, deaths: 1},
		{roles: of(restoring, reading), deaths: 1},
		{roles: of(restoringFinal, deleting), plan: noPlan, deaths: 1},
		{roles: of(creating, restoringFinal)},
		{roles: of(deleting), plan: newPlan, deaths: 1, losses: 1},
		{roles: of(deleting), plan: finalPlan, losses: 1, lies: 2},
		{roles: of(deleting), plan: runningPlan, losses: 1, lies: 2},
		{roles: of(deleting), plan: finalMarked, deaths: 1, lies: 1},
		{roles: of(deleting, reading), plan: newPlan, deaths: 1},
		{roles: of(deleting, reading), plan: runningPlan, deaths: 1},
		{roles: of(deleting, listing), plan: runningPlan, deaths: 1},
		{roles: of(deleting, recovering), plan: finalPlan, lies: 1, two: true},
		{roles: of(deleting, recovering), plan: finalPlan, harms: 1},
		{roles: of(deleting, creating), plan: newPlan, deaths: 1, delays: 1},
		{roles: of(deleting, restoring), plan: runningPlan, losses: 1, delays: 1},
		{roles: of(deleting, restoringFinal), plan: finalPlan, delays: 1, two: true},
		{roles: of(recovering), plan: newPlan, losses: 1, lies: 2, two: true},
		{roles: of(recovering), plan: runningPlan, losses: 1, lies: 2},
		{roles: of(recovering), plan: incompletePlan, lies: 1, two: true},
		{roles: of(recovering), plan: hollowPlan},
		{roles: of(recovering), plan: strayPlan, thorough: true, lies: 1},
		{roles: of(recovering), plan: newPlan, thorough: true, harms: 1, deaths: 1, losses: 1},
		{roles: of(updating, recovering), plan: newPlan, thorough: true, harms: 1},
		{roles: of(recovering, recovering), plan: runningPlan, thorough: true, harms: 1},
		{roles: of(deleting, recovering), plan: finalPlan, thorough: true, harms: 1},
		{roles: of(deleting, recovering), plan: runningPlan, thorough: true, harms: 1},
		{roles: of(creating, recovering), plan: strayPlan, thorough: true},
		{roles: of(creating, recovering), thorough: true, deaths: 1},
	}
	mediumSituations = []situation{
		{roles: of(creating, updating, deleting), deaths: 1},
		{roles: of(creating, recovering), deaths: 1, losses: 1, frozen: true},
		{roles: of(creating, recovering), plan: deletedPlan, losses: 1},
		{roles: of(creating, creating), plan: strayPlan},
		{roles: of(creating, updating, recovering), early: true, frozen: true},
		{roles: of(deleting, recovering), plan: runningPlan, deaths: 1, frozen: true},
		{roles: of(restoring, updating, recovering), early: true, frozen: true},
		{roles: of(creating, recovering), deaths: 1, delays: 1},
		{roles: of(creating, creating), plan: incompletePlan},
		{roles: of(creating, creating), deaths: 1},
		{roles: of(deleting, recovering), plan: completedPlan, deaths: 1},
		{roles: of(creating, recovering, recovering)},
		{roles: of(creating, creating, recovering), patient: true},
		{roles: of(creating, updating, recovering), early: true},
		{roles: of(updating, updating, recovering), plan: markedPlan},
		{roles: of(updating, recovering, recovering), plan: runningPlan},
		{roles: of(updating, deleting), plan: newPlan, deaths: 1},
		{roles: of(updating, deleting, recovering), plan: finalPlan},
		{roles: of(updating, deleting, creating), plan: runningPlan},
		{roles: of(deleting, deleting), plan: runningPlan, losses: 1, lies: 1},
		{roles: of(deleting, recovering), plan: newPlan, deaths: 1, lies: 1},
		{roles: of(deleting, recovering), plan: finalPlan, deaths: 2},
		{roles: of(deleting, recovering), plan: finalPlan, deaths: 1, losses: 1, frozen: true},
		{roles: of(deleting, creating, recovering), plan: newPlan, patient: true},
		{roles: of(deleting, creating, reading), plan: runningPlan},
	}
	largeSituations = []situation{
		{roles: of(creating, recovering), plan: strayPlan, thorough: true, losses: 1},
		{roles: of(creating, recovering), deaths: 1, losses: 1, two: true},
		{roles: of(creating, recovering, recovering), deaths: 1},
		{roles: of(creating, creating), deaths: 1, losses: 1, lies: 1},
		{roles: of(creating, creating), plan: strayPlan, deaths: 1, losses: 1},
		{roles: of(creating, creating, recovering)},
		{roles: of(creating, creating), plan: incompletePlan, deaths: 1, losses: 1},
		{roles: of(creating, creating, recovering), losses: 1, patient: true},
		{roles: of(creating, creating, recovering), brief: 1<<1 | 1<<2, patient: true},
		{roles: of(creating, creating, recovering), deaths: 1, frozen: true, patient: true},
		{roles: of(creating, updating, recovering), early: true, deaths: 1},
		{roles: of(updating, reading, recovering), plan: runningPlan, deaths: 1},
		{roles: of(updating, recovering), plan: newPlan, deaths: 1, losses: 1, delays: 1},
		{roles: of(updating, recovering), plan: markedPlan, deaths: 1, losses: 1},
		{roles: of(updating, recovering), plan: runningPlan, harms: 1, deaths: 1},
		{roles: of(updating, deleting, reading), plan: newPlan, deaths: 1},
		{roles: of(updating, deleting, recovering), plan: runningPlan, deaths: 1},
		{roles: of(updating, deleting, recovering), plan: finalPlan, deaths: 1},
		{roles: of(updating, updating, recovering), plan: runningPlan, deaths: 1},
		{roles: of(updating, updating, deleting), plan: runningPlan, deaths: 1},
		{roles: of(deleting, recovering), plan: newPlan, deaths: 1, losses: 1, lies: 1},
		{roles: of(deleting, recovering), plan: finalPlan, deaths: 2, losses: 1},
		{roles: of(deleting, recovering, recovering), plan: newPlan, deaths: 1},
		{roles: of(deleting, deleting, recovering), plan: runningPlan, frozen: true},
		{roles: of(deleting, creating, recovering), plan: newPlan, deaths: 1, patient: true},
	}
)

// TestPromises explores the situations. Afterwards it compares the names of the steps with the vault's.
func TestPromises(t *testing.T) {
	list := smallSituations
	if efforttest.Long() || *full {
		list = slices.Concat(list, mediumSituations)
	}
	if *full {
		list = slices.Concat(list, largeSituations)
	}
	var (
		states, steps atomic.Int64
		mu            sync.Mutex
		asked         = map[string]bool{} // the names of all steps
		explored      int
	)
	t.Cleanup(func() {
		if explored == len(list) {
			vaultHasSteps(t, asked)
		}
		t.Logf("%d situations (of %d small, %d medium, %d large), %d states, %d steps",
			len(list), len(smallSituations), len(mediumSituations), len(largeSituations), states.Load(), steps.Load())
	})
	more := efforttest.More(t)
	for _, s := range list {
		t.Run(s.String(), func(t *testing.T) {
			if !*full { // each large situation needs much memory
				t.Parallel()
			}
			if !more() {
				t.Skip("there is no time left")
			}
			x := s.run()
			r := x.report
			r.want(t, 0)
			states.Add(int64(r.states))
			steps.Add(int64(r.steps))
			mu.Lock()
			defer mu.Unlock()
			explored++
			for _, n := range x.nodes {
				for _, r := range n.asks {
					asked[r.step] = true
				}
			}
		})
	}
}

// planNeeds has for each rule a situation in which a promise is broken without the rule.
var planNeeds = needs{
	lacking(situation{roles: of(creating, recovering)}, ruleGrace, ruleDeadline),
	lacking(situation{roles: of(creating, recovering), plan: incompletePlan}, ruleGraceOfAll, ruleRecoveryMarkerMatch),
	lacking(situation{roles: of(restoringFinal, recovering), thorough: true}, ruleGraceAtListing),
	lacking(situation{roles: of(creating, recovering), brief: 2}, ruleGraceCarried),
	lacking(situation{roles: of(creating, creating, recovering), brief: 6, patient: true}, ruleGraceKept),
	lacking(situation{roles: of(creating), deaths: 1}, ruleMarkerFirst, ruleEntryBeforeParts, ruleObjectLast),
	lacking(situation{roles: of(creating, creating)},
		ruleNewEntry, ruleTakenMarkerShared, ruleUndoMarkerMatch, ruleUndoMarkerOwn, ruleUndoPartMatch, ruleOwnWriteID),
	lacking(situation{roles: of(creating, updating), delays: 1}, ruleNewPart, ruleNewObject, ruleUpdateMatch),
	lacking(situation{roles: of(creating), plan: incompletePlan}, ruleMarkerStays, ruleCreateClears),
	lacking(situation{roles: of(creating), plan: strayPlan}, ruleTakenMarkerOwn),
	lacking(situation{roles: of(creating), deaths: 1, losses: 2, delays: 1}, ruleUndoCertain, ruleUndoBeforeObject),
	lacking(situation{roles: of(creating), losses: 1}, ruleUndoRefused, ruleWriteID),
	lacking(situation{roles: of(creating, creating), losses: 1}, ruleUndoEntryMatch),
	lacking(situation{roles: of(creating), losses: 1, lies: 1}, ruleUndoConfirms),
	lacking(situation{roles: of(creating, updating), early: true}, ruleWithdrawMatch, ruleWithdrawLooks, ruleKeepMatch),
	lacking(situation{roles: of(creating, updating), early: true, deaths: 1}, ruleWithdrawMarker),
	lacking(situation{roles: of(creating, updating), early: true, lies: 1}, ruleWithdrawConfirms),
	lacking(situation{roles: of(creating, updating, recovering), early: true, frozen: true}, ruleKeepRewrites, ruleKeepWhole),
	lacking(situation{roles: of(updating, reading), plan: newPlan},
		ruleRunningFirst, ruleReadStale, ruleReadAgain, ruleReadParts),
	lacking(situation{roles: of(updating, recovering), plan: newPlan, deaths: 1}, ruleEntryFirst),
	lacking(situation{roles: of(updating, updating), plan: runningPlan}, ruleFinalizeMatch, ruleFinalizeOwn),
	lacking(situation{roles: of(updating, recovering), plan: runningPlan}, ruleFinalizeAgain, ruleRecoveryLooksAgain),
	lacking(situation{roles: of(updating, updating), plan: runningPlan, deaths: 1}, ruleFinalizeObjectFirst),
	lacking(situation{roles: of(updating, updating, recovering), plan: markedPlan}, ruleSupersededMarker),
	lacking(situation{roles: of(updating), plan: runningPlan, lies: 1}, ruleFinalizeConfirms),
	lacking(situation{roles: of(updating, deleting, creating), plan: runningPlan}, ruleFinalizeWaits),
	lacking(situation{roles: of(updating), plan: newPlan, deaths: 1}, ruleFinalizeMarkerLast),
	lacking(situation{roles: of(deleting), plan: finalPlan, deaths: 1}, ruleDeleteMarker),
	lacking(situation{roles: of(deleting, recovering), plan: finalPlan, deaths: 1}, ruleDeleteMarkerAgain),
	lacking(situation{roles: of(deleting), plan: finalPlan, lies: 1}, ruleDeleteConfirms, ruleDeleteListsAgain),
	lacking(situation{roles: of(deleting), plan: runningPlan, lies: 1}, ruleDeleteAbsentChanged),
	lacking(situation{roles: of(deleting), plan: deletedPlan, lies: 1}, ruleResumeListsAgain),
	lacking(situation{roles: of(deleting), plan: newPlan}, ruleObjectFirst),
	lacking(situation{roles: of(deleting), plan: newPlan, deaths: 1}, ruleEntryAfterParts, ruleMarkersLast, ruleResume),
	lacking(situation{roles: of(deleting), plan: finalMarked, lies: 1}, ruleResumeConfirms),
	lacking(situation{roles: of(deleting, recovering), plan: runningPlan, deaths: 1, frozen: true}, ruleDeleteMatch),
	lacking(situation{roles: of(deleting, creating), plan: newPlan, delays: 1}, ruleDeletePartMatch),
	lacking(situation{roles: of(deleting, restoring), plan: finalPlan, delays: 1}, ruleDeleteEntryMatch),
	lacking(situation{roles: of(deleting, creating), plan: runningPlan, delays: 1}, ruleDeleteMarkersMatch),
	lacking(situation{roles: of(recovering), plan: newPlan, lies: 1}, ruleRecoveryConfirms),
	lacking(situation{roles: of(recovering), plan: incompletePlan, lies: 1}, ruleRecoveryListsAgain, ruleRecoveryEntryConfirms),
	lacking(situation{roles: of(recovering), plan: runningPlan, harms: 1}, ruleLostEntry, ruleLostObject),
	lacking(situation{roles: of(deleting, recovering), plan: runningPlan}, ruleLossConfirms),
	lacking(situation{roles: of(creating, recovering), plan: strayPlan},
		ruleRecoveryEntryMatch, ruleRecoveryPartMatch, ruleRecoveryNewParts),
	lacking(situation{roles: of(creating, recovering), deaths: 2}, ruleRecoveryMarkerLast),
	lacking(situation{roles: of(deleting, recovering), plan: finalPlan, frozen: true, deaths: 1}, ruleRewrite, ruleRewriteFirst),
	lacking(situation{roles: of(deleting, recovering), plan: markedPlan}, ruleRewriteMatch),
	lacking(situation{roles: of(deleting, recovering), plan: completedPlan}, ruleCompleteMatch),
	lacking(situation{roles: of(recovering), plan: completedPlan}, ruleCompleteReads),
	lacking(situation{roles: of(recovering), plan: hollowPlan}, ruleCompleteContent),
	lacking(situation{roles: of(deleting, creating, recovering), plan: newPlan, patient: true, thorough: true}, ruleVerifySameObject),
	lacking(situation{roles: of(recovering), plan: runningPlan, thorough: true, harms: 1}, ruleRestoreMarker),
	lacking(situation{roles: of(updating, recovering), plan: runningPlan, thorough: true, harms: 1}, ruleRestoreRunning),
	lacking(situation{roles: of(updating, recovering), plan: newPlan, thorough: true, harms: 1}, ruleRestoreRewrites),
	lacking(situation{roles: of(deleting, recovering), plan: finalPlan, thorough: true, harms: 1}, ruleRestoreLooks),
	lacking(situation{roles: of(restoring), deaths: 1}, ruleRestored),
	lacking(situation{roles: of(restoringFinal, recovering), harms: 1, thorough: true}, ruleRestoredMarked),
	lacking(situation{roles: of(deleting, reading), plan: runningPlan}, ruleReadMissing),
	lacking(situation{roles: of(deleting, reading), plan: newPlan}, ruleShownWhole),
	// The context of the last request ends early enough by itself: the clock is looked at to be on the safe side of it.
	{&small{role: creating}, 0, rules{ruleClock}},
	// It takes two updaters of a blob, one of them without a version.
	{&small{role: updating}, 0, rules{ruleUnknown}},
	// Recovery rewrites the object, so that a commit which comes late is refused; the deadline saves the second round.
	{&small{role: deleting}, 0, rules{ruleDeleteDeadline}},
	// Listings of the model do not lag behind.
	{&small{role: recovering}, 0, rules{ruleRecoveryLooks}},
	// The second listing finds the sub-object; the first sign of somebody at work is enough to stop.
	{&small{role: recovering}, 0, rules{ruleRecoveryChangedParts}},
	// Recovery removes a sub-object first, which has changed; the plans of the model have one.
	{&small{role: restoring}, 0, rules{ruleKeepEntry}},
	// Nobody rewrites a marker beside an entry; only a Create that overlaps with a Delete can write another one.
	{&small{role: restoringFinal}, 0, rules{ruleRestoredMarkerMatch}},
	// It takes two thorough Recoveries and an engine between them, more than is explored.
	{&small{role: recovering}, 0, rules{ruleRestoreNew}},
	// The rewrite makes the Delete begin again; to wait keeps Recovery from disturbing one that is at work.
	{&small{role: recovering}, 0, rules{ruleRecoveryDeleteMarker}},
}

func lacking(in situation, without ...rule) need { return need{&in, anyBreach, without} }

// small is all small situations with at most two actors, one of the given role, and at most one disturbance.
type small struct {
	mutant
	role role
}

func (s *small) String() string { return "small situations with " + s.role.String() }

func (s *small) explore(explorable) (r report) {
	for _, in := range smallSituations {
		if !slices.Contains(in.roles, s.role) || len(in.roles) > 2 || in.deaths+in.losses+in.delays+in.lies+in.harms > 1 {
			continue
		}
		in.lacking = s.lacking
		found := in.explore(nil)
		if r.states, r.steps = r.states+found.states, r.steps+found.steps; found.violation != "" {
			return found
		}
	}
	return r
}

// TestLimits shows that the model finds what docs/protocol.md does not cover, and that clock and deadline are not spare
// together.
func TestLimits(t *testing.T) {
	for _, s := range []situation{
		{roles: of(deleting, creating), plan: newPlan, tight: true},
		{roles: of(updating, deleting, creating), plan: runningPlan, tight: true},
		{roles: of(creating, creating, deleting), tight: true},
		{roles: of(creating, recovering), frozen: true, mutant: mutant{lacking: rules{ruleClock, ruleDeadline}}},
	} {
		if s.explore(nil).violation == "" {
			t.Errorf("%s: no violation is found", s)
		}
	}
}

// vaultHasSteps checks that the vault's errors use the names of the model's steps. The vault appends the kind of an object:
// "write " + kind.
func vaultHasSteps(t *testing.T, steps map[string]bool) {
	t.Helper()
	files, err := filepath.Glob("../../*.go")
	below, err2 := filepath.Glob("../*/*.go")
	if err := cmp.Or(err, err2); err != nil {
		t.Fatal(err)
	}
	var code []byte
	for _, name := range append(files, below...) {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(name, "_test.go") {
			code = append(code, text...)
		}
	}
	delete(steps, "") // what is no request
	if len(steps) < 20 {
		t.Errorf("only %d steps: %v", len(steps), steps)
	}
	for step := range steps {
		verb := strings.TrimSuffix(strings.TrimSuffix(step, "action"), "plan")
		if !bytes.Contains(code, []byte(strconv.Quote(step))) && !bytes.Contains(code, []byte(strconv.Quote(verb))) {
			t.Errorf("the vault has no step %q", step)
		}
	}
}
