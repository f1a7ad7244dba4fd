package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/workflow"
)

// emulate runs the emulator on a free port. The function that it returns interrupts it, and returns its exit code.
func emulate(t *testing.T, args ...string) (emulation, func() int) {
	t.Helper()
	ctx, interrupt := context.WithCancel(t.Context())
	read, stdout := io.Pipe()
	code := make(chan int, 1)
	var stderr strings.Builder
	go func() {
		code <- run(ctx, process{stdin: strings.NewReader(""), stdout: stdout, stderr: &stderr, getenv: func(string) string { return "" }},
			append([]string{"emulator", "--listen", "127.0.0.1:0", "--output", "json"}, args...))
		stdout.Close()
	}()
	line, err := bufio.NewReader(read).ReadBytes('\n')
	if err != nil {
		t.Fatalf("%v: exit code %d: %s", err, <-code, stderr.String())
	}
	var served emulation
	if err := json.Unmarshal(line, &served); err != nil {
		t.Fatal(err)
	}
	return served, func() int {
		interrupt()
		return <-code
	}
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

// TestEmulator tries the tool as a stranger does.
func TestEmulator(t *testing.T) {
	served, stop := emulate(t, "--sample")
	if served.Plans != 31 || served.Prefix != samplePrefix {
		t.Errorf("%+v", served)
	}
	if got := countOn(t, served, served.Prefix); got != "31\n" {
		t.Errorf("%q plans", got)
	}
	if code := stop(); code != exitDone {
		t.Errorf("the emulator ended with exit code %d", code)
	}
}

// TestEmulatorOnFile stores a plan, and finds it after the emulator was stopped.
func TestEmulatorOnFile(t *testing.T) {
	data := filepath.Join(t.TempDir(), "plans.db")
	for _, there := range []string{"0\n", "1\n"} {
		served, stop := emulate(t, "--data", data)
		if got := countOn(t, served, "engine"); got != there {
			t.Errorf("%q plans", got)
		}
		v, err := azblob.NewFromConnectionString(t.Context(), "engine", served.ConnectionString, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := v.Create(t.Context(), &workflow.Plan{Name: "stays"}); err != nil {
			t.Error(err)
		}
		if code := stop(); code != exitDone {
			t.Errorf("the emulator ended with exit code %d", code)
		}
	}
}

// TestSampleOnce checks that sample plans are stored once.
func TestSampleOnce(t *testing.T) {
	server := emulator.New()
	for _, plans := range []int{31, 0} {
		if n, err := newApp(process{}).storeSample(t.Context(), server); n != plans || err != nil {
			t.Errorf("%d plans, %v", n, err)
		}
	}
}

func TestEmulatorInUse(t *testing.T) {
	served, stop := emulate(t)
	defer stop()
	s := newStage(t)
	address := strings.TrimSuffix(strings.TrimPrefix(served.URL, "http://"), "/"+emulator.DefaultAccount)
	for _, args := range []string{"emulator --listen " + address, "emulator --listen nowhere", "emulator --listen 127.0.0.1:0 --data /dev/null/none"} {
		if r := s.run(t.Context(), strings.Fields(args)...); r.code != exitFailed || !strings.HasPrefix(r.stderr, "planvault: emulator: ") {
			t.Errorf("%s: %+v", args, r)
		}
	}
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
