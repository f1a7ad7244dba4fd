package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/planvault/azblob/emulator"
)

// TestOnAccount measures over sockets, as on an account, and leaves nothing there.
func TestOnAccount(t *testing.T) {
	server := emulator.New()
	server.PutContainer("somebodys", nil)
	port, err := server.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer port.Close()
	stdout, _ := output(t, exitPass, generous(table()), "-json", "-connection-string", port.ConnectionString(), "-run", `^(Create|Create, first of a day), S$|^(List\(10\)|Recovery), 100 plans in 1 day`)
	var names []string
	for _, r := range results(t, stdout) {
		names = append(names, r.Row)
		if r.Wall <= 0 || r.RoundTrips != nil || r.Total == 0 || r.Requests["list"] != map[string]int{
			"Create, first of a day, S": 1, "List(10), 100 plans in 1 day": 4, "Recovery, 100 plans in 1 day": 2,
		}[r.Row] {
			t.Errorf("%+v", r)
		}
	}
	if len(names) != 4 {
		t.Errorf("%q", names)
	}
	if left := slices.Collect(server.Containers()); !slices.Equal(left, []string{"somebodys"}) {
		t.Errorf("%q are left", left)
	}
	// A vault of 100 plans is filled once, however often it is measured.
	creates := 0
	for _, r := range server.Requests() {
		if r.Op == emulator.PutBlob && strings.HasPrefix(r.Blob, "open/") && r.Status == 201 {
			creates++
		}
	}
	if creates != 100+runs*(2+1) {
		t.Errorf("%d plans were created", creates)
	}
}

func TestThroughput(t *testing.T) {
	server := emulator.New()
	port, err := server.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer port.Close()
	stdout, _ := output(t, exitPass, nil, "-throughput", "-json", "-connection-string", port.ConnectionString(), "-workers", "3", "-duration", "1ns")
	got := map[string]int64{}
	for d := json.NewDecoder(strings.NewReader(stdout)); d.More(); {
		var l throughput
		if err := d.Decode(&l); err != nil {
			t.Fatal(err)
		}
		got[l.Load] = l.Operations
		if l.Took <= 0 || l.Requests < 3 || l.Allocations == 0 {
			t.Errorf("%+v", l)
		}
	}
	for _, l := range loads() {
		if got[l.name] != 3 {
			t.Errorf("%s: %d operations, not one for each worker", l.name, got[l.name])
		}
	}
	if left := slices.Collect(server.Containers()); len(left) > 0 {
		t.Errorf("%q are left", left)
	}
}
