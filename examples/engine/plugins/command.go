package plugins

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
)

// Command runs a shell command.
type Command struct {
	// Dir is the folder to run it in; empty means the working directory.
	Dir string
}

// CommandRequest is the request of [Command].
type CommandRequest struct {
	// Run is passed to sh -c. The environment variable ACTION_ID holds the action's ID, and
	// PLAN_EPOCH the epoch of its plan.
	Run string `json:"run"`
}

// CommandResponse is the response of [Command].
type CommandResponse struct {
	// Output holds the last 16 KiB of standard output and standard error.
	Output string `json:"output,omitempty"`
}

// Run runs the command, and kills it and its children when ctx ends. If the engine itself is killed, the
// command continues beside its rerun. An exit code other than 0 is a failure with that code.
func (c Command) Run(ctx context.Context, call engine.Call, r CommandRequest) (CommandResponse, error) {
	if strings.TrimSpace(r.Run) == "" {
		return CommandResponse{}, permanent(`command: "run" is missing in the request`)
	}
	cmd := exec.CommandContext(ctx, "sh", "-c", r.Run)
	cmd.Dir = c.Dir
	cmd.Env = append(os.Environ(), "ACTION_ID="+call.Action.String(), fmt.Sprint("PLAN_EPOCH=", call.Epoch))
	cmd.WaitDelay = time.Second // a child that left the group may hold the outputs
	apart(cmd)
	var out tail
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	resp := CommandResponse{Output: strings.ToValidUTF8(string(out.text), "\uFFFD")}
	var exit *exec.ExitError
	switch {
	case err == nil:
		return resp, nil
	case ctx.Err() != nil:
		return resp, ctx.Err()
	case errors.As(err, &exit):
		return resp, &plugins.Error{Code: exit.ExitCode(), Message: "command: " + exit.String() + ": " + lastLine(resp.Output)}
	}
	return resp, err
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndexByte(text, '\n')+1:]
}
