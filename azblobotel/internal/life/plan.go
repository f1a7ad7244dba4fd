package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/azblobotel"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// live takes a plan through its life, within one span.
func live(ctx context.Context, provider trace.TracerProvider) error {
	observer, err := azblobotel.New(azblobotel.WithTracerProvider(provider))
	if err != nil {
		return err
	}
	service := emulator.New(emulator.WithLatency(latency))
	service.Inject(emulator.On(emulator.PutBlob).Path("actions/*/*").Nth(1).Do(emulator.Answer(503, "ServerBusy")))
	ctx, span := provider.Tracer("life").Start(ctx, "the life of a plan")
	defer span.End()
	var processes [2]*azblob.Vault
	for i := range processes {
		processes[i], err = azblob.NewFromConnectionString(ctx, "life", service.ConnectionString(), nil,
			azblob.WithTransport(service.Transport()), azblob.WithObserver(observer))
		if err != nil {
			return err
		}
	}
	return both(ctx, processes[0], processes[1])
}

// both lets the first process run a plan, which the second one tries to begin, too.
func both(ctx context.Context, first, second *azblob.Vault) error {
	plan := &workflow.Plan{Name: "release", Blocks: []*workflow.Block{{
		Name: "deploy", Sequences: []*workflow.Sequence{{Actions: []*workflow.Action{{Name: "copy", Plugin: "copy"}}}},
	}}}
	if err := first.Create(ctx, plan); err != nil {
		return err
	}
	stale, err := second.Read(ctx, plan.ID)
	if err != nil {
		return err
	}
	if err := set(ctx, first, plan, workflow.Running); err != nil {
		return err
	}
	if err := set(ctx, second, stale, workflow.Running); !errors.Is(err, storage.ErrConflict) {
		return fmt.Errorf("the second process got %w, want a conflict", err)
	}
	parts := workflow.Parts(plan)
	for _, status := range []workflow.Status{workflow.Running, workflow.Completed} {
		for _, part := range parts {
			if err := set(ctx, first, part, status); err != nil {
				return err
			}
		}
	}
	if err := set(ctx, first, plan, workflow.Completed); err != nil {
		return err
	}
	if _, err := first.Read(ctx, plan.ID); err != nil {
		return err
	}
	return errors.Join(first.Close(ctx), second.Close(ctx))
}

// set stores an object with a new status.
func set(ctx context.Context, vault storage.Vault, o workflow.Object, status workflow.Status) error {
	state := o.Header().State
	state.Status = status
	if status == workflow.Running {
		state.Start = time.Now().UTC()
	} else {
		state.End = time.Now().UTC()
	}
	return storage.Update(ctx, vault, o)
}
