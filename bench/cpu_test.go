package main

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/planvault/azblob/emulator"
)

// smaller returns the rows of -cpu without the largest plans, and with a smaller vault.
func smaller() []cpuRow {
	rows := slices.DeleteFunc(cpuRows(), func(r cpuRow) bool { return r.size.name == largestPlan })
	for i := range rows {
		if rows[i].vault.plans > 0 {
			rows[i].vault = shape{smallestVault, 2}
		}
	}
	return rows
}

// sameRequests checks that the floor sends the requests of the vault, in every respect that costs time: their
// bodies, metadata, conditions and listings. Only their order differs.
func sameRequests(t *testing.T, r cpuRow, played *tape) {
	t.Helper()
	floor := &tape{}
	floor.record(played)
	bare, err := newFloor(emulator.New().ConnectionString(), floor)
	if err != nil {
		t.Fatal(err)
	}
	send, err := bare.replay(played.sent())
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
	for _, r := range sent.sent() {
		header := http.Header{}
		for name, values := range r.Header {
			if strings.HasPrefix(name, "X-Ms-Meta-") || strings.HasPrefix(name, "If-") || strings.HasSuffix(name, "Md5") {
				header[name] = values
			}
		}
		var text strings.Builder
		text.WriteString(r.Method + " " + strings.TrimSuffix(r.URL.Path, "/") + "?" + r.URL.Query().Encode() + "\n")
		if err := header.Write(&text); err != nil {
			t.Fatal(err)
		}
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
	want := slices.Collect(maps.Keys(cpuBudgets))
	for _, r := range smaller() {
		played := &tape{}
		op, floor, err := r.record(t.Context(), played)
		if err != nil {
			t.Fatalf("%s: %v", r, err)
		}
		sameRequests(t, r, played)
		res, err := r.weigh(t.Context(), effort{rounds: 1}, played, op, floor)
		if err != nil {
			t.Errorf("%s: %v", r, err)
			continue
		}
		if res.Requests == 0 || res.Vault.CPU <= 0 || res.Floor.CPU <= 0 || res.Vault.Allocations == 0 || res.Floor.Bytes == 0 || res.Over {
			t.Errorf("%+v", res)
		}
	}
	for _, r := range cpuRows() {
		want = slices.DeleteFunc(want, func(name string) bool { return name == r.String() })
	}
	if len(want) > 0 {
		t.Errorf("budgets without a row: %q", want)
	}
	if out, _ := output(t, exitPass, nil, "-cpu", "-short", "-run", "^Exists"); !strings.Contains(out, "\nExists, M ") {
		t.Error(out)
	}
	rows := smaller()
	rows[0].most = 0.001
	res, err := rows[0].compare(t.Context(), effort{rounds: 1, each: time.Nanosecond, judge: true})
	if err != nil || !res.Over {
		t.Errorf("a thousandth of the floor is a budget that nothing exceeds: %+v, %v", res, err)
	}
}

// TestTape checks that a tape gives the recorded answers to one request in turn, and no others.
func TestTape(t *testing.T) {
	server := emulator.New()
	server.PutContainer("box", nil)
	server.Put("box", "a", []byte("1"), nil)
	tp := &tape{}
	tp.record(server.Transport())
	bare, err := newFloor(server.ConnectionString(), tp)
	if err != nil {
		t.Fatal(err)
	}
	get := func() string {
		resp, err := bare.client.NewContainerClient("box").NewBlobClient("a").DownloadStream(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		var b [8]byte
		n, _ := resp.Body.Read(b[:])
		return string(b[:n])
	}
	first := get()
	server.Put("box", "a", []byte("2"), nil)
	got := []string{first, get()}
	tp.play()
	for range 3 {
		got = append(got, get())
	}
	if !slices.Equal(got, []string{"1", "2", "1", "2", "1"}) {
		t.Errorf("the answers are %q", got)
	}
	if _, err := bare.client.NewContainerClient("box").NewBlobClient("b").GetProperties(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "is recorded") {
		t.Errorf("an answer that is not recorded: %v", err)
	}
}
