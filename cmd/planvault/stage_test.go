package main

import (
	"bytes"
	"context"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/merge"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/internal/settings"
	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/workflow"
)

// stage is an account with a vault, on which tests run the tool in this process.
type stage struct {
	server *emulator.Server
	vault  *azblob.Vault
	env    map[string]string
	// plugins are those of the vaults that are opened. The tool has none.
	plugins *registry.Register
	// network, if it is not nil, is in the place of the server's transport.
	network policy.Transporter
}

const prefix = "test"

func newStage(t *testing.T, options ...emulator.Options) *stage {
	t.Helper()
	s, err := openStage(t.Context(), t.TempDir(), options...)
	must(t, err)
	return s
}

// openStage returns a stage whose profiles are in a folder.
func openStage(ctx context.Context, dir string, options ...emulator.Options) (*stage, error) {
	server := emulator.New(merge.Fields(options...))
	s := &stage{server: server, plugins: plantest.Register(), env: map[string]string{
		"PLANVAULT_CONNECTION_STRING": server.ConnectionString(),
		"PLANVAULT_PREFIX":            prefix,
		"PLANVAULT_PROFILES":          filepath.Join(dir, "profiles.json"),
		"PLANVAULT_KEEP":              dir,
	}}
	var err error
	s.vault, err = s.openVault(ctx, prefix)
	return s, err
}

// openVault opens a vault of the account, on the stage's connection.
func (s *stage) openVault(ctx context.Context, prefix string) (*azblob.Vault, error) {
	return azblob.NewFromConnectionString(ctx, prefix, s.server.ConnectionString(), s.plugins, settings.Over(s.transport()))
}

// open opens a vault as openVault does.
func (s *stage) open(t *testing.T, prefix string) *azblob.Vault {
	t.Helper()
	v, err := s.openVault(t.Context(), prefix)
	must(t, err)
	return v
}

// transport returns the stage's connection.
func (s *stage) transport() policy.Transporter {
	if s.network != nil {
		return s.network
	}
	return s.server.Transport()
}

// result is what a run of the tool printed, and its exit code.
type result struct {
	code           int
	stdout, stderr string
}

// run runs the tool with arguments, as in a pipe.
func (s *stage) run(ctx context.Context, args ...string) result {
	return s.runAs(ctx, func(*process) {}, args...)
}

// runAs runs the tool in a process that change has changed.
func (s *stage) runAs(ctx context.Context, change func(p *process), args ...string) result {
	var stdout, stderr bytes.Buffer
	p := s.process(&stdout, &stderr)
	change(&p)
	code := run(ctx, p, args)
	return result{code, stdout.String(), stderr.String()}
}

func (s *stage) process(stdout, stderr io.Writer) process {
	network := s.transport()
	return process{
		stdin: strings.NewReader(""), stdout: stdout, stderr: stderr,
		getenv:  func(name string) string { return s.env[name] },
		options: []azblob.Options{settings.Over(network)}, transport: network,
		whoami: func() string { return "operator@desk" },
	}
}

// store stores a plan of a status under an ID. It was submitted at the time in the ID, began a second later, and took
// a minute if it is final.
func (s *stage) store(t *testing.T, id uuid.UUID, status workflow.Status, name string) *workflow.Plan {
	t.Helper()
	p := planOf(id, status, name)
	must(t, s.vault.Restore(t.Context(), p))
	return p
}

// planOf returns such a plan. The IDs of its sub-objects are those that follow id.
func planOf(id uuid.UUID, status workflow.Status, name string) *workflow.Plan {
	p := plantest.Sized(1, 1, 2)
	p.Name, p.SubmitTime = name, workflow.Time(id)
	next := id
	for o := range workflow.Walk(p) {
		h := o.Header()
		*h.ID, *h.PlanID, h.State.Status = next, id, status
		next[len(next)-1]++
		if status != workflow.NotStarted {
			h.State.Start = p.SubmitTime.Add(time.Second)
		}
		if status.Final() {
			h.State.End = p.SubmitTime.Add(61 * time.Second)
		}
	}
	return p
}

// must fails the test if err is not nil.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
