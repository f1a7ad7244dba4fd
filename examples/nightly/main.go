// Command nightly is a job that keeps a vault small. It builds the catalogues of past days, which keep listings fast, and
// removes the plans that ended more than 90 days ago, after a copy of each is in a bundle. After an error, run it again.
//
//	nightly https://ACCOUNT.blob.core.windows.net PREFIX FILE
//
// planvault import brings the plans in FILE back. Without copies, a policy is simpler: see retention.Set.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/bundle"
	"github.com/planvault/azblob/workflow"
)

func main() {
	if len(os.Args) != 4 {
		log.Fatal("usage: nightly URL PREFIX FILE")
	}
	ctx := context.Background()
	cred, err := azidentity.NewDefaultAzureCredential(nil)
	check(err)
	vault, err := azblob.New(ctx, os.Args[2], os.Args[1], cred, nil, azblob.Options{})
	check(err)
	file, err := os.OpenFile(os.Args[3], os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	check(err)
	check(errors.Join(nightly(ctx, vault, file, os.Stdout), file.Close(), vault.Close(ctx)))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// nightly does the work of a night. It writes the copies to a file, and prints what it did.
func nightly(ctx context.Context, vault *azblob.Vault, file, out io.Writer) error {
	catalogues, err := vault.Admin().Catalogue(ctx, azblob.CatalogueOptions{Budget: time.Hour})
	fmt.Fprintf(out, "%d catalogues built, %d days left alone\n", len(catalogues.Built), len(catalogues.Skipped))
	copies, keepErr := bundle.NewKeeper(file, "nightly")
	if err = errors.Join(err, keepErr); err != nil {
		return err
	}
	old := storage.SelectWhere(storage.Filters{EndedBefore: time.Now().AddDate(0, 0, -90)})
	by := workflow.Attribution{By: "nightly", Why: "plans are kept for 90 days"}
	purged, err := storage.Purge(ctx, vault, old, storage.PurgeOptions{By: by, Keep: copies.Keep})
	fmt.Fprintf(out, "%d plans removed, %d kept in days that are held, %d failed\n", purged.Deleted, purged.Held, purged.Failed)
	return errors.Join(err, copies.Close())
}
