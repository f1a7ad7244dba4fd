package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/plugins"
	"github.com/planvault/azblob/workflow"
)

// Command is the request of the plugin command.
type Command struct {
	// Run is passed to sh -c. The environment has the action's ID as ACTION_ID, and the epoch of its plan as
	// PLAN_EPOCH.
	Run string `json:"run"`
}

// command returns a plugin that runs shell commands in a folder. Its response is the output. If the engine is
// killed, the command continues beside its rerun.
func command(dir string) engine.Plugin {
	return engine.Task("command", func(ctx context.Context, call engine.Call, r Command) (string, error) {
		// An interrupt from the terminal reaches the command, too, and the engine waits for its end.
		cmd := exec.CommandContext(ctx, "sh", "-c", "trap '' INT\n"+r.Run)
		cmd.Dir, cmd.WaitDelay = dir, time.Second
		cmd.Env = append(os.Environ(), "ACTION_ID="+call.Action.String(), fmt.Sprint("PLAN_EPOCH=", call.Epoch))
		out, err := cmd.CombinedOutput()
		text := strings.ToValidUTF8(string(out), "\uFFFD")
		if exit, ok := errors.AsType[*exec.ExitError](err); ok && ctx.Err() == nil {
			err = &plugins.Error{Code: exit.ExitCode(), Message: exit.String() + ": " + strings.TrimSpace(text)}
		}
		return text, err
	})
}

// Note is the request of the plugin note.
type Note struct {
	Text string `json:"text"`
}

// notes is the name of the file of the plugin note.
const notes = "notes.log"

// note returns a plugin that adds lines to a file. Each begins with the action's ID, which shows the lines of
// reruns.
func note(file string) engine.Plugin {
	return engine.Task("note", func(_ context.Context, call engine.Call, r Note) (int, error) {
		f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			return 0, err
		}
		n, err := fmt.Fprintln(f, call.Action, r.Text)
		return n, errors.Join(err, f.Sync(), f.Close())
	})
}

// release is the built-in plan: the release of a service, from the build to the announcement, in about half a
// minute. Each region is a file with the version that it runs.
func release(service, version string) *workflow.Plan {
	shell := func(name, run string, args ...any) *workflow.Action {
		return &workflow.Action{Name: name, Plugin: "command", Timeout: time.Minute, Retries: 1, Req: Command{Run: fmt.Sprintf(run, args...)}}
	}
	runs := func(name, region string) *workflow.Action {
		return shell(name, "grep -q %s %s-%s", version, service, region)
	}
	install := func(region string) []*workflow.Action {
		return []*workflow.Action{
			shell("drain", "sleep 3"),
			shell("install", "echo %s > %s-%s", version, service, region),
			shell("restart", "sleep 4"),
			runs("probe", region),
		}
	}
	one := func(a ...*workflow.Action) *workflow.Checks { return &workflow.Checks{Actions: a, Delay: time.Second} }
	return &workflow.Plan{
		Name:         "release " + service + " " + version,
		BypassChecks: one(runs("released already?", "asia")),
		PreChecks:    one(shell("disk has room", "df -P .")),
		ContChecks:   one(shell("disk still has room", "df -P .")),
		PostChecks:   one(runs("eu has it", "eu"), runs("asia has it", "asia")),
		Blocks: []*workflow.Block{
			{Name: "build", Sequences: []*workflow.Sequence{{Name: "binary", Actions: []*workflow.Action{
				shell("compile", "sleep 3"),
				// The tests fail once, to show a retry.
				shell("tests", "test -e %[1]s-cache || { touch %[1]s-cache; echo the cache is cold; exit 1; }", service),
			}}}},
			{
				Name: "canary", ExitDelay: 3 * time.Second, PostChecks: one(runs("canary serves it", "canary")),
				Sequences: []*workflow.Sequence{{Name: "canary", Actions: install("canary")}},
			},
			{
				Name: "roll out", Concurrency: 2, ToleratedFailures: 1,
				ContChecks: one(runs("canary stays well", "canary")),
				Sequences:  []*workflow.Sequence{{Name: "eu", Actions: install("eu")}, {Name: "asia", Actions: install("asia")}},
			},
		},
		DeferredActions: &workflow.DeferredActions{Batches: []*workflow.DeferBatch{
			{Name: "announce", When: workflow.OnSuccess, Actions: []*workflow.Action{{Name: "tell everybody", Plugin: "note", Req: Note{service + " " + version + " is released"}}}},
			{Name: "roll back", When: workflow.OnFailure, Actions: []*workflow.Action{{Name: "page the operator", Plugin: "note", Req: Note{service + " " + version + " failed"}}}},
			{Name: "clean up", When: workflow.Always, Actions: []*workflow.Action{shell("remove leftovers", "sleep 1; rm -f %s-cache", service)}},
		}},
	}
}
