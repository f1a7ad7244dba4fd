package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/audited"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/same"
	"github.com/planvault/azblob/internal/vaulttest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/memvault"
	"github.com/planvault/azblob/storage/mirror"
	"github.com/planvault/azblob/workflow"
)

// pastGrace is long enough for the vault to act on what a process that died has left.
const pastGrace = 15 * time.Minute

// bulkCase is a bulk command. In the end, however it was interrupted, the store must be as after a run that was not.
type bulkCase struct {
	name    string
	prepare func(t *testing.T, s *stage, w *history) // may be nil
	command []string
	// code is the exit code of the last run.
	code int
	// blocked is what a run may fail with that comes at once, while something that is left is too young to judge.
	blocked string
	reads   bool // the command changes nothing in the vault itself
	several bool // it works on several days or plans at a time
}

// history is what is stored before a bulk command: plans of past days. Open plans are among them.
type history struct {
	dir   string
	days  []time.Time // newest first
	plans map[uuid.UUID]*workflow.Plan
	// running is the Running plan.
	running uuid.UUID
	kept    string // the contents of the vault before the command
	// done is the state after the command, which sends a number of requests.
	done     []string
	requests int
	broken   bool // a plan is half deleted
}

// bulkCases are the commands that change much at once, or whose change takes long. The words DAYS, FILE, DIR, CONNECTION
// and RUNNING stand for the days of the history, a bundle of it, its folder, the account, and the Running plan.
func bulkCases() []bulkCase {
	first := func(command ...string) func(t *testing.T, s *stage, w *history) {
		return func(t *testing.T, s *stage, w *history) { s.must(t, w.words(s, command)...) }
	}
	copies := []string{"mirror", "--to-connection-string", "CONNECTION", "--to-prefix", "copy", "--delete"}
	return []bulkCase{
		{name: "purge", command: []string{"purge", "--name", "final"}, several: true},
		{name: "expire", command: []string{"expire", "--older-than", "5d"}, several: true},
		{name: "hold", command: []string{"hold", "DAYS"}},
		{name: "release", prepare: first("hold", "DAYS"), command: []string{"release", "DAYS"}},
		{name: "catalogue", command: []string{"recover", "--catalogue"}},
		{name: "export", command: []string{"export", "-o", "DIR/out.bundle"}, reads: true, several: true},
		{name: "import", command: []string{"import", "FILE", "--prefix", "copy"}, blocked: "conflict", reads: true, several: true},
		{name: "mirror", prepare: addToCopy, command: copies, blocked: "conflict", reads: true, several: true},
		{name: "switch", prepare: addToCopy, command: append([]string{"switch"}, copies[1:]...), blocked: "conflict", several: true},
		{name: "recover", prepare: breakOff, command: []string{"recover"}},
		{name: "fork", command: []string{"fork", "--from-start", "--name", "final", "--status", "failed,completed"}, blocked: "conflict", several: true},
		{name: "stop", command: []string{"stop", "--name", "final"}, code: exitFound, several: true}, // no node is alive to obey
		{
			name: "takeover", command: []string{"takeover", "RUNNING"},
			code:    exitFound,           // no node is alive that could run the plan
			blocked: "works on the plan", // the member of the first run
		},
	}
}

// addToCopy leaves a plan in the copy alone.
func addToCopy(t *testing.T, s *stage, w *history) {
	v := s.open(t, "copy")
	must(t, mirror.Adopt(t.Context(), mirror.Pair{Source: memvault.New(nil, memvault.Options{}), Copy: v}, workflow.Attribution{By: "ana"}))
	must(t, vaulttest.Offered[storage.Copier](v).RestoreCopy(t.Context(), planOf(workflow.NewV7At(w.days[0].Add(5*time.Hour)), workflow.Completed, "more")))
}

// breakOff leaves a plan half deleted.
func breakOff(t *testing.T, s *stage, w *history) {
	p := s.store(t, workflow.NewV7At(w.days[0].Add(5*time.Hour)), workflow.Completed, "half deleted")
	dying := s.server.Transport()
	dying.Inject(emulator.On(emulator.BatchDelete).Do(emulator.Crash()))
	w.broken = true
	if err := s.through(dying).open(t, prefix).Delete(t.Context(), p.ID); err == nil {
		t.Fatal("the delete was not broken off")
	}
	time.Sleep(pastGrace)
}

// state says what commands have done: which plans, containers, holds, catalogues, nodes and files there are.
func (w *history) state(t *testing.T, s *stage) (lines []string) {
	t.Helper()
	add := func(err error, values ...any) {
		if lines = append(lines, fmt.Sprintln(values...)); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{prefix, "copy"} {
		v := s.open(t, name)
		plans, err := storage.Collect(v.List(t.Context(), 0))
		add(err, name, len(plans), "plans")
		for _, r := range plans {
			p, readErr := v.Read(t.Context(), r.ID)
			same, err := same.Plan(p, cmp.Or(w.plans[r.ID], p))
			add(errors.Join(readErr, err), name, r.ID, p.State.Status, same, p.Epoch > 1)
		}
		held, err := v.Admin().Holds(t.Context())
		add(err, name, "is held", held)
		catalogues, err := v.Admin().Catalogue(t.Context(), azblob.CatalogueOptions{DryRun: true, Verify: true})
		add(err, name, catalogues.Present, len(catalogues.Built), "catalogues")
		if w.broken {
			report, err := v.Admin().Repair(audited.Mark(t.Context()), azblob.RepairOptions{DryRun: true})
			add(err, name, len(report.Plans), "plans to recover")
		}
		roster, err := v.Control().Roster(t.Context())
		alive := slices.ContainsFunc(roster.Members, func(m storage.Member) bool { return m.Renewed.Add(m.TTL).After(roster.Now) })
		add(err, name, alive, "a node is alive")
		for _, r := range roster.Stops {
			add(nil, name, r.Plan, "is asked to stop")
		}
		for _, n := range roster.Notes {
			add(nil, name, "has the note", n.Name)
		}
	}
	for container := range s.server.Containers() {
		add(nil, container)
	}
	add(nil, unsound(t, s.open(t, "copy")))
	files, err := filepath.Glob(w.dir + "/*")
	files = slices.DeleteFunc(files, func(name string) bool { return strings.HasPrefix(name, w.dir+"/kept") }) // each run has its own
	add(err, files)
	if len(files) > 1 {
		text, _, _ := strings.Cut(s.must(t, "import", "--verify-only", files[1]).stdout, "\n")
		add(nil, text)
	}
	return lines
}

// unsound returns what is wrong with a vault after the recovery that engines make.
func unsound(t *testing.T, v *azblob.Vault) (problems []string) {
	if err := v.Recovery(t.Context()); err != nil {
		problems = append(problems, err.Error())
	}
	report, err := v.Admin().Check(t.Context(), azblob.CheckOptions{})
	if err != nil || report.InProgress > 0 {
		problems = append(problems, fmt.Sprint(report.InProgress, " plans are in progress, ", err))
	}
	for _, p := range report.Problems {
		problems = append(problems, p.String())
	}
	return problems
}

// newHistory stores two days with final plans. The older one has open plans as well.
func newHistory(t *testing.T, s *stage, dir string) *history {
	t.Helper()
	w := &history{dir: dir, plans: map[uuid.UUID]*workflow.Plan{}}
	s.env["PLANVAULT_KEEP"] = dir + "/kept"
	newest := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -10)
	for d, statuses := range [][]workflow.Status{{workflow.Completed}, {workflow.Running, workflow.Failed, workflow.NotStarted}} {
		w.days = append(w.days, newest.AddDate(0, 0, -d))
		for i, status := range statuses {
			id := workflow.NewV7At(w.days[d].Add(time.Duration(i) * time.Hour))
			name := "final"
			if !status.Final() {
				name = "final, in the end" // the filters of a purge select it, too
			}
			plan := planOf(id, status, name)
			if status == workflow.Running {
				w.running, plan.Owner, plan.Epoch = id, workflow.NewV7(), 1 // of a node that is gone
			}
			must(t, s.vault.Restore(t.Context(), plan))
			w.plans[id] = plan
		}
	}
	return w
}

// words replaces the words in a command.
func (w *history) words(s *stage, command []string) (args []string) {
	r := strings.NewReplacer("DAYS", date(w.days[1])+".."+date(w.days[0]), "FILE", w.dir+"/all.bundle", "DIR", w.dir, "CONNECTION", s.server.ConnectionString(), "RUNNING", w.running.String())
	for _, arg := range command {
		args = append(args, r.Replace(arg))
	}
	return append(args, "--yes")
}

// on returns the stage with a copy of the account.
func (s *stage) on(t *testing.T) *stage {
	t.Helper()
	c := &stage{server: s.server.Clone(), env: maps.Clone(s.env), plugins: s.plugins}
	c.vault = c.open(t, prefix)
	return c
}

// interruptions return what happens at a request. Two of them are a Ctrl-C, which calls cancel.
func interruptions() []func(cancel func()) emulator.Effect {
	return []func(func()) emulator.Effect{
		emulator.Before, emulator.After,
		func(func()) emulator.Effect { return emulator.Crash().Applied() },
		func(func()) emulator.Effect { return emulator.LostAnswer() },
	}
}

// through returns the stage with another connection.
func (s *stage) through(network policy.Transporter) *stage {
	other := *s
	other.network = network
	return &other
}

// TestInterruptedBulkCommands ends each bulk command at its kth request, for every k, and runs it again. It must then
// have all of its effect, with every open plan as it was and nothing left behind.
func TestInterruptedBulkCommands(t *testing.T) {
	runs := efforttest.Pick(1, 6, math.MaxInt)
	for _, c := range bulkCases() {
		t.Run(c.name, func(t *testing.T) {
			if !c.several {
				efforttest.NotShort(t, efforttest.OneAtATime)
			}
			dir := t.TempDir()
			var base *stage
			var w *history
			synctest.Test(t, func(t *testing.T) { base, w = preparedFor(t, c, dir) })
			ways, n := interruptions(), 0
			stride := max(1, len(ways)*w.requests/runs)
			for i, how := range ways {
				for k := 1 + (2*i+1)*stride/(2*len(ways)); k <= w.requests; k += stride {
					n++
					synctest.Test(t, func(t *testing.T) { interrupted(t, c, how, base.on(t), w, k) })
				}
			}
			t.Logf("%d runs over %d requests", n, w.requests)
		})
	}
}

// preparedFor returns an account with a history, brought to the state before a command.
func preparedFor(t *testing.T, c bulkCase, dir string) (*stage, *history) {
	t.Helper()
	s := newStage(t)
	w := newHistory(t, s, dir)
	s.must(t, "export", "-o", dir+"/all.bundle")
	if c.prepare != nil {
		c.prepare(t, s, w)
	}
	w.kept = contents(s)
	s.server.ResetRequests()
	alone := s.on(t)
	if r := alone.run(t.Context(), w.words(alone, c.command)...); r.code != c.code {
		t.Fatalf("%s, without an interruption: %+v", c.name, r)
	}
	w.requests = len(alone.server.Requests())
	w.done = w.state(t, alone)
	return s, w
}

// interrupted ends a command at its kth request, and runs it again: at once, and when the grace period has passed.
func interrupted(t *testing.T, c bulkCase, how func(func()) emulator.Effect, s *stage, w *history, k int) {
	t.Helper()
	_ = os.Remove(filepath.Join(w.dir, "out.bundle"))
	args := w.words(s, c.command)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(pastGrace, cancel) // somebody loses patience with a connection that is dead
	transport := s.server.Transport()
	rule := emulator.On().Nth(k).Do(how(cancel))
	transport.Inject(rule)
	first := s.through(transport).run(ctx, args...)
	said := strings.Contains(first.stderr, "again") || strings.Contains(first.stderr, untouched)
	if ctx.Err() != nil && first.code != c.code && (first.code != exitInterrupted || !said) {
		t.Error("an interrupted command must say so, and what to do")
	}
	again := s.run(t.Context(), args...)
	if again.code != c.code && again.code != exitDone && (c.blocked == "" || !strings.Contains(again.stderr, c.blocked)) {
		t.Errorf("again, at once: %+v", again)
	}
	if w.settle(t, s, c); t.Failed() {
		t.Errorf("%v: %+v", rule, first)
	}
}

// settle runs a command again when the grace period has passed. The store must then be as after a single run, with
// nothing left behind, and a vault that the command only reads as before.
func (w *history) settle(t *testing.T, s *stage, c bulkCase) {
	t.Helper()
	time.Sleep(pastGrace)
	again := s.run(t.Context(), w.words(s, c.command)...)
	if state := w.state(t, s); again.code != c.code || !slices.Equal(state, w.done) {
		t.Errorf("%s: the store is not as after a single run:\n%v\nwant\n%v\nagain: %+v", c.name, state, w.done, again)
	}
	if c.reads {
		if contents(s) != w.kept {
			t.Errorf("%s: the vault itself was changed", c.name)
		}
	} else if problems := unsound(t, s.vault); len(problems) > 0 {
		t.Errorf("%s: left behind: %q", c.name, problems)
	}
}

// twoProcesses is why a test needs no race detector.
const twoProcesses = "its commands stand for processes, which share no memory"

// TestBulkCommandsBesideThemselves runs two of each bulk command at once.
func TestBulkCommandsBesideThemselves(t *testing.T) {
	efforttest.NotShort(t, twoProcesses)
	for _, c := range bulkCases() {
		synctest.Test(t, func(t *testing.T) {
			dir := t.TempDir()
			base, w := preparedFor(t, c, dir)
			s := base.on(t)
			s.slow(10 * time.Millisecond)
			var both sync.WaitGroup
			var results [2]result
			for i := range results {
				both.Go(func() {
					time.Sleep(time.Duration(i) * time.Millisecond)
					results[i] = s.run(t.Context(), w.words(s, c.command)...)
				})
			}
			both.Wait()
			if w.settle(t, s, c); t.Failed() {
				t.Errorf("%s: %+v", c.name, results)
			}
		})
	}
}

// slow makes each request of a stage take some time.
func (s *stage) slow(by time.Duration) {
	s.server.Inject(emulator.On().Do(emulator.Before(func() { time.Sleep(by) })))
}
