package main

import (
	"context"
	"errors"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"go.opentelemetry.io/otel/trace"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/azblobotel"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// live takes a plan through its life, within one span.
func live(ctx context.Context, provider trace.TracerProvider) error {
	observer, err := azblobotel.New(azblobotel.Options{TracerProvider: provider})
	if err != nil {
		return err
	}
	service := emulator.New(emulator.Options{Latency: latency})
	service.Inject(emulator.On(emulator.PutBlob).Path("actions/*/*").Nth(1).Do(emulator.Answer(503, "ServerBusy")))
	ctx, span := provider.Tracer("life").Start(ctx, "the life of a plan")
	defer span.End()
	var processes [2]*azblob.Vault
	for i := range processes {
		processes[i], err = azblob.NewFromConnectionString(ctx, "life", service.ConnectionString(), nil,
			azblob.Options{ClientOptions: policy.ClientOptions{Transport: service.Transport()}, Observer: observer})
		if err != nil {
			return err
		}
	}
	first, second := processes[0], processes[1]
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
	steps := []step{{first, plan, workflow.Running}, {second, stale, workflow.Running}}
	for _, status := range []workflow.Status{workflow.Running, workflow.Completed} {
		for _, part := range workflow.Parts(plan) {
			steps = append(steps, step{first, part, status})
		}
	}
	for _, s := range append(steps, step{first, plan, workflow.Completed}) {
		s.object.Header().State.Status = s.status
		if err := storage.Update(ctx, s.vault, s.object); err != nil && (s.vault != second || !errors.Is(err, storage.ErrConflict)) {
			return err
		}
	}
	_, err = first.Read(ctx, plan.ID)
	return errors.Join(err, first.Close(ctx), second.Close(ctx))
}

// step is an update of an object by a process.
type step struct {
	vault  storage.Vault
	object workflow.Object
	status workflow.Status
}
