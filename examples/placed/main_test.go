package main

import (
	"os"
	"os/exec"
	"regexp"
	"testing"
)

// queueProcess makes the test binary the queue.
const queueProcess = "PLACED_QUEUE"

func TestMain(m *testing.M) {
	if os.Getenv(account) != "" || os.Getenv(queueProcess) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// TestPlaced runs the example. It checks itself, and prints what readers look for.
func TestPlaced(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), queueProcess+"=1")
	out, err := cmd.CombinedOutput()
	want := `(?s)worker (\d) runs plan A in epoch 1.*was killed in step 3.*plan A is for the next one, with epoch 1.*runs plan A in epoch 2.*, \d+\.\d s after the kill.*plan A is Completed`
	if err != nil || !regexp.MustCompile(want).Match(out) {
		t.Errorf("%v\n%s", err, out)
	}
}
