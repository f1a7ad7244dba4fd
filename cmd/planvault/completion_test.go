package main

import (
	"strings"
	"testing"

	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/workflow"
)

func TestCompletion(t *testing.T) {
	s := newStage(t)
	for n, name := range []string{"old", "new \x1b[31m"} {
		if _, err := s.store(t.Context(), planID(n), workflow.Failed, name); err != nil {
			t.Fatal(err)
		}
	}
	if r := s.run(t.Context(), "profile", "set", "prod"); r.code != exitDone {
		t.Fatalf("%+v", r)
	}
	const newer, older = "Failed new \\x1b[31m\n", "Failed old\n"
	for args, want := range map[string]string{
		"list --status ":                     "notstarted\nrunning\ncompleted\nfailed\nstopped\nopen\nfinal\n:4\n",
		"list --output ":                     "table\njson\n:4\n",
		"list --profile ":                    "prod\n:4\n",
		"profile remove ":                    "prod\n:4\n",
		"count --by ":                        "status\ngroup\nday\n:4\n",
		"list ":                              ":4\n",
		"search ":                            planID(1).String() + "\t" + newer + planID(0).String() + "\t" + older + ":36\n",
		"search " + planID(1).String() + " ": planID(0).String() + "\t" + older + ":36\n",
		"list --page ":                       planID(1).String() + "\t" + newer + planID(0).String() + "\t" + older + ":36\n",
	} {
		r := s.run(t.Context(), append([]string{"__complete"}, strings.Split(args, " ")...)...)
		if r.code != exitDone || r.stdout != want {
			t.Errorf("%s: exit code %d\n%s", args, r.code, r.stdout)
		}
	}
}

// TestCompletionWithoutVault checks that a shell is not kept waiting, and shows no error.
func TestCompletionWithoutVault(t *testing.T) {
	s := newStage(t)
	s.server.Inject(emulator.On().Do(emulator.Answer(403, "AuthorizationFailure")))
	if r := s.run(t.Context(), "__complete", "search", ""); r.code != exitDone || r.stdout != ":36\n" {
		t.Errorf("%+v", r)
	}
	s.env = map[string]string{"PLANVAULT_PROFILES": "none"}
	if r := s.run(t.Context(), "__complete", "search", ""); r.code != exitDone || r.stdout != ":4\n" {
		t.Errorf("%+v", r)
	}
}
