package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// Greet is the request of the task.
type Greet struct{ Whom string }

// greet is what plans do. It may run twice: call.Action is the idempotency key.
var greet = engine.Task("greet", func(_ context.Context, _ engine.Call, req Greet) (string, error) {
	if req.Whom == "" {
		return "", errors.New("there is nobody to greet")
	}
	return "hello " + req.Whom, nil
})

// hello returns a plan.
func hello(req Greet) *workflow.Plan {
	return &workflow.Plan{Name: "hello", Labels: map[string]string{"by": "service"}, Blocks: []*workflow.Block{{
		Sequences: []*workflow.Sequence{{Actions: []*workflow.Action{greet.Action("say hello", req)}}},
	}}}
}

// submits returns the handler that stores plans. Once it has answered 202, the plan will run, whatever becomes of this
// process.
func submits(e *engine.Engine) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /plans", func(w http.ResponseWriter, r *http.Request) {
		var req Greet
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&req); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		plan := hello(req)
		switch _, err := e.Submit(r.Context(), plan); {
		case errors.Is(err, storage.ErrInvalid):
			http.Error(w, err.Error(), http.StatusBadRequest)
		case err != nil: // of ErrUnknown, the plan may have been stored
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		default:
			w.WriteHeader(http.StatusAccepted)
			fmt.Fprintln(w, plan.ID)
		}
	})
	return mux
}
