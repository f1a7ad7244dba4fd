package main

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/planvault/azblob/plugins"
	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// canary is a secret. No output of the tool has it, in any form: quoted or escaped, part of it stays as it is.
const canary = "KANARI \"ö\" <&> 7f3a9"

// sings finds the canary as it is, in base64 and in hexadecimal.
var sings = regexp.MustCompile(`(?i)KANARI|7f3a9|S0FOQVJJ|4b414e415249`)

// cage has a canary in every kind of field that can be secret.
type cage struct {
	Text     string            `vault:"secret"`
	Bytes    []byte            `vault:"secret"`
	Any      any               `vault:"secret"`
	Map      map[string]string `vault:"secret"`
	Pointer  *string           `vault:"secret"`
	Own      feather           `vault:"secret"`
	Raw      json.RawMessage   `vault:"secret"`
	Number   int               `vault:"secret"`
	Inside   any
	Holder   *nest
	Children []nest
	ByName   map[string]nest
	Writes   plumage
	nest
}

type nest struct {
	Egg  string `json:"egg,omitempty" vault:"secret"`
	Next *nest
}

// feather and plumage write themselves. Only plumage has a tag in it.
type (
	feather struct{ text string }
	plumage struct {
		text string `vault:"secret"`
	}
)

func (f feather) MarshalText() ([]byte, error) { return []byte("feather " + f.text), nil }
func (f *feather) UnmarshalText(text []byte) error {
	f.text = string(text[len("feather "):])
	return nil
}
func (f plumage) MarshalText() ([]byte, error) { return []byte("plumage " + f.text), nil }
func (f *plumage) UnmarshalText(text []byte) error {
	f.text = string(text[len("plumage "):])
	return nil
}

func fullCage() cage {
	raw, _ := json.Marshal(canary)
	return cage{
		Text: canary, Bytes: []byte(canary), Any: []any{canary, map[string]any{canary: canary}}, Map: map[string]string{canary: canary}, Pointer: new(canary),
		Own: feather{canary}, Raw: raw, Inside: map[string]any{"a": []any{nest{Egg: canary}}}, Holder: &nest{"", &nest{canary, nil}}, Children: []nest{{canary, nil}},
		ByName: map[string]nest{"a": {canary, nil}}, Writes: plumage{canary}, nest: nest{canary, nil},
	}
}

// storeCages stores a plan whose actions have the canary in requests, responses and errors, as an engine would that does not
// redact these. The first action has failed, and the second one is as the plan.
func storeCages(t *testing.T, s *stage, status workflow.Status) *workflow.Plan {
	t.Helper()
	s.plugins = registry.Must(plugins.Typed[cage, *cage]("sing"))
	v := s.open(t, prefix)
	p := &workflow.Plan{Name: "aviary", Blocks: []*workflow.Block{{Name: "b", Sequences: []*workflow.Sequence{{Name: "s", Actions: []*workflow.Action{
		{Name: "first", Plugin: "sing", Req: fullCage()}, {Name: "second", Plugin: "sing", Req: new(fullCage())},
	}}}}}}
	must(t, v.Create(t.Context(), p))
	start := time.Now().Add(-2 * time.Hour)
	p.State.Status, p.State.Start = workflow.Running, start
	must(t, v.UpdatePlan(t.Context(), p))
	for i, a := range p.Blocks[0].Sequences[0].Actions {
		a.State.Status, a.State.Start = workflow.Running, start
		if a.Attempts = []workflow.Attempt{{Start: start, Resp: new(fullCage())}}; i == 0 || status.Final() {
			a.State.Status, a.State.End = workflow.Failed, start.Add(time.Minute)
			a.Attempts[0].End = a.State.End
			a.Attempts[0].Err = &plugins.Error{Message: "wrong: " + canary, Wrapped: &plugins.Error{Message: "behind: S0FOQVJJICLDtiIgPCY+IDdmM2E5"}}
		}
		must(t, v.UpdateAction(t.Context(), a))
	}
	if status.Final() {
		p.State.Status, p.State.End, p.Reason = status, start.Add(time.Minute), workflow.BlockFailed
		must(t, v.UpdatePlan(t.Context(), p))
	}
	return p
}

// secretRuns are runs of each command on a vault with the canary. The words FAILED, RUNNING, DIR and CONNECTION stand for two
// plans, a folder, and the account. Those that look come first.
var secretRuns = []string{
	"get FAILED", "get FAILED --output json", "get RUNNING", "show FAILED", "show FAILED --all --wide", "show RUNNING --all", "show FAILED --output json",
	"show RUNNING --output json", "wait FAILED", "show FAILED --watch", "report FAILED -o -", "report RUNNING -o -", "count", "count --by status",
	"list", "list --wide", "list --output json", "log", "nodes", "nodes --output json", "keys", "keys --output json", "stuck --older 1s", "stuck --older 1s --output json", "vaults",
	"check", "check --output json", "doctor --probes 1", "doctor --output json --probes 1", "drill --dry-run", "recover --thorough --yes", "recover --catalogue --yes", "stats --bytes", "stats",
	"export -o DIR/out.bundle", "import DIR/out.bundle --prefix other --allow-empty", "import DIR/out.bundle --verify-only",
	"mirror --to-prefix copy --to-connection-string CONNECTION", "switch --to-prefix copy --to-connection-string CONNECTION --dry-run",
	"policy", "policy show", "expire --older-than 1d --dry-run", "hold --list", "hold today", "release today", "fork FAILED --from-failure --dry-run", "fork FAILED --from-failure", "fork FAILED --from-failure --skip first --again", "fork FAILED --from-failure --again --request first={\"Text\":\"KANARI\"}", "log --output json",
	`fork FAILED --from-failure --again --skip first --result {"Text":"KANARI"}`, `fork FAILED --from-failure --again --request first={"Text":7,"KANARI":1}`, "retry FAILED first second --again",
	"approve RUNNING first", "reject RUNNING first", `signal RUNNING deployed --json "KANARI"`, "show RUNNING --signals", "show RUNNING --signals --output json", "pause RUNNING", "resume RUNNING", "stop RUNNING", "takeover RUNNING", "takeover RUNNING --yes", "key set west --limit 2", "key repair west", "keys west", "keys west --output json", "suspend", "resume", "purge FAILED --yes", "profile list", "profile", "version",
}

// unvaulted are the commands that no run is for: TestSecrets looks at the pages of web, and the others show no plan.
var unvaulted = []string{"web", "emulator"}

// TestSecrets runs every command on plans with a canary in each kind of field. Nobody sees it who does not ask for it.
func TestSecrets(t *testing.T) {
	s := newStage(t)
	words := strings.NewReplacer("FAILED", storeCages(t, s, workflow.Failed).ID.String(), "RUNNING", storeCages(t, s, workflow.Running).ID.String(),
		"DIR", t.TempDir(), "CONNECTION", s.server.ConnectionString())
	missing := map[string]bool{}
	for _, c := range helpRoot().Commands() {
		missing[c.Name()] = c.Runnable() && c.Name() != "help" && c.Name() != "completion"
	}
	for _, name := range unvaulted {
		delete(missing, name)
	}
	look := func(what, text string) {
		t.Helper()
		if at := sings.FindStringIndex(text); at != nil {
			t.Errorf("%s shows …%.100s", what, text[max(0, at[0]-50):])
		}
	}
	for _, args := range secretRuns {
		name, _, _ := strings.Cut(args, " ")
		delete(missing, name)
		r := s.run(t.Context(), strings.Fields(words.Replace(args))...)
		look(args, r.stdout+r.stderr)
		shows := name == "get" || name == "report" || name == "show" && strings.Contains(args, "FAILED")
		if shows && !strings.Contains(r.stdout, "(secret)") {
			t.Errorf("planvault %s: exit code %d\n%s%s", args, r.code, r.stdout, r.stderr)
		}
		look(args+" --help", s.run(t.Context(), name, "--help").stdout)
	}
	for name, is := range missing {
		if is {
			t.Errorf("planvault %s: give it a run", name)
		}
	}
	if exported, err := os.ReadFile(words.Replace("DIR/out.bundle")); err != nil || len(exported) == 0 {
		t.Errorf("nothing is exported: %v", err)
	}
}

// TestSecretsInPages visits the pages of a vault with a canary.
func TestSecretsInPages(t *testing.T) {
	s := newStage(t)
	failed, running := storeCages(t, s, workflow.Failed), storeCages(t, s, workflow.Running)
	url, stop := s.serve(t, "web", "--listen", "127.0.0.1:0")
	defer stop()
	seen, next := map[string]bool{}, []string{
		"/", "/metrics", "/healthz", "/plan/" + failed.ID.String(), "/plan/" + failed.ID.String() + ".json", "/plan/" + running.ID.String() + ".json", "/plan/" + running.ID.String(),
	}
	links := regexp.MustCompile(`(?:href|src)="(/[^"]*)"`)
	for len(next) > 0 && len(seen) < 100 {
		path := strings.ReplaceAll(next[0], "&amp;", "&")
		if next = next[1:]; seen[path] {
			continue
		}
		seen[path] = true
		answer, err := http.Get(url + path)
		must(t, err)
		text, err := io.ReadAll(answer.Body)
		if must(t, errors.Join(err, answer.Body.Close())); sings.Match(text) || strings.HasPrefix(path, "/plan/") && !strings.Contains(string(text), "(secret)") {
			t.Errorf("%s has the secret, or does not say that there is one: %.3000s", path, text)
		}
		for _, m := range links.FindAllStringSubmatch(string(text), -1) {
			next = append(next, m[1])
		}
	}
	if len(seen) < 10 {
		t.Errorf("only %d pages were found", len(seen))
	}
}

// TestReveal shows secrets to whoever asks, and has that in the log.
func TestReveal(t *testing.T) {
	s := newStage(t)
	p := storeCages(t, s, workflow.Failed)
	file := filepath.Join(t.TempDir(), "page.html")
	for _, args := range [][]string{{"get", p.ID.String()}, {"report", p.ID.String(), "-o", file}} {
		r := s.run(t.Context(), append(args, "--reveal", "--as", "ana", "--reason", "the card "+args[0])...)
		page, _ := os.ReadFile(file)
		if text := r.stdout + string(page); r.code != exitDone || !strings.Contains(text, "KANARI") || strings.Contains(text, "(secret)") {
			t.Errorf("%v: exit code %d\n%.500s%s", args, r.code, text, r.stderr)
		}
		found, err := storage.Collect(s.vault.Control().AuditEntries(t.Context(), storage.AuditFilters{Plan: p.ID, Limit: 1}))
		if err != nil || len(found) != 1 || found[0].What != "reveal" || found[0].By.By != "ana" || found[0].By.Why != "the card "+args[0] || found[0].Result != "done" {
			t.Errorf("%v: the log has %+v, %v", args, found, err)
		}
	}
}
