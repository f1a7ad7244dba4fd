package bundle_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/hooked"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/bundle"
	"github.com/planvault/azblob/storage/memvault"
	"github.com/planvault/azblob/workflow"
)

// disk is a file that keeps what was synced, until it is full.
type disk struct {
	written, synced bytes.Buffer
	room            int
}

func (d *disk) Write(p []byte) (int, error) {
	if d.written.Len()+len(p) > d.room {
		return 0, errors.New("no space left on device")
	}
	return d.written.Write(p)
}

func (d *disk) Sync() error {
	d.synced.Reset()
	d.synced.Write(d.written.Bytes())
	return nil
}

// final selects the final plans of filled.
var final = storage.Filters{ByStatus: []workflow.Status{workflow.Completed, workflow.Failed, workflow.Stopped}}

// TestPurgeKeepsBeforeItRemoves purges a vault whose disk has room for so much. Whenever a plan is removed, it can be
// imported from what would survive a crash, and what could not be kept stays. In the end, all is there again.
func TestPurgeKeepsBeforeItRemoves(t *testing.T) {
	for room := 100; ; room += 1500 {
		store, d := filled(t, 20), &disk{room: room}
		was := memvault.New(nil, memvault.Options{})
		imports(t, "a copy", was, exportOf(t, store, bundle.ExportOptions{}), bundle.ImportOptions{By: by}, [3]int{20, 0, 0}, nil)
		v := hooked.Wrap(store, func(c *hooked.Call) error {
			if c.Op == "Delete" {
				imports(t, "before a removal", memvault.New(nil, memvault.Options{}), d.synced.Bytes(), bundle.ImportOptions{By: by, Plans: []uuid.UUID{c.ID}}, [3]int{1, 0, 0}, nil)
			}
			return c.Do()
		})
		k, err := bundle.NewKeeper(d, "here")
		if err != nil {
			continue // no room for anything
		}
		report, err := storage.Purge(t.Context(), v, storage.SelectWhere(final), storage.PurgeOptions{By: by, Keep: k.Keep, Concurrency: 1})
		if closed := k.Close(); (err == nil) != (closed == nil && report.Deleted == 12) || int(report.Deleted) > k.Plans() || err != nil && report.Failed != 1 {
			t.Errorf("with room for %d: %+v, %v, %v, %d kept", room, report, err, closed, k.Plans())
		}
		if _, err := bundle.Import(t.Context(), store, bytes.NewReader(d.synced.Bytes()), bundle.ImportOptions{By: by}); err != nil {
			t.Errorf("with room for %d: %v", room, err)
		}
		if equal(t, was, store, false); err == nil {
			return
		}
	}
}

// TestKeptBundleMayBeCut cuts a bundle of a Keeper at each byte after its manifest, as a crash does. What is whole can be
// imported, alone or together.
func TestKeptBundleMayBeCut(t *testing.T) {
	v, d := filled(t, 5), &disk{room: 1 << 20}
	k, err := bundle.NewKeeper(d, "here")
	if err == nil {
		err = errors.Join(k.KeepAll(t.Context(), v, storage.Filters{}), k.Close())
	}
	if err != nil || k.Plans() != 5 {
		t.Fatalf("%d plans, %v", k.Plans(), err)
	}
	text := d.synced.Bytes()
	at := recordsOf(text)
	for n := at[1]; n <= len(text); n++ {
		r, err := bundle.Verify(t.Context(), bytes.NewReader(text[:n]), bundle.ImportOptions{})
		whole, found := slices.BinarySearch(at, n)
		if want := whole - 1; err != nil || r.Cut != (n < len(text)) || !found && r.Plans != min(5, want-1) || found && r.Plans != min(5, want) {
			t.Fatalf("cut at %d of %v: %+v, %v", n, at, r, err)
		}
	}
	r, err := bundle.Verify(t.Context(), bytes.NewReader(text), bundle.ImportOptions{Plans: []uuid.UUID{newest(t, v)[2].ID}})
	if err != nil || r.Plans != 1 {
		t.Errorf("one plan: %+v, %v", r, err)
	}
	unreadable := hooked.Wrap(v, func(c *hooked.Call) error {
		if c.Op == "Read" {
			return storage.ErrCorrupt
		}
		return c.Do()
	})
	if k, err = bundle.NewKeeper(&disk{room: 1 << 20}, ""); err != nil || !errors.Is(k.KeepAll(context.Background(), unreadable, storage.Filters{}), storage.ErrCorrupt) {
		t.Errorf("a plan that can't be read is kept: %v", err)
	}
}

// TestKeeperNeedsAnEmptyFile opens a file as a nightly job does, with O_APPEND: a second bundle in it could not be read.
func TestKeeperNeedsAnEmptyFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "purged")
	for _, want := range []error{nil, storage.ErrInvalid} {
		file, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		k, err := bundle.NewKeeper(file, "")
		if !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
		if err != nil {
			continue
		}
		if err := errors.Join(k.Close(), k.Close()); err != nil {
			t.Error(err)
		}
		if err := k.Keep(t.Context(), new(workflow.Plan)); !errors.Is(err, storage.ErrClosed) {
			t.Errorf("a plan after the end: %v", err)
		}
	}
}
