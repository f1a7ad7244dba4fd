package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/planvault/azblob/storage"
)

// TestFork runs a plan whose second action fails, repairs what made it fail, and runs what is left of the plan.
func TestFork(t *testing.T) {
	data, dir := t.TempDir(), t.TempDir()
	file, runs, repaired := filepath.Join(dir, "plan.json"), filepath.Join(dir, "runs"), filepath.Join(dir, "repaired")
	text := fmt.Sprintf(`{"name":"move","blocks":[{"name":"b","sequences":[{"name":"s","actions":[
		{"name":"first","plugin":"command","req":{"run":"echo first >> %s"}},
		{"name":"second","plugin":"command","req":{"run":"test -f %s && echo second >> %s"}}]}]}]}`, runs, repaired, runs)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, out, errs := command(t, data, "-plan", file, "-poll", "1ms"); code != exitFail || !strings.Contains(out, "move is Failed") {
		t.Fatalf("code %d: %s%s", code, out, errs)
	}
	o, err := open(t.Context(), config{data: data, prefix: "engine"}, unsaid)
	if err != nil {
		t.Fatal(err)
	}
	plans, err := storage.Collect(o.List(t.Context(), 1))
	if err := o.close(); err != nil {
		t.Error(err)
	}
	if err != nil || len(plans) != 1 {
		t.Fatalf("%v, %v", plans, err)
	}

	if err := os.WriteFile(repaired, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	id := plans[0].ID.String()
	if code, out, errs := command(t, data, "-fork", id, "-submit"); code != exitDone || !strings.Contains(out, "submitted plan") {
		t.Errorf("code %d: %s%s", code, out, errs)
	}
	code, out, errs := command(t, data, "-fork", id, "-poll", "1ms") // runs the fork that is there, and makes no other
	if code != exitDone || strings.Count(out, "move is Completed") != 1 {
		t.Errorf("code %d: %s%s", code, out, errs)
	}
	if got, err := os.ReadFile(runs); err != nil || string(got) != "first\nsecond\n" {
		t.Errorf("the actions ran as %q, %v", got, err)
	}
}
