package main

import (
	"testing"

	"github.com/planvault/azblob/emulator"
)

// TestCompletionWithoutVault checks that a shell is not kept waiting, and shows no error.
func TestCompletionWithoutVault(t *testing.T) {
	s := newStage(t)
	s.server.Inject(emulator.On().Do(emulator.Answer(403, "AuthorizationFailure")))
	if r := s.run(t.Context(), "__complete", "list", ""); r.code != exitDone || r.stdout != ":36\n" {
		t.Errorf("%+v", r)
	}
	s.env = map[string]string{"PLANVAULT_PROFILES": "none"}
	if r := s.run(t.Context(), "__complete", "list", ""); r.code != exitDone || r.stdout != ":4\n" {
		t.Errorf("%+v", r)
	}
}
