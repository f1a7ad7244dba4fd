package azblob_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/bundle"
	"github.com/planvault/azblob/workflow"
)

// These are the recipes of docs/operating.md. TestRecipes compares them with the page.

// holdDays holds the days from one to another. Days without plans have nothing to hold.
func holdDays(ctx context.Context, vault *azblob.Vault, from, to time.Time) error {
	for day := from; !day.After(to); day = day.AddDate(0, 0, 1) {
		if err := vault.Hold(ctx, day); err != nil && !errors.Is(err, storage.ErrNotFound) {
			return err
		}
	}
	held, err := vault.Holds(ctx)
	for _, day := range held {
		fmt.Printf("%s is held\n", day.Format(time.DateOnly))
	}
	return err
}

// buildCatalogues builds the catalogues that are due, and says which closed days can't have one yet, and why.
func buildCatalogues(ctx context.Context, vault *azblob.Vault) error {
	report, err := vault.Catalogue(ctx, azblob.CatalogueOptions{})
	fmt.Printf("%d of %d closed days had a catalogue, and %d more have one now\n", report.Present, report.Closed, len(report.Built))
	for _, day := range report.Skipped {
		fmt.Printf("%s has none: %s\n", day.Day.Format(time.DateOnly), day.Reason)
	}
	return err
}

// runAgain forks the plans of a group that failed or were stopped. It leaves out those that were forked before.
func runAgain(ctx context.Context, vault storage.Vault, group uuid.UUID) error {
	found, err := storage.Collect(vault.Search(ctx, storage.Filters{ByGroupIDs: []uuid.UUID{group}}))
	if err != nil {
		return err
	}
	forked := map[uuid.UUID]bool{}
	for _, f := range found { // newest first: a fork comes before the plan that it was forked from
		plan, err := vault.Read(ctx, f.ID)
		if err != nil {
			return err
		}
		forked[plan.ForkedFrom] = true
		if s := plan.State.Status; forked[plan.ID] || s != workflow.Failed && s != workflow.Stopped {
			continue
		}
		fork, err := workflow.Fork(plan)
		if err != nil {
			return err
		}
		if err := vault.Create(ctx, fork); err != nil {
			return err
		}
		fmt.Printf("%s was %s: what is left of it runs again\n", plan.Name, plan.State.Status)
	}
	return nil
}

// backUp writes all plans of a vault to a file.
func backUp(ctx context.Context, vault storage.Reader, path string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	report, err := bundle.Export(ctx, vault, file, bundle.ExportOptions{Source: "my-cluster"})
	fmt.Printf("%d plans exported, %d can't be read\n", report.Plans, report.Unreadable)
	return errors.Join(err, file.Sync(), file.Close())
}

// restoreBackup verifies a file that backUp wrote, and then restores the plans that the vault lacks.
func restoreBackup(ctx context.Context, vault bundle.Target, path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	report, err := bundle.Import(ctx, vault, file, bundle.ImportOptions{})
	fmt.Printf("%d plans restored, %d were there already\n", report.Restored, report.Present)
	return err
}

// withPast opens a vault with plans of a group that began at a time and are one second apart.
func withPast(group uuid.UUID, began time.Time, statuses ...workflow.Status) (context.Context, *azblob.Vault) {
	ctx, vault := example()
	addPast(vault, group, began, statuses...)
	return ctx, vault
}

// addPast restores plans that began at a time.
func addPast(vault *azblob.Vault, group uuid.UUID, began time.Time, statuses ...workflow.Status) {
	for i, status := range statuses {
		at := began.Add(time.Duration(i) * time.Second)
		plan := &workflow.Plan{ID: workflow.NewV7At(at), GroupID: group, Name: fmt.Sprintf("release %d", i+1)}
		plan.State = workflow.State{Status: status, Start: at}
		if status.Final() {
			plan.State.End = at.Add(time.Minute)
		}
		copy(plan.ID[6:], []byte{0x70, 0, 0x80, 0, 0, 0, 0, 0, 0, byte(i + 1)}) // the output names some of them
		check(vault.Restore(context.Background(), plan))
	}
}

// ago returns the time that was some days ago.
func ago(days int) time.Time { return time.Now().AddDate(0, 0, -days) }

// inMarch returns the noon of a day of March 2025.
func inMarch(day int) time.Time { return time.Date(2025, time.March, day, 12, 0, 0, 0, time.UTC) }

func Example_holdDays() {
	ctx, vault := withPast(uuid.Nil, inMarch(1), workflow.Completed)
	addPast(vault, uuid.Nil, inMarch(3), workflow.Failed)
	check(holdDays(ctx, vault, inMarch(1), inMarch(3)))
	// Output:
	// 2025-03-01 is held
	// 2025-03-03 is held
}

func Example_buildCatalogues() {
	ctx, vault := withPast(uuid.Nil, inMarch(1), workflow.Completed, workflow.Failed)
	addPast(vault, uuid.Nil, inMarch(2), workflow.Completed, workflow.Running)
	addPast(vault, uuid.Nil, ago(0), workflow.Completed)
	check(buildCatalogues(ctx, vault))
	// Output:
	// 0 of 2 closed days had a catalogue, and 1 more have one now
	// 2025-03-02 has none: 1 marker of open plans or work in progress, such as open/019556ba-3de8-7000-8000-000000000002
}

func Example_runAgain() {
	group := uuid.New()
	ctx, vault := withPast(group, ago(1), workflow.Failed, workflow.Completed, workflow.Stopped)
	check(errors.Join(runAgain(ctx, vault, group), runAgain(ctx, vault, group))) // the second time, there is nothing to do
	// Output:
	// release 3 was Stopped: what is left of it runs again
	// release 1 was Failed: what is left of it runs again
}

// tempFile returns the path of a file for an example, which has no T.TempDir, and what removes it.
func tempFile() (path string, remove func()) {
	dir, err := os.MkdirTemp("", "example")
	check(err)
	return filepath.Join(dir, "backup"), func() { os.RemoveAll(dir) }
}

func Example_backUp() {
	ctx, vault := withPast(uuid.Nil, ago(3), workflow.Failed, workflow.Completed, workflow.Running)
	path, remove := tempFile()
	defer remove()
	check(backUp(ctx, vault, path))
	// Output:
	// 3 plans exported, 0 can't be read
}

func Example_restoreBackup() {
	ctx, vault := withPast(uuid.Nil, ago(3), workflow.Failed, workflow.Completed, workflow.Running)
	path, remove := tempFile()
	defer remove()
	file, err := os.Create(path)
	check(err)
	_, err = bundle.Export(ctx, vault, file, bundle.ExportOptions{})
	check(errors.Join(err, file.Close()))
	newest, err := storage.Collect(vault.List(ctx, 1))
	check(err)
	check(vault.Delete(ctx, newest[0].ID))
	check(restoreBackup(ctx, vault, path))
	// Output:
	// 1 plans restored, 2 were there already
}

// TestRecipes checks that the recipes of docs/operating.md are the functions of this file, with their output.
func TestRecipes(t *testing.T) {
	page, err := os.ReadFile("docs/operating.md")
	file, fileErr := os.ReadFile("example_history_test.go")
	if err := errors.Join(err, fileErr); err != nil {
		t.Fatal(err)
	}
	recipes := 0
	for _, m := range regexp.MustCompile("(?ms)^```go\n((?://.*?\n)*func .*?)^```\n\n```text\n(.*?)^```$").FindAllSubmatch(page, -1) {
		recipes++
		output := "\t// Output:\n"
		for line := range strings.Lines(string(m[2])) {
			output += "\t// " + line
		}
		if !strings.Contains(string(file), "\n"+string(m[1])) || !strings.Contains(string(file), output+"}\n") {
			t.Errorf("docs/operating.md has a recipe that is not in this file, or has another output:\n%s\n%s", m[1], m[2])
		}
	}
	if functions := len(regexp.MustCompile(`(?m)^func [a-z].*\berror \{$`).FindAll(file, -1)); recipes != functions {
		t.Errorf("docs/operating.md has %d recipes, and this file %d", recipes, functions)
	}
}
