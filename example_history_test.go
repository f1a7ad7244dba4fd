package azblob_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/bundle"
	"github.com/planvault/azblob/storage/mirror"
	"github.com/planvault/azblob/workflow"
)

// These are the recipes of docs/operating.md. TestRecipes compares them with the page.

// purgeFailed removes the plans that failed or were stopped more than 30 days ago, for at most ten minutes.
func purgeFailed(ctx context.Context, vault storage.Vault) error {
	report, err := storage.Purge(ctx, vault, storage.PurgeOptions{
		Select: storage.Filters{
			ByStatus:    []workflow.Status{workflow.Failed, workflow.Stopped},
			EndedBefore: time.Now().AddDate(0, 0, -30),
		},
		Budget: 10 * time.Minute,
	})
	fmt.Printf("%d plans removed, %d in held days kept, more are left: %t\n", report.Deleted, report.Held, report.More)
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

// updateCopy brings the copy of a vault up to date.
func updateCopy(ctx context.Context, vault storage.Reader, copied mirror.Copy) error {
	report, err := mirror.Run(ctx, vault, copied, mirror.Options{})
	fmt.Printf("%d plans copied, %d brought forward, %d unchanged\n", report.Copied, report.Updated, report.Unchanged)
	return err
}

// withPast opens a vault with plans that ended days ago, on an emulator.
func withPast(ctx context.Context, group uuid.UUID, days int, statuses ...workflow.Status) *azblob.Vault {
	server := emulator.New()
	vault, err := azblob.NewFromConnectionString(ctx, "example", server.ConnectionString(), nil, azblob.WithTransport(server.Transport()))
	if err != nil {
		log.Fatal(err)
	}
	at := time.Now().AddDate(0, 0, -days)
	for i, status := range statuses {
		plan := &workflow.Plan{ID: workflow.NewV7At(at.Add(time.Duration(i) * time.Second)), GroupID: group, Name: fmt.Sprintf("release %d", i+1)}
		if err := vault.Create(ctx, plan); err != nil {
			log.Fatal(err)
		}
		for _, plan.State.Status = range []workflow.Status{workflow.Running, status} {
			plan.State.Start, plan.State.End = at, at.Add(time.Minute)
			if err := vault.UpdatePlan(ctx, plan); err != nil {
				log.Fatal(err)
			}
		}
	}
	return vault
}

func Example_purge() {
	ctx := context.Background()
	vault := withPast(ctx, uuid.Nil, 40, workflow.Failed, workflow.Completed, workflow.Running, workflow.Stopped)
	defer vault.Close(ctx)
	if err := purgeFailed(ctx, vault); err != nil {
		fmt.Println(err)
	}
	// Output:
	// 2 plans removed, 0 in held days kept, more are left: false
}

func Example_runAgain() {
	ctx := context.Background()
	group := uuid.New()
	vault := withPast(ctx, group, 1, workflow.Failed, workflow.Completed, workflow.Stopped)
	defer vault.Close(ctx)
	for range 2 { // the second time, there is nothing to do
		if err := runAgain(ctx, vault, group); err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// release 3 was Stopped: what is left of it runs again
	// release 1 was Failed: what is left of it runs again
}

func Example_backUp() {
	ctx := context.Background()
	vault := withPast(ctx, uuid.Nil, 3, workflow.Failed, workflow.Completed, workflow.Running)
	defer vault.Close(ctx)
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := backUp(ctx, vault, filepath.Join(dir, "backup")); err != nil {
		fmt.Println(err)
	}
	// Output:
	// 3 plans exported, 0 can't be read
}

func Example_restoreBackup() {
	ctx := context.Background()
	vault := withPast(ctx, uuid.Nil, 3, workflow.Failed, workflow.Completed, workflow.Running)
	defer vault.Close(ctx)
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	file, err := os.Create(filepath.Join(dir, "backup"))
	if err != nil {
		log.Fatal(err)
	}
	if _, err := bundle.Export(ctx, vault, file, bundle.ExportOptions{}); err != nil {
		log.Fatal(err)
	}
	newest, err := storage.Collect(vault.List(ctx, 1))
	if err := errors.Join(err, file.Close(), vault.Delete(ctx, newest[0].ID)); err != nil {
		log.Fatal(err)
	}
	if err := restoreBackup(ctx, vault, file.Name()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// 1 plans restored, 2 were there already
}

func Example_updateCopy() {
	ctx := context.Background()
	vault := withPast(ctx, uuid.Nil, 3, workflow.Failed, workflow.Completed, workflow.Running)
	defer vault.Close(ctx)
	copied := withPast(ctx, uuid.Nil, 0)
	defer copied.Close(ctx)
	if err := updateCopy(ctx, vault, copied); err != nil {
		fmt.Println(err)
	}
	// Output:
	// 3 plans copied, 0 brought forward, 0 unchanged
}

// TestRecipes checks that the recipes of docs/operating.md are the functions of this file, with their output.
func TestRecipes(t *testing.T) {
	page, err := os.ReadFile("docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile("example_history_test.go")
	if err != nil {
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
