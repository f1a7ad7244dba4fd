package main

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"

	"github.com/planvault/azblob/emulator"
)

// sameRequests checks that the floor sends the requests of the vault, in every respect that costs time: their
// bodies, metadata, conditions and listings. Only their order differs.
func sameRequests(t *testing.T, r row, played *tape, cred azcore.TokenCredential) {
	t.Helper()
	floor := &tape{}
	floor.record(played)
	bare, err := newFloor(emulator.New().ConnectionString(), cred, floor)
	must(t, err)
	send, err := bare.replay(played.requests)
	if err == nil {
		err = send(t.Context())
	}
	if err != nil {
		t.Fatalf("%s: %v", r, err)
	}
	want, got := texts(t, played), texts(t, floor)
	if len(got) != len(want) || len(got) == 0 {
		t.Fatalf("%s: %d requests, want %d", r, len(got), len(want))
	}
	for i := range got {
		if got[i] != want[i] {
			t.Errorf("%s: %q\nis not %q", r, got[i], want[i])
		}
	}
}

// texts returns what was sent, sorted.
func texts(t *testing.T, sent *tape) (all []string) {
	t.Helper()
	for _, r := range sent.requests {
		header := http.Header{}
		for name, values := range r.Header {
			if strings.HasPrefix(name, "X-Ms-Meta-") || strings.HasPrefix(name, "If-") || strings.HasSuffix(name, "Md5") {
				header[name] = values
			}
		}
		var text strings.Builder
		text.WriteString(r.Method + " " + strings.TrimSuffix(r.URL.Path, "/") + "?" + r.URL.Query().Encode() + "\n")
		must(t, header.Write(&text))
		if r.Method == http.MethodPost {
			text.WriteString(batched(string(r.body)))
		} else {
			text.Write(r.body)
		}
		all = append(all, text.String())
	}
	slices.Sort(all)
	return all
}

// batched returns the lines of a batch that select what is deleted.
func batched(body string) string {
	var lines []string
	for line := range strings.Lines(body) {
		if strings.HasPrefix(line, "DELETE ") || strings.HasPrefix(line, "If-") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

// TestProcessorTime checks that every row of -cpu can be repeated on recorded answers, beside a floor that sends
// the same requests. It judges no time.
func TestProcessorTime(t *testing.T) {
	if len(cpuRows()) != len(cpuBudgets) {
		t.Errorf("%d rows for %d budgets", len(cpuRows()), len(cpuBudgets))
	}
	for _, r := range cpuRows() {
		if r.size.name == largestPlan {
			continue
		}
		if r.vault.plans > 0 {
			r.vault = shape{plans: smallestVault, days: 2}
		}
		played := &tape{}
		var cred azcore.TokenCredential
		if r.size.name == "S" { // one size is enough for tokens
			cred = staticToken{}
		}
		op, floor, err := r.record(t.Context(), played, cred)
		if err != nil {
			t.Fatalf("%s: %v", r, err)
		}
		sameRequests(t, r, played, cred)
		if err := weigh(t.Context(), effort{rounds: 1}, op, floor); err != nil {
			t.Errorf("%s: %v", r, err)
		} else if op.median() <= 0 || floor.median() <= 0 || op.objects == 0 || floor.bytes == 0 {
			t.Errorf("%s: %+v, %+v", r, op, floor)
		}
	}
	if out, _ := output(t, exitPass, nil, "-cpu", "-short", "-run", "^Exists"); !strings.Contains(out, "\nExists, M ") {
		t.Error(out)
	}
}
