package main

import (
	"context"
	"errors"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/goldentest"
	"github.com/planvault/azblob/workflow"
)

// TestScripts runs the scripts of testdata/script. Each has a vault of its own, whose connection string is $CONNECTION,
// and these commands:
//
//	planvault ARGS...      runs the tool in this process; files need absolute names, such as $WORK/plan.html
//	fails N ARGS...        the same for a run that ends with exit code N
//	plan ID STATUS NAME    stores a plan, as stage.store does
//	keyed ID KEY           stores a plan that has a key, and lets a node claim it, which leaves then
//	damage KEY             damages the record of a key
//	place ID [asleep]      claims a plan for an engine of another kind, and lets it sleep for an hour
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:           "testdata/script",
		UpdateScripts: goldentest.Updating(),
		Setup: func(e *testscript.Env) error {
			s, err := openStage(context.Background(), e.WorkDir)
			if err != nil {
				return err
			}
			e.Values[stageKey{}] = s
			e.Setenv("CONNECTION", s.server.ConnectionString())
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"planvault": func(ts *testscript.TestScript, neg bool, args []string) {
				if r := scriptRun(ts, args); neg != (r.code != exitDone) {
					ts.Fatalf("exit code %d\n%s%s", r.code, r.stdout, r.stderr)
				}
			},
			"fails": scripted("N ARGS...", 1, func(ts *testscript.TestScript, _ *stage, args []string) {
				if r := scriptRun(ts, args[1:]); strconv.Itoa(r.code) != args[0] {
					ts.Fatalf("exit code %d, not %s\n%s%s", r.code, args[0], r.stdout, r.stderr)
				}
			}),
			"plan":  scripted("ID STATUS NAME [LABELS [SUBMITTER]]", 3, scriptPlan),
			"place": scripted("ID [asleep]", 1, scriptPlace),
			"keyed": scripted("ID KEY", 2, scriptKeyed),
			"damage": scripted("key:NAME|unique:NAME", 1, func(ts *testscript.TestScript, s *stage, args []string) {
				if !s.server.Corrupt(prefix+"-control", "keys/"+strings.Replace(args[0], ":", "_3a", 1), func([]byte) []byte { return []byte("{") }) {
					ts.Fatalf("key %s has no record", args[0])
				}
			}),
		},
	})
}

type stageKey struct{}

// scripted returns a command of scripts that has at least a number of arguments.
func scripted(usage string, least int, do func(ts *testscript.TestScript, s *stage, args []string)) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, neg bool, args []string) {
		if neg || len(args) < least {
			ts.Fatalf("usage: %s", usage)
		}
		do(ts, ts.Value(stageKey{}).(*stage), args)
	}
}

func scriptRun(ts *testscript.TestScript, args []string) result {
	s := ts.Value(stageKey{}).(*stage)
	s.env["PLANVAULT_OUTPUT"] = ts.Getenv("PLANVAULT_OUTPUT")
	r := s.run(context.Background(), args...)
	_, _ = io.WriteString(ts.Stdout(), r.stdout)
	_, _ = io.WriteString(ts.Stderr(), r.stderr)
	return r
}

// scriptID parses the ID of a plan.
func scriptID(ts *testscript.TestScript, text string) uuid.UUID {
	id, err := uuid.Parse(text)
	ts.Check(err)
	return id
}

func scriptPlan(ts *testscript.TestScript, s *stage, args []string) {
	statuses, err := parseStatuses(args[1])
	ts.Check(err)
	p := planOf(scriptID(ts, args[0]), statuses[0], args[2])
	if len(args) > 3 && args[3] != "" {
		p.Labels, err = workflow.ParseLabels(args[3])
		ts.Check(err)
	}
	if len(args) > 4 {
		p.Submitted.By = args[4]
	}
	ts.Check(s.vault.Restore(context.Background(), p))
}

func scriptPlace(ts *testscript.TestScript, s *stage, args []string) {
	ctx := context.Background()
	p, err := fleet.NewPlacer(s.vault, fleet.PlacerOptions{})
	ts.Check(err)
	c, err := p.Claim(scriptID(ts, args[0]), fleet.ClaimOptions{External: workflow.External{Name: "queue", Ask: "queue show"}})
	ts.Check(err)
	defer c.Release()
	plan, err := c.Take(ctx)
	ts.Check(err)
	if len(args) > 1 {
		ts.Check(c.Sleep(ctx, plan, c.Now().Add(time.Hour), fleet.MaxSignals))
	}
}

func scriptKeyed(ts *testscript.TestScript, s *stage, args []string) {
	p := planOf(scriptID(ts, args[0]), workflow.NotStarted, "keyed")
	if name, unique := fleet.KeyOf(args[1]); unique {
		p.Unique = name
	} else {
		p.Keys = []workflow.Key{{Name: name}}
	}
	ctx := context.Background()
	ts.Check(s.vault.Restore(ctx, p))
	n, err := fleet.Join(ctx, s.vault, fleet.Options{})
	ts.Check(err)
	p, err = s.vault.Read(ctx, p.ID)
	ts.Check(err)
	if err := n.Claim(ctx, p); !errors.Is(err, fleet.ErrNoTurn) {
		ts.Check(err)
	}
	ts.Check(n.Leave(ctx))
}
