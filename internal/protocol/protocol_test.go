package protocol

import (
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
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
		{roles: of(creating, updating, deleting), deaths: 1},
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
		{roles: of(deleting), plan: finalMarked, deaths: 1, lies: 1},
		{roles: of(deleting, reading), plan: newPlan, deaths: 1},
		{roles: of(deleting, reading), plan: runningPlan, deaths: 1},
		{roles: of(deleting, listing), plan: runningPlan, deaths: 1},
		{roles: of(deleting, recovering), plan: finalPlan, lies: 1, two: true},
		{roles: of(deleting, recovering), plan: finalPlan, harms: 1},
		{roles: of(deleting, creating), plan: newPlan, deaths: 1},
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
	for _, s := range list {
		t.Run(s.String(), func(t *testing.T) {
			if !*full { // each large situation needs much memory
				t.Parallel()
			}
			x := s.run()
			r := x.report
			r.want(t, "")
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

// needed has for each rule a situation in which a promise is broken without the rule.
var needed = map[rule]situation{
	ruleGrace:                 {roles: of(creating, recovering)},
	ruleGraceOfAll:            {roles: of(creating, recovering), plan: incompletePlan},
	ruleGraceCarried:          {roles: of(creating, recovering), brief: 2},
	ruleGraceKept:             {roles: of(creating, creating, recovering), brief: 6, patient: true},
	ruleDeadline:              {roles: of(creating, recovering)},
	ruleMarkerFirst:           {roles: of(creating), deaths: 1},
	ruleEntryBeforeParts:      {roles: of(creating), deaths: 1},
	ruleObjectLast:            {roles: of(creating), deaths: 1},
	ruleNewEntry:              {roles: of(creating, creating)},
	ruleNewPart:               {roles: of(creating, updating), delays: 1},
	ruleNewObject:             {roles: of(creating, updating), delays: 1},
	ruleMarkerStays:           {roles: of(creating), plan: incompletePlan},
	ruleTakenMarkerShared:     {roles: of(creating, creating)},
	ruleTakenMarkerOwn:        {roles: of(creating), plan: strayPlan},
	ruleCreateClears:          {roles: of(creating), plan: incompletePlan},
	ruleUndoCertain:           {roles: of(creating), deaths: 1, losses: 2, delays: 1},
	ruleUndoBeforeObject:      {roles: of(creating), deaths: 1, losses: 2, delays: 1},
	ruleUndoRefused:           {roles: of(creating), losses: 1},
	ruleUndoEntryMatch:        {roles: of(creating, creating), losses: 1},
	ruleUndoMarkerMatch:       {roles: of(creating, creating)},
	ruleUndoMarkerOwn:         {roles: of(creating, creating)},
	ruleUndoPartMatch:         {roles: of(creating, creating)},
	ruleUndoConfirms:          {roles: of(creating), losses: 1, lies: 1},
	ruleWithdrawMatch:         {roles: of(creating, updating), early: true},
	ruleWithdrawMarker:        {roles: of(creating, updating), early: true, deaths: 1},
	ruleWithdrawLooks:         {roles: of(creating, updating), early: true},
	ruleWithdrawConfirms:      {roles: of(creating, updating), early: true, lies: 1},
	ruleKeepRewrites:          {roles: of(creating, updating, recovering), early: true, frozen: true},
	ruleKeepMatch:             {roles: of(creating, updating), early: true},
	ruleKeepWhole:             {roles: of(creating, updating, recovering), early: true, frozen: true},
	ruleWriteID:               {roles: of(creating), losses: 1},
	ruleOwnWriteID:            {roles: of(creating, creating)},
	ruleRunningFirst:          {roles: of(updating, reading), plan: newPlan},
	ruleUpdateMatch:           {roles: of(creating, updating), delays: 1},
	ruleEntryFirst:            {roles: of(updating, recovering), plan: newPlan, deaths: 1},
	ruleFinalizeMatch:         {roles: of(updating, updating), plan: runningPlan},
	ruleFinalizeAgain:         {roles: of(updating, recovering), plan: runningPlan},
	ruleFinalizeOwn:           {roles: of(updating, updating), plan: runningPlan},
	ruleFinalizeObjectFirst:   {roles: of(updating, updating), plan: runningPlan, deaths: 1},
	ruleSupersededMarker:      {roles: of(updating, updating, recovering), plan: markedPlan},
	ruleFinalizeConfirms:      {roles: of(updating), plan: runningPlan, lies: 1},
	ruleFinalizeWaits:         {roles: of(updating, deleting, creating), plan: runningPlan},
	ruleFinalizeMarkerLast:    {roles: of(updating), plan: newPlan, deaths: 1},
	ruleDeleteMarker:          {roles: of(deleting), plan: finalPlan, deaths: 1},
	ruleDeleteMarkerAgain:     {roles: of(deleting, recovering), plan: finalPlan, deaths: 1},
	ruleDeleteConfirms:        {roles: of(deleting), plan: finalPlan, lies: 1},
	ruleResumeListsAgain:      {roles: of(deleting), plan: deletedPlan, lies: 1},
	ruleDeleteListsAgain:      {roles: of(deleting), plan: finalPlan, lies: 1},
	ruleObjectFirst:           {roles: of(deleting), plan: newPlan},
	ruleEntryAfterParts:       {roles: of(deleting), plan: newPlan, deaths: 1},
	ruleMarkersLast:           {roles: of(deleting), plan: newPlan, deaths: 1},
	ruleResume:                {roles: of(deleting), plan: newPlan, deaths: 1},
	ruleResumeConfirms:        {roles: of(deleting), plan: finalMarked, lies: 1},
	ruleDeleteMatch:           {roles: of(deleting, recovering), plan: runningPlan, deaths: 1, frozen: true},
	ruleRecoveryConfirms:      {roles: of(recovering), plan: newPlan, lies: 1},
	ruleRecoveryListsAgain:    {roles: of(recovering), plan: incompletePlan, lies: 1},
	ruleRecoveryEntryConfirms: {roles: of(recovering), plan: incompletePlan, lies: 1},
	ruleLostEntry:             {roles: of(recovering), plan: runningPlan, harms: 1},
	ruleLostObject:            {roles: of(recovering), plan: runningPlan, harms: 1},
	ruleLossConfirms:          {roles: of(deleting, recovering), plan: runningPlan},
	ruleRecoveryEntryMatch:    {roles: of(creating, recovering), plan: strayPlan},
	ruleRecoveryPartMatch:     {roles: of(creating, recovering), plan: strayPlan},
	ruleRecoveryNewParts:      {roles: of(creating, recovering), plan: strayPlan},
	ruleRecoveryMarkerMatch:   {roles: of(creating, recovering), plan: incompletePlan},
	ruleRecoveryMarkerLast:    {roles: of(creating, recovering), deaths: 2},
	ruleRewrite:               {roles: of(deleting, recovering), plan: finalPlan, frozen: true, deaths: 1},
	ruleRewriteMatch:          {roles: of(deleting, recovering), plan: markedPlan},
	ruleRewriteFirst:          {roles: of(deleting, recovering), plan: finalPlan, frozen: true, deaths: 1},
	ruleCompleteMatch:         {roles: of(deleting, recovering), plan: completedPlan},
	ruleCompleteReads:         {roles: of(recovering), plan: completedPlan},
	ruleCompleteContent:       {roles: of(recovering), plan: hollowPlan},
	ruleRecoveryLooksAgain:    {roles: of(updating, recovering), plan: runningPlan},
	ruleVerifySameObject:      {roles: of(deleting, creating, recovering), plan: newPlan, patient: true},
	ruleRestoreMarker:         {roles: of(recovering), plan: runningPlan, thorough: true, harms: 1},
	ruleRestoreRunning:        {roles: of(updating, recovering), plan: runningPlan, thorough: true, harms: 1},
	ruleRestoreRewrites:       {roles: of(updating, recovering), plan: newPlan, thorough: true, harms: 1},
	ruleRestoreLooks:          {roles: of(deleting, recovering), plan: finalPlan, thorough: true, harms: 1},
	ruleRestored:              {roles: of(restoring), deaths: 1},
	ruleRestoredMarked:        {roles: of(restoringFinal, recovering), harms: 1, thorough: true},
	ruleReadStale:             {roles: of(updating, reading), plan: newPlan},
	ruleReadAgain:             {roles: of(updating, reading), plan: newPlan},
	ruleReadParts:             {roles: of(updating, reading), plan: newPlan},
	ruleReadMissing:           {roles: of(deleting, reading), plan: runningPlan},
	ruleShownWhole:            {roles: of(deleting, reading), plan: newPlan},
}

// spare has the rules without which no promise is broken in the small situations with at most two actors, one
// of the given role, and at most one disturbance. It says why each of them exists.
var spare = map[rule]struct {
	role role
	why  string
}{
	ruleClock:                {creating, "the context of the last request ends early enough by itself: the clock is looked at to be on the safe side of it"},
	ruleUnknown:              {updating, "it takes two updaters of a blob, one of them without a version"},
	ruleDeleteDeadline:       {deleting, "Recovery rewrites the object, so that a commit which comes late is refused; the deadline saves the second round"},
	ruleGraceAtListing:       {recovering, "what was written since the listing is found when the absence of the object is confirmed, and by the age of the sub-objects"},
	ruleRecoveryLooks:        {recovering, "listings of the model do not lag behind"},
	ruleRecoveryChangedParts: {recovering, "the second listing finds the sub-object; the first sign of somebody at work is enough to stop"},
	ruleKeepEntry:            {restoring, "Recovery removes a sub-object first, which has changed; the plans of the model have one"},
	ruleRestoredMarkerMatch:  {restoringFinal, "nobody rewrites a marker beside an entry; only a Create that overlaps with a Delete can write another one"},
	ruleRestoreNew:           {recovering, "it takes two thorough Recoveries and an engine between them, more than is explored"},
	ruleRecoveryDeleteMarker: {recovering, "the rewrite makes the Delete begin again; to wait keeps Recovery from disturbing one that is at work"},
}

// TestRules removes the rules one at a time.
func TestRules(t *testing.T) {
	removeRules(t, rules, func(r rule) (n need, isSpare bool) {
		s, isNeeded := needed[r]
		if _, isSpare := spare[r]; isNeeded == isSpare {
			t.Errorf("%s: the rule must be either needed or spare", r)
		}
		if !isNeeded || testing.Short() && len(s.roles) > 2 {
			return need{}, true
		}
		s.lacking = setOf(r)
		return need{s, someBreach}, false
	})
}

// TestSpareRules checks that nothing goes wrong without the rules that the table calls spare.
func TestSpareRules(t *testing.T) {
	if !efforttest.Long() && !*full {
		t.Skip("explores the small situations once per rule; run with PLANVAULT_LONG=1")
	}
	for r, is := range spare {
		t.Run(r.String(), func(t *testing.T) {
			t.Parallel()
			for _, s := range smallSituations {
				if !slices.Contains(s.roles, is.role) || len(s.roles) > 2 || s.deaths+s.losses+s.delays+s.lies+s.harms > 1 {
					continue
				}
				s.lacking = setOf(r)
				if found := s.explore(); found.violation != "" {
					t.Errorf("the rule is needed: %s: %s\n  %s", s, found.violation, strings.Join(found.path, "\n  "))
				}
			}
		})
	}
	s := situation{roles: of(creating, recovering), frozen: true, lacking: setOf(ruleClock, ruleDeadline)}
	if s.explore().violation == "" {
		t.Error("without both clock and deadline, no violation is found")
	}
}

// TestStages shows that merging programs at their stages loses nothing: the stored blobs and the results at
// the end are the same.
func TestStages(t *testing.T) {
	for _, s := range []situation{
		{roles: of(creating), deaths: 1, losses: 2, delays: 1},
		{roles: of(creating), plan: incompletePlan, losses: 1, lies: 1},
		{roles: of(creating, recovering), plan: incompletePlan},
		{roles: of(updating, recovering), plan: markedPlan},
		{roles: of(updating, updating), plan: runningPlan},
		{roles: of(deleting), plan: finalMarked, deaths: 1, losses: 1, lies: 1},
		{roles: of(deleting, recovering), plan: finalPlan, frozen: true},
		{roles: of(recovering), plan: newPlan, thorough: true, harms: 1, losses: 1},
	} {
		type end struct {
			ending
			results [most]result
		}
		ends := func(s situation) map[end]bool {
			x := s.run()
			found := map[end]bool{}
			for _, st := range slices.Concat(x.queue...) {
				e := end{ending: ending{st.store, st.lost}}
				for i, p := range st.procs[:len(s.roles)] {
					e.results[i] = x.nodes[p.node].result
				}
				found[e] = true
			}
			t.Logf("%s: %d states, %d ends", s, len(x.links), len(found))
			return found
		}
		merged := ends(s)
		s.apart = true
		apart := ends(s)
		for end := range apart {
			if !merged[end] {
				t.Fatalf("%s: with stages it does not come to %v", s, end)
			}
		}
		if len(merged) != len(apart) {
			t.Errorf("%s: with stages it comes to %d ends instead of %d", s, len(merged), len(apart))
		}
	}
}

// TestLimits shows that the model finds what docs/protocol.md does not cover.
func TestLimits(t *testing.T) {
	for _, s := range []situation{
		{roles: of(deleting, creating), plan: newPlan, tight: true},
		{roles: of(updating, deleting, creating), plan: runningPlan, tight: true},
		{roles: of(creating, creating, deleting), tight: true},
	} {
		if s.explore().violation == "" {
			t.Errorf("%s: no violation is found", s)
		}
	}
}

// vaultHasSteps checks that the vault's errors use the names of the model's steps.
func vaultHasSteps(t *testing.T, steps map[string]bool) {
	t.Helper()
	literals := map[string]bool{}
	files, err := filepath.Glob("../../*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				text, err := strconv.Unquote(lit.Value)
				if err != nil {
					t.Fatal(err)
				}
				literals[text] = true
			}
			return true
		})
	}
	delete(steps, "") // what is no request
	if len(steps) < 20 {
		t.Errorf("only %d steps: %v", len(steps), steps)
	}
	for step := range steps {
		// The vault appends the kind of an object: "write " + kind.
		verb := strings.TrimSuffix(strings.TrimSuffix(step, "action"), "plan")
		if !literals[step] && (verb == step || !literals[verb]) {
			t.Errorf("the vault has no step %q", step)
		}
	}
}
