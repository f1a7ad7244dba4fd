package main

import (
	"context"
	"io"
	"strconv"
	"testing"

	"github.com/google/uuid"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/planvault/azblob/internal/goldentest"
)

// TestScripts runs the scripts of testdata/script. Each has a vault of its own, whose connection string is $CONNECTION,
// and these commands:
//
//	planvault ARGS...      runs the tool in this process; files need absolute names, such as $WORK/plan.html
//	code N                 the last run ended with exit code N
//	plan ID STATUS NAME    stores a plan, as stage.store does
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:           "testdata/script",
		UpdateScripts: goldentest.Updating(),
		Setup: func(e *testscript.Env) error {
			s, err := openStage(context.Background(), e.WorkDir)
			if err != nil {
				return err
			}
			e.Values[stageKey{}], e.Values[codeKey{}] = s, new(int)
			e.Setenv("CONNECTION", s.server.ConnectionString())
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"planvault": scriptPlanvault, "code": scriptCode, "plan": scriptPlan,
		},
	})
}

type (
	stageKey struct{}
	codeKey  struct{}
)

func scriptPlanvault(ts *testscript.TestScript, neg bool, args []string) {
	s := ts.Value(stageKey{}).(*stage)
	s.env["PLANVAULT_OUTPUT"] = ts.Getenv("PLANVAULT_OUTPUT")
	r := s.run(context.Background(), args...)
	_, _ = io.WriteString(ts.Stdout(), r.stdout)
	_, _ = io.WriteString(ts.Stderr(), r.stderr)
	*ts.Value(codeKey{}).(*int) = r.code
	if neg != (r.code != exitDone) {
		ts.Fatalf("exit code %d\n%s%s", r.code, r.stdout, r.stderr)
	}
}

func scriptCode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: code N")
	}
	if got := strconv.Itoa(*ts.Value(codeKey{}).(*int)); got != args[0] {
		ts.Fatalf("exit code %s, not %s", got, args[0])
	}
}

func scriptPlan(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: plan ID STATUS NAME")
	}
	id, err := uuid.Parse(args[0])
	ts.Check(err)
	statuses, err := parseStatuses(args[1])
	ts.Check(err)
	ts.Check(ts.Value(stageKey{}).(*stage).vault.Restore(context.Background(), planOf(id, statuses[0], args[2])))
}
