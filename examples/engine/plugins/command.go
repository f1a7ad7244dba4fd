package plugins

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/plugins"
)

// Command runs a shell command.
type Command struct {
	// Dir is the folder to run it in; empty for that of the process.
	Dir string
}

// CommandRequest says what to run.
type CommandRequest struct {
	// Run is given to sh -c. The environment has the action's ID as ACTION_ID.
	Run string `json:"run"`
}

// CommandResponse says what it came to.
type CommandResponse struct {
	// Output is what it wrote to both of its outputs, the last 16 KiB of it.
	Output string `json:"output,omitempty"`
}

// Name is "command".
func (Command) Name() string { return "command" }

// Request is a CommandRequest.
func (Command) Request() any { return CommandRequest{} }

// Response is a CommandResponse.
func (Command) Response() any { return CommandResponse{} }

// Run runs the command, and kills it with its children when ctx ends. Where the engine itself is killed the command goes on,
// beside its repetition. An exit code other than 0 is a failure of that code.
func (c Command) Run(ctx context.Context, action uuid.UUID, req any) (any, error) {
	r, ok := req.(CommandRequest)
	if !ok || strings.TrimSpace(r.Run) == "" {
		return nil, permanent(`command: "run" is missing in the request`)
	}
	cmd := exec.CommandContext(ctx, "sh", "-c", r.Run)
	cmd.Dir = c.Dir
	cmd.Env = append(os.Environ(), "ACTION_ID="+action.String())
	cmd.WaitDelay = time.Second // where a child of its own left the group, and holds the outputs
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
