package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

func noEnv(string) string { return "" }

// command runs the program with its data in a folder.
func command(t *testing.T, data string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(t.Context(), append(args, "-data", data), noEnv, &out, &errs)
	return code, out.String(), errs.String()
}

func TestWrongFlags(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, test := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"-h"}, exitDone, "usage: engine"},
		{[]string{"-nonsense"}, exitMisuse, "not defined"},
		{[]string{"extra"}, exitMisuse, "unexpected argument"},
		{[]string{"-endpoint", "a", "-connection-string", "b"}, exitMisuse, "exclude each other"},
		{[]string{"-msi", "a"}, exitMisuse, "-msi is for -endpoint"},
		{[]string{"-data", ""}, exitMisuse, "-data is empty"},
		{[]string{"-submit", "-serve"}, exitMisuse, "give one of them"},
		{[]string{"-poll", "0s"}, exitMisuse, "-poll must be more than 0"},
		{[]string{"-plan", filepath.Join(dir, "none")}, exitMisuse, "-plan: open"},
		{[]string{"-plan", write("text", "hello")}, exitMisuse, "is no plan"},
		{[]string{"-plan", write("empty", "{}")}, exitMisuse, `has no "blocks"`},
		{[]string{"-plan", write("plugin", `{"blocks":[{"sequences":[{"actions":[{"name":"a","plugin":"nobody"}]}]}]}`), "-data", dir}, exitFail, `needs plugin "nobody"`},
		{[]string{"-plan", write("request", `{"blocks":[{"sequences":[{"actions":[{"plugin":"sleep","req":7}]}]}]}`), "-data", dir}, exitFail, "Blocks[0].Sequences[0].Actions[0].Req"},
		{[]string{"-prefix", "No Good", "-data", dir}, exitFail, "prefix"},
		{[]string{"-connection-string", "nonsense", "-data", dir}, exitFail, "connectionString"},
	} {
		t.Run(strings.Join(test.args, " "), func(t *testing.T) {
			var out, errs bytes.Buffer
			code := run(t.Context(), test.args, noEnv, &out, &errs)
			if code != test.code || !strings.Contains(errs.String(), test.want) || out.Len() > 0 && test.code == exitMisuse {
				t.Errorf("code %d: %s%s", code, out.String(), errs.String())
			}
		})
	}
}

func TestConnectionStringOfTheEnvironment(t *testing.T) {
	env := func(string) string { return "from the environment" }
	for _, test := range []struct {
		args []string
		want string
	}{
		{nil, "from the environment"},
		{[]string{"-data", "x"}, ""},
		{[]string{"-endpoint", "x"}, ""},
		{[]string{"-connection-string", "given"}, "given"},
	} {
		c, err := parse(test.args, env, &bytes.Buffer{})
		if err != nil || c.connectionString != test.want {
			t.Errorf("%q: %q, %v", test.args, c.connectionString, err)
		}
	}
}

// TestSubmitThenRun leaves a plan in the folder, and the next engine runs it.
func TestSubmitThenRun(t *testing.T) {
	data := t.TempDir()
	file := filepath.Join(t.TempDir(), "plan.json")
	plan := `{"name":"short","blocks":[{"name":"b","sequences":[{"name":"s","actions":[
		{"name":"write","plugin":"file","req":{"path":"it.txt","content":"here"}},
		{"name":"look","plugin":"command","req":{"run":"grep -q here it.txt"}}]}]}]}`
	if err := os.WriteFile(file, []byte(plan), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, out, errs := command(t, data, "-submit", "-plan", file); code != exitDone || !strings.Contains(out, `"short"`) {
		t.Fatalf("code %d: %s%s", code, out, errs)
	}
	code, out, errs := command(t, data, "-plan", file, "-poll", "1ms")
	if code != exitDone || strings.Count(out, "new plan short: 2 actions") != 1 || !strings.Contains(out, "short is Completed") {
		t.Errorf("code %d: %s%s", code, out, errs)
	}
	if _, err := os.Stat(filepath.Join(data, addressFile)); !os.IsNotExist(err) {
		t.Errorf("the address is left: %v", err)
	}
	// A plan that fails is told by the exit code.
	failing := strings.Replace(plan, "grep -q here", "grep -q nowhere", 1)
	if err := os.WriteFile(file, []byte(failing), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, out, _ := command(t, data, "-plan", file, "-poll", "1ms"); code != exitFail || !strings.Contains(out, "short is Failed") || !strings.Contains(out, "BlockFailed") {
		t.Errorf("code %d: %s", code, out)
	}
}

// TestSubmitBeside: where one process has the folder, others reach its vault: to leave a plan, not to work on it.
func TestSubmitBeside(t *testing.T) {
	data := t.TempDir()
	first, err := open(t.Context(), config{data: data, prefix: "engine"})
	if err != nil {
		t.Fatal(err)
	}
	if code, _, errs := command(t, data); code != exitFail || !strings.Contains(errs, "another process works on") {
		t.Errorf("code %d: %s", code, errs)
	}
	if code, out, errs := command(t, data, "-submit"); code != exitDone || !strings.Contains(out, "the process that works on") {
		t.Errorf("code %d: %s%s", code, out, errs)
	}
	found, err := first.Search(t.Context(), storage.Filters{ByStatus: []workflow.Status{workflow.NotStarted}})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for f := range found {
		if f.Err == nil && strings.HasPrefix(f.Result.Name, "release ") {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d plans were left", n)
	}
	// What a process that was killed has left behind is nobody's address.
	address, err := os.ReadFile(filepath.Join(data, addressFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := first.close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(data, addressFile), address, 0o600); err != nil {
		t.Fatal(err)
	}
	if code, out, errs := command(t, data, "-submit"); code != exitDone || !strings.Contains(out, "in this process") {
		t.Errorf("code %d: %s%s", code, out, errs)
	}
}

// TestInterrupt: the plan is left for the next start.
func TestInterrupt(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	out := &watched{wait: "compile: Running", then: interrupt}
	var errs bytes.Buffer
	code := run(ctx, []string{"-data", t.TempDir()}, noEnv, out, &errs)
	for _, want := range []string{"compile: Completed", "left as it stands", "the same command goes on"} {
		if code != exitFail || !strings.Contains(out.text.String(), want) {
			t.Errorf("code %d, without %q:\n%s%s", code, want, out.text.String(), errs.String())
		}
	}
}

// watched does something when a text was written.
type watched struct {
	text bytes.Buffer
	wait string
	then func()
}

func (w *watched) Write(p []byte) (int, error) {
	n, err := w.text.Write(p)
	if strings.Contains(w.text.String(), w.wait) {
		w.then()
	}
	return n, err
}

// TestPlansAreGood: what is built in and what is given as a sample can be submitted, and has what it is to show.
func TestPlansAreGood(t *testing.T) {
	hello, err := readPlan("hello.json")
	if err != nil {
		t.Fatal(err)
	}
	built := release(newVersion(time.Now()))
	for _, p := range []*workflow.Plan{hello, built} {
		o, err := open(t.Context(), config{data: t.TempDir(), prefix: "engine"})
		if err != nil {
			t.Fatal(err)
		}
		if err := o.Create(t.Context(), p); err != nil {
			t.Error(err)
		}
		if err := o.close(); err != nil {
			t.Error(err)
		}
	}
	shown := map[int]bool{}
	for o := range workflow.Walk(built) {
		for i, c := range workflow.ChecksOf(o) {
			shown[i] = shown[i] || *c != nil
		}
	}
	for i := range 5 {
		if !shown[i] {
			t.Errorf("the built-in plan has no checks of group %d", i)
		}
	}
}
