package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/workflow"
)

// emulate runs the emulator on a free port until stop interrupts it.
func emulate(t *testing.T, args ...string) (served emulation, stop func() result) {
	t.Helper()
	said, stop := newStage(t).serve(t, append([]string{"emulator", "--listen", "127.0.0.1:0", "--output", "json"}, args...)...)
	must(t, json.Unmarshal([]byte(said), &served))
	return served, stop
}

// countOn returns what planvault count prints for a vault of an emulator, over sockets.
func countOn(t *testing.T, served emulation, prefix string) string {
	t.Helper()
	env := map[string]string{"PLANVAULT_CONNECTION_STRING": served.ConnectionString, "PLANVAULT_PREFIX": prefix}
	var stdout, stderr strings.Builder
	if code := run(t.Context(), process{stdout: &stdout, stderr: &stderr, getenv: func(name string) string { return env[name] }}, []string{"count"}); code != exitDone {
		t.Errorf("exit code %d: %s", code, stderr.String())
	}
	return stdout.String()
}

// TestEmulator tries the tool as a stranger does: on a sample that stays in a file. Sample plans are stored once, and a plan
// is found after the emulator was stopped.
func TestEmulator(t *testing.T) {
	efforttest.NotShort(t, "the emulator's own tests run its server under the race detector")
	data := filepath.Join(t.TempDir(), "plans.db")
	for _, want := range []struct {
		stored int
		count  string
	}{{31, "31\n"}, {0, "32\n"}} {
		served, stop := emulate(t, "--data", data, "--sample")
		if served.Plans != want.stored || served.Prefix != samplePrefix {
			t.Errorf("%+v", served)
		}
		if got := countOn(t, served, served.Prefix); got != want.count {
			t.Errorf("%q plans", got)
		}
		v, err := azblob.NewFromConnectionString(t.Context(), served.Prefix, served.ConnectionString, nil, azblob.Options{})
		must(t, err)
		if err := v.Create(t.Context(), &workflow.Plan{Name: "stays"}); err != nil {
			t.Error(err)
		}
		if r := stop(); r.code != exitDone {
			t.Errorf("the emulator ended with %+v", r)
		}
	}
}

func TestEmulatorInUse(t *testing.T) {
	served, stop := emulate(t)
	defer stop()
	address := strings.TrimSuffix(strings.TrimPrefix(served.URL, "http://"), "/"+emulator.DefaultAccount)
	newStage(t).says(t, exitFailed, "planvault: emulator: ", "emulator", "--listen", address)
}

// TestFirstWords checks what a stranger reads first.
func TestFirstWords(t *testing.T) {
	for _, c := range []struct {
		emulation
		want string
	}{
		{emulation{URL: "http://127.0.0.1:10000/x", ConnectionString: "UseDevelopmentStorage=true"}, "PLANVAULT_PREFIX=engine\n    go run "},
		{emulation{URL: "http://127.0.0.1:10000/x", Prefix: "sample", Data: "plans.db"}, "PLANVAULT_PREFIX=sample\n    planvault list"},
	} {
		var b strings.Builder
		c.print(&b)
		if !strings.Contains(b.String(), c.want) {
			t.Errorf("%s", b.String())
		}
	}
}
