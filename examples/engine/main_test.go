package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
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
	for _, test := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"-h"}, exitDone, "usage: engine"},
		{[]string{"-nonsense"}, exitMisuse, "not defined"},
		{[]string{"extra"}, exitMisuse, "unexpected argument"},
		{[]string{"-endpoint", "a", "-connection-string", "b"}, exitMisuse, "mutually exclusive"},
		{[]string{"-fork", "a"}, exitMisuse, "invalid UUID"},
		{[]string{"-fork", "6ba7b810-9dad-41d1-80b4-00c04fd430c8", "-plan", "a"}, exitMisuse, "-fork and -plan are mutually exclusive"},
		{[]string{"-fork", "6ba7b810-9dad-41d1-80b4-00c04fd430c8", "-data", dir}, exitFail, "not found"},
		{[]string{"-msi", "a"}, exitMisuse, "-msi needs -endpoint"},
		{[]string{"-data", ""}, exitMisuse, "-data must name a folder"},
		{[]string{"-submit", "-serve"}, exitMisuse, "-submit and -serve are mutually exclusive"},
		{[]string{"-submit", "-node", "a"}, exitMisuse, "-submit and -node are mutually exclusive"},
		{[]string{"-node", ""}, exitMisuse, "-node needs a name"},
		{[]string{"-node", "A b"}, exitMisuse, "lower-case letters"},
		{[]string{"-ttl", "5s"}, exitMisuse, "-interval and -ttl need -node"},
		{[]string{"-node", "a", "-ttl", "1s", "-data", dir}, exitFail, "TTL"},
		{[]string{"-poll", "0s"}, exitMisuse, "-poll must be positive"},
		{[]string{"-plan", filepath.Join(dir, "none")}, exitMisuse, "none: open"},
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

// unsaid discards what a vault says.
func unsaid(string) {}

// TestEnvironment sets the variable that Azure's own tools read. No request may reach its account.
func TestEnvironment(t *testing.T) {
	env := func(name string) string {
		return map[string]string{"AZURE_STORAGE_CONNECTION_STRING": unreachable}[name]
	}
	t.Setenv("AZURE_STORAGE_CONNECTION_STRING", unreachable)
	t.Chdir(t.TempDir())
	var out, errs bytes.Buffer
	code := run(t.Context(), []string{"-submit"}, env, &out, &errs)
	if code != exitDone || !strings.Contains(out.String(), "to the folder engine-data (an emulator in this process), prefix engine\n") {
		t.Errorf("code %d: %s%s", code, out.String(), errs.String())
	}
}

// TestBadPlanFile checks that faults of a plan are reported with their places, and that nothing is stored.
func TestBadPlanFile(t *testing.T) {
	dir := t.TempDir()
	for _, test := range []struct{ name, text, want string }{
		{"a misspelt field", "{\"blocks\":[{\n  \"seqences\":[]}]}", "line 2, column 3: blocks[0].seqences: there is no such field; known are bypassChecks, "},
		{"a misspelt field of a request", action(`"plugin":"command","req":{"rum":"ls"}`), "actions[0].req.rum: there is no such field; known are run\n"},
		{"an unknown plugin", action(`"plugin":"comand"`), `actions[0].plugin: there is no plugin "comand"; known are command, file, http, sleep` + "\n"},
		{"a name twice", action(`"plugin":"sleep","plugin":"file"`), "actions[0].plugin: is given twice\n"},
		{"a wrong type", action(`"plugin":"sleep","retries":"2"`), "actions[0].retries: is of the wrong type: string, want a whole number\n"},
		{"another document", `{"schema":1,"type":"object","data":{}}`, "schema: there is no such field"},
		{"nothing to do", `{"name":"x","blocks":[]}`, "blocks: is empty\n"},
		{"no JSON", "hello", "line 1, column 1: invalid character 'h'"},
	} {
		t.Run(test.name, func(t *testing.T) {
			file := filepath.Join(dir, "plan.json")
			if err := os.WriteFile(file, []byte(test.text), 0o600); err != nil {
				t.Fatal(err)
			}
			data := filepath.Join(dir, "data")
			for _, args := range [][]string{{"-plan", file}, {"-submit", "-plan", file}} {
				code, out, errs := command(t, data, args...)
				if code != exitMisuse || out != "" || !strings.Contains(errs, test.want) || !strings.HasPrefix(errs, "engine: -plan "+file+": line ") {
					t.Errorf("code %d: %s%s", code, out, errs)
				}
			}
			if _, err := os.Stat(data); !os.IsNotExist(err) {
				t.Errorf("the folder of -data was made: %v", err)
			}
		})
	}
}

// action returns the JSON of a plan with one action of these fields.
func action(fields string) string {
	return `{"blocks":[{"sequences":[{"actions":[{` + fields + `}]}]}]}`
}

// unreachable is an account on port 1, where nothing listens.
const unreachable = "AccountName=a;AccountKey=c2VjcmV0;BlobEndpoint=http://127.0.0.1:1/a;"

// TestUnreachable checks that an account that does not answer is named soon, while the program retries.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	ctx, interrupt := context.WithCancel(t.Context())
	out := &watched{wait: []string{"127.0.0.1:1/a has not answered for 2s; trying again: "}, then: interrupt}
	var errs bytes.Buffer
	code := run(ctx, []string{"-connection-string", unreachable, "-prefix", "mine", "-data", t.TempDir()}, noEnv, out, &errs)
	text := out.text.String()
	if code != exitFail || !strings.Contains(text, out.wait[0]) || !strings.Contains(text, "connection refused") {
		t.Errorf("code %d: %s%s", code, text, errs.String())
	}
	if !strings.HasPrefix(text, "plans are in the account 127.0.0.1:1/a, prefix mine\n") || strings.Contains(text+errs.String(), "c2VjcmV0") {
		t.Errorf("%s%s", text, errs.String())
	}
}

func TestAccounts(t *testing.T) {
	for text, want := range map[string]string{
		"https://name.blob.core.windows.net/":                                "name.blob.core.windows.net",
		"https://name.blob.core.windows.net?sv=1&sig=secret":                 "name.blob.core.windows.net",
		"https://user:secret@name.blob.core.windows.net":                     "name.blob.core.windows.net",
		"DefaultEndpointsProtocol=https;AccountName=name;AccountKey=k":       "name.blob.core.windows.net",
		"AccountName=name;AccountKey=k;EndpointSuffix=core.chinacloudapi.cn": "name.blob.core.chinacloudapi.cn",
		"BlobEndpoint=https://a.example/x?y=z;SharedAccessSignature=sig=k":   "a.example/x",
	} {
		name := accountOf
		if strings.HasPrefix(text, "https:") {
			name = accountAt
		}
		if got := name(text); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

// TestSubmitThenRun leaves a plan in the folder. The next engine runs it.
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
	// The exit code reports a plan that fails.
	failing := strings.Replace(plan, "grep -q here", "grep -q nowhere", 1)
	if err := os.WriteFile(file, []byte(failing), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, out, _ := command(t, data, "-plan", file, "-poll", "1ms"); code != exitFail || !strings.Contains(out, "short is Failed") || !strings.Contains(out, "BlockFailed") {
		t.Errorf("code %d: %s", code, out)
	}
}

// TestRunBesidePlansOfNodes checks that a process without -node runs its own plan, although an open plan of that
// name belongs to a node.
func TestRunBesidePlansOfNodes(t *testing.T) {
	data := t.TempDir()
	file := filepath.Join(t.TempDir(), "plan.json")
	text := `{"name":"short","blocks":[{"name":"b","sequences":[{"name":"s","actions":[{"name":"look","plugin":"command","req":{"run":"true"}}]}]}]}`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	owned, err := readPlan(file)
	if err != nil {
		t.Fatal(err)
	}
	o, err := open(t.Context(), config{data: data, prefix: "engine"}, unsaid)
	if err != nil {
		t.Fatal(err)
	}
	err = o.Create(t.Context(), owned)
	owned.State.Status, owned.Owner, owned.Epoch = workflow.Running, workflow.NewV7(), 1
	if err := errors.Join(err, o.UpdatePlan(t.Context(), owned), o.close()); err != nil {
		t.Fatal(err)
	}
	if code, out, errs := command(t, data, "-plan", file, "-poll", "1ms"); code != exitDone || !strings.Contains(out, "short is Completed") {
		t.Errorf("code %d: %s%s", code, out, errs)
	}
}

// TestSubmitBeside checks that other processes can submit plans, but not run them, while a process owns the
// folder.
func TestSubmitBeside(t *testing.T) {
	data := t.TempDir()
	first, err := open(t.Context(), config{data: data, prefix: "engine"}, unsaid)
	if err != nil {
		t.Fatal(err)
	}
	if code, _, errs := command(t, data); code != exitFail || !strings.Contains(errs, "another process works on") {
		t.Errorf("code %d: %s", code, errs)
	}
	if code, out, errs := command(t, data, "-submit"); code != exitDone || !strings.Contains(out, "to the folder "+data+" (through the process that serves it), prefix engine") {
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
	// The address that a killed process left behind leads nowhere.
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

// TestInterrupt checks that the plan is left to the next start.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	ctx, interrupt := context.WithCancel(t.Context())
	out := &watched{wait: []string{"compile: Running", "render: Running"}, then: interrupt} // one of them would be a matter of speed
	var errs bytes.Buffer
	code := run(ctx, []string{"-data", t.TempDir()}, noEnv, out, &errs)
	for _, want := range []string{"interrupted: waiting for what is running to end: ", "build / binary / compile, ", "a second interrupt ends the process now", "compile: Completed", "left as it stands", "the same command goes on"} {
		if code != exitFail || !strings.Contains(out.text.String(), want) {
			t.Errorf("code %d, without %q:\n%s%s", code, want, out.text.String(), errs.String())
		}
	}
}

// watched calls a function when all of some texts were written.
type watched struct {
	text bytes.Buffer
	wait []string
	then func()
}

func (w *watched) Write(p []byte) (int, error) {
	n, err := w.text.Write(p)
	if !slices.ContainsFunc(w.wait, func(text string) bool { return !strings.Contains(w.text.String(), text) }) {
		w.then()
	}
	return n, err
}

// TestPlansAreGood checks that the built-in plan and the sample can be submitted and have the features that
// they show.
func TestPlansAreGood(t *testing.T) {
	hello, err := readPlan("hello.json")
	if err != nil {
		t.Fatal(err)
	}
	built := release(newVersion(time.Now()))
	for _, p := range []*workflow.Plan{hello, built} {
		o, err := open(t.Context(), config{data: t.TempDir(), prefix: "engine"}, unsaid)
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
