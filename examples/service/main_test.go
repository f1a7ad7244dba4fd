package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/storage/memvault"
	"github.com/planvault/azblob/workflow"
)

// TestHello runs the plan on a vault in memory, as a unit test of a task and a plan does. Waits take no time.
func TestHello(t *testing.T) {
	for whom, want := range map[string]workflow.Status{"world": workflow.Completed, "": workflow.Failed} {
		synctest.Test(t, func(t *testing.T) {
			vault := memvault.New(registry.Must(greet), memvault.Options{})
			e, err := engine.New(vault, engine.Options{UntilIdle: true})
			must(t, err)
			plan := hello(Greet{whom})
			submitted, err := e.Submit(t.Context(), plan)
			must(t, err)
			must(t, e.Run(t.Context()))
			plan, err = submitted.Wait(t.Context())
			must(t, err)
			attempts := plan.Blocks[0].Sequences[0].Actions[0].Attempts
			if said := attempts[0].Resp; plan.State.Status != want || want == workflow.Completed && said != "hello world" {
				t.Errorf("%q: %s, %+v", whom, plan.State.Status, attempts)
			}
		})
	}
}

// TestService submits a plan by HTTP, and ends the service when the plan has run.
func TestService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, shutdown := context.WithCancel(t.Context())
		defer shutdown()
		vault, l := memvault.New(registry.Must(greet), memvault.Options{}), pipes{make(chan net.Conn), make(chan struct{})}
		ended := make(chan error, 1)
		e, err := engine.New(vault, engine.Options{Fleet: &fleet.Options{}})
		must(t, err)
		go func() { ended <- serve(ctx, e, l) }()
		time.Sleep(time.Second) // virtual, until the engine has joined the fleet
		transport := &http.Transport{DialContext: l.dial}
		defer transport.CloseIdleConnections()
		client := http.Client{Transport: transport}
		for body, want := range map[string]int{`{"Whom": "world"}`: http.StatusAccepted, `{"Whom": 7}`: http.StatusBadRequest, `{"Whom": "`: http.StatusBadRequest} {
			resp, err := client.Post("http://service/plans", "application/json", strings.NewReader(body))
			must(t, err)
			text, err := io.ReadAll(resp.Body)
			must(t, err)
			must(t, resp.Body.Close())
			if resp.StatusCode != want {
				t.Errorf("%s: %s %s", body, resp.Status, text)
			}
			if want != http.StatusAccepted {
				continue
			}
			time.Sleep(time.Minute)
			id, err := uuid.Parse(strings.TrimSpace(string(text)))
			must(t, err)
			if plan, err := vault.Read(t.Context(), id); err != nil || plan.State.Status != workflow.Completed {
				t.Errorf("%+v, %v", plan, err)
			}
		}
		shutdown()
		must(t, <-ended)
	})
}

// pipes is a listener in memory, as synctest needs it.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (p pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.conns <- server:
		return client, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p pipes) Close() error   { close(p.closed); return nil }
func (p pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes"} }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
