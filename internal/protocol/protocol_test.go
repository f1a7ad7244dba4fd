package protocol

import (
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

var full = flag.Bool("protocol.full", false, "explore the larger situations too, which takes minutes and gigabytes")

func of(rs ...role) []role { return rs }

// The situations in which every promise must hold. Under the race detector and with -short the small ones are all.
var (
	small = []situation{
		{roles: of(creating), deaths: 1, losses: 2, delays: 1},
		{roles: of(creating, recovering), deaths: 1, losses: 1},
		{roles: of(creating, recovering), deaths: 1, delays: 1},
		{roles: of(creating, recovering), deaths: 1, losses: 1, frozen: true},
		{roles: of(creating, recovering), deaths: 1, losses: 1, two: true},
		{roles: of(creating, creating), deaths: 1, losses: 1},
		{roles: of(creating, reading), deaths: 1, losses: 1},
		{roles: of(creating, updating), delays: 1},
		{roles: of(creating, updating, recovering), deaths: 1},
		{roles: of(creating, updating, deleting), deaths: 1},
		{roles: of(updating, reading), plan: newPlan, deaths: 1, losses: 1},
		{roles: of(updating, reading), plan: runningPlan, two: true},
		{roles: of(updating, listing), plan: newPlan, deaths: 1, losses: 1},
		{roles: of(updating, recovering), plan: newPlan, deaths: 1},
		{roles: of(updating, recovering), plan: newPlan, delays: 1},
		{roles: of(updating, recovering), plan: deletedPlan, deaths: 1},
		{roles: of(deleting), plan: newPlan, deaths: 1, losses: 1},
		{roles: of(deleting, reading), plan: newPlan, deaths: 1},
		{roles: of(deleting, reading), plan: runningPlan, deaths: 1},
		{roles: of(deleting, listing), plan: runningPlan, deaths: 1},
		{roles: of(deleting, recovering), plan: completedPlan, deaths: 1},
		{roles: of(deleting, creating), plan: newPlan, deaths: 1},
	}
	medium = []situation{
		{roles: of(creating, recovering, recovering), deaths: 1},
		{roles: of(creating, creating, recovering)},
		{roles: of(updating, recovering, recovering), plan: runningPlan},
		{roles: of(updating, deleting), plan: newPlan, deaths: 1},
		{roles: of(updating, deleting, recovering), plan: finalPlan, deaths: 1},
		{roles: of(updating, deleting, creating), plan: runningPlan},
		{roles: of(deleting, recovering), plan: newPlan, deaths: 1, losses: 1},
		{roles: of(deleting, recovering), plan: finalPlan, deaths: 2, losses: 1},
		{roles: of(deleting, creating, recovering), plan: newPlan, deaths: 1},
		{roles: of(deleting, creating, reading), plan: runningPlan},
	}
	large = []situation{
		{roles: of(creating, creating, recovering), losses: 1},
		{roles: of(creating, creating, recovering), deaths: 1, frozen: true},
		{roles: of(creating, creating, recovering, recovering)},
		{roles: of(updating, reading, recovering), plan: runningPlan, deaths: 1},
		{roles: of(updating, recovering), plan: newPlan, deaths: 1, losses: 1, delays: 1},
		{roles: of(updating, deleting, reading), plan: newPlan, deaths: 1},
		{roles: of(updating, deleting, recovering), plan: runningPlan, deaths: 1},
		{roles: of(deleting, recovering, recovering), plan: newPlan, deaths: 1},
	}
)

func TestPromises(t *testing.T) {
	list := small
	if !testing.Short() && !raced {
		list = append(list[:len(list):len(list)], medium...)
	}
	if *full {
		list = append(list[:len(list):len(list)], large...)
	}
	var states, steps int
	for _, s := range list {
		t.Run(s.String(), func(t *testing.T) {
			r := s.explore()
			t.Logf("%d states, %d steps", r.states, r.steps)
			if r.violation != "" {
				t.Errorf("%s:\n  %s", r.violation, strings.Join(r.path, "\n  "))
			}
			states, steps = states+r.states, steps+r.steps
		})
	}
	t.Logf("%d situations (of %d small, %d medium, %d large), %d states, %d steps", len(list), len(small), len(medium), len(large), states, steps)
}

// needed names for each rule a situation that goes wrong without it.
var needed = map[rule]situation{
	ruleGrace:                {roles: of(creating, recovering)},
	ruleGraceOfAll:           {roles: of(creating, creating, recovering)},
	ruleGraceAtListing:       {roles: of(creating, creating, recovering)},
	ruleDeadline:             {roles: of(creating, recovering)},
	ruleMarkerFirst:          {roles: of(creating), deaths: 1},
	ruleObjectLast:           {roles: of(creating), deaths: 1},
	ruleNewEntry:             {roles: of(creating, creating)},
	ruleNewPart:              {roles: of(creating, updating), delays: 1},
	ruleNewObject:            {roles: of(creating, updating), delays: 1},
	ruleTakenMarkerStays:     {roles: of(creating, creating), deaths: 1},
	ruleUndoCertain:          {roles: of(creating), deaths: 1, losses: 2, delays: 1},
	ruleUndoBeforeObject:     {roles: of(creating), deaths: 1, losses: 2, delays: 1},
	ruleUndoMarkerMatch:      {roles: of(creating, creating), deaths: 1, losses: 1},
	ruleUndoMarkerOwn:        {roles: of(creating, creating), losses: 1},
	ruleUndoPartMatch:        {roles: of(creating, creating, recovering)},
	ruleWriteID:              {roles: of(creating), losses: 1},
	ruleOwnWriteID:           {roles: of(creating, creating)},
	ruleRunningFirst:         {roles: of(updating, reading), plan: newPlan},
	ruleUpdateMatch:          {roles: of(creating, updating), delays: 1},
	ruleEntryFirst:           {roles: of(updating, recovering), plan: newPlan, deaths: 1},
	ruleSettleThere:          {roles: of(updating, deleting), plan: runningPlan},
	ruleSettleMarkerLast:     {roles: of(updating), plan: newPlan, deaths: 1},
	ruleDeleteMarker:         {roles: of(deleting), plan: finalPlan, deaths: 1},
	ruleObjectFirst:          {roles: of(deleting), plan: newPlan},
	ruleMarkersLast:          {roles: of(deleting), plan: newPlan, deaths: 1},
	ruleResume:               {roles: of(deleting), plan: newPlan, deaths: 1},
	ruleRecoveryEntryMatch:   {roles: of(creating, creating, recovering)},
	ruleRecoveryObjectMatch:  {roles: of(creating, creating, recovering)},
	ruleRecoveryPartMatch:    {roles: of(creating, creating, recovering)},
	ruleRecoveryNewParts:     {roles: of(creating, creating, recovering)},
	ruleRecoveryChangedParts: {roles: of(updating, recovering), plan: deletedPlan},
	ruleRecoveryMarkerMatch:  {roles: of(creating, creating, recovering)},
	ruleRecoveryMarkerLast:   {roles: of(creating, recovering), deaths: 2},
	ruleRecoveryDeleteMarker: {roles: of(deleting, recovering), plan: finalPlan, deaths: 1},
	ruleCompleteMatch:        {roles: of(deleting, recovering), plan: completedPlan},
	ruleCompleteReads:        {roles: of(recovering), plan: completedPlan},
	ruleRecoveryLooksAgain:   {roles: of(updating, recovering), plan: runningPlan},
	ruleVerifySameObject:     {roles: of(creating, creating, recovering)},
	ruleReadStale:            {roles: of(updating, reading), plan: newPlan},
	ruleReadAgain:            {roles: of(updating, reading), plan: newPlan},
	ruleReadParts:            {roles: of(updating, reading), plan: newPlan},
	ruleReadMissing:          {roles: of(deleting, reading), plan: runningPlan},
	ruleShownWhole:           {roles: of(deleting, reading), plan: newPlan},
}

// spare says of each rule that nothing goes wrong without why it is there all the same.
var spare = map[rule]string{
	ruleClock:            "the context of the last request ends early enough by itself: the clock is looked at to be on the safe side of it",
	ruleEntryBeforeParts: "the marker leads Recovery to parts as well; with the entry first the ID is taken with one request",
	ruleWithdrawMatch:    "Recovery leaves a plan alone that is whole, so the object is still the one that came too late",
	ruleUnknown:          "it takes two updaters of a blob, one of them without a version",
	ruleEntryAfterParts:  "the markers lead Recovery to parts as well; with the entry last another Create is refused by one request",
	ruleDeleteMatch:      "it is against a copy of the request that comes when the ID is in use again",
	ruleRecoveryLooks:    "listings of the model do not lag behind",
}

// TestRules takes away one rule after the other.
func TestRules(t *testing.T) {
	for r := range rules {
		s, isNeeded := needed[r]
		if _, isSpare := spare[r]; isNeeded == isSpare {
			t.Errorf("%s: is it needed or spare?", r)
		}
		if !isNeeded || (testing.Short() || raced) && len(s.roles) > 2 {
			continue
		}
		s.lacking = setOf(r)
		t.Run(r.String(), func(t *testing.T) {
			found := s.explore()
			t.Logf("%d states: %s", found.states, found.violation)
			if found.violation == "" {
				t.Errorf("%s: nothing is found", s)
			}
		})
	}
}

// TestSpareRules holds the table to what it says.
func TestSpareRules(t *testing.T) {
	if testing.Short() || raced {
		t.Skip("it goes through all small situations once for each rule")
	}
	for r := range spare {
		for _, s := range small {
			s.lacking = setOf(r)
			if found := s.explore(); found.violation != "" {
				t.Errorf("%s is needed: %s: %s\n  %s", r, s, found.violation, strings.Join(found.path, "\n  "))
			}
		}
	}
	s := situation{roles: of(creating, recovering), frozen: true, lacking: setOf(ruleClock, ruleDeadline)}
	if s.explore().violation == "" {
		t.Error("with neither clock nor deadline nothing is found")
	}
}

// TestLimits shows that the model finds what docs/protocol.md says is not covered.
func TestLimits(t *testing.T) {
	for _, s := range []situation{
		{roles: of(deleting, creating), plan: newPlan, tight: true},
		{roles: of(updating, deleting, creating), plan: runningPlan, tight: true},
		{roles: of(creating, creating, deleting), tight: true},
	} {
		if s.explore().violation == "" {
			t.Errorf("%s: nothing is found", s)
		}
	}
}

// TestNamesOfSteps holds the model's steps to the words that the vault's errors have for them.
func TestNamesOfSteps(t *testing.T) {
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
	steps := stepNames(t)
	if len(steps) < 20 {
		t.Errorf("only %d steps: %v", len(steps), steps)
	}
	for step := range steps {
		// The kind of an object is put behind a verb: "write " + kind.
		verb := strings.TrimSuffix(strings.TrimSuffix(step, "action"), "plan")
		if !literals[step] && (verb == step || !literals[verb]) {
			t.Errorf("the vault has no step %q", step)
		}
	}
}

// stepNames are the names of all requests that come up.
func stepNames(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for _, s := range append([]situation{
		{roles: of(creating, creating, recovering)},
		{roles: of(recovering), plan: completedPlan},
	}, small...) {
		if len(s.roles) > 2 && (testing.Short() || raced) {
			continue
		}
		_, programs := s.run()
		for _, n := range programs {
			for _, r := range n.asks {
				if r.step != "" {
					names[r.step] = true
				}
			}
		}
	}
	return names
}
