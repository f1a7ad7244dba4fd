package azblob_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/storage"
)

// On Kubernetes with workload identity, the webhook of the cluster gives the pod its client, its tenant and
// the file of its token in environment variables, which the credential reads. The service account must be
// federated with the identity, and the pod needs the label azure.workload.identity/use: "true". Use one
// credential for all vaults of a process: it keeps tokens, and renews them.
func ExampleNew_workloadIdentity() {
	ctx := context.Background()
	cred, err := azidentity.NewWorkloadIdentityCredential(nil)
	if err != nil {
		log.Fatal(err)
	}
	vault, err := azblob.New(ctx, "my-cluster", "https://account.blob.core.windows.net", cred, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer vault.Close(ctx)
	if _, err := vault.Ping(ctx, azblob.PingWrites()); err != nil {
		log.Fatal(err) // for example: give the identity the role Storage Blob Data Contributor on the account
	}
}

// A URL with a shared access signature is a secret: it comes from a file or a secret store, not from the
// code.
func ExampleNewFromURL() {
	ctx := context.Background()
	url, err := os.ReadFile("/var/run/secrets/vault-url")
	if err != nil {
		log.Fatal(err)
	}
	vault, err := azblob.NewFromURL(ctx, "my-cluster", string(url), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer vault.Close(ctx)
}

// A service pings its vault before it accepts work, and in its readiness check.
func ExampleVault_Ping() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	vault := openExample(ctx, account())
	defer vault.Close(ctx)

	report, err := vault.Ping(ctx, azblob.PingWrites())
	check(err)
	if report.Skew.Abs() > time.Minute {
		fmt.Println("the clock is off by", report.Skew)
	}
	fmt.Println("writable:", report.Writable)
	// Output:
	// writable: true
}

// A dashboard shows plans also while the primary of its account is unavailable, and says how old they are. An
// engine does not accept stale plans.
func ExampleAcceptStale() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cred, err := azidentity.NewDefaultAzureCredential(nil)
	check(err)
	vault, err := azblob.New(ctx, "my-cluster", "https://account.blob.core.windows.net", cred, nil, azblob.WithSecondary(""))
	check(err)
	defer vault.Close(ctx)

	ctx, stale := azblob.AcceptStale(ctx)
	plans, err := storage.Collect(vault.List(ctx, 10))
	check(err)
	for _, p := range plans {
		fmt.Println(p.Name, p.State.Status)
	}
	if stale.Stale() {
		fmt.Println("the account is unavailable; these plans are as of", stale.Synced())
	}
}

// A report of an account says what is known about it, and why other things are not.
func ExampleVault_Account() {
	ctx := context.Background()
	vault := openExample(ctx, account())
	defer vault.Close(ctx)

	report, err := vault.Account(ctx)
	check(err)
	fmt.Printf("%v, %v, hierarchical namespace: %v\n", report.Kind, report.SKU, report.Hierarchical)
	if !report.Versioning.Known {
		fmt.Println("versioning:", report.Versioning.Why)
	}

	// Output:
	// StorageV2, Standard_LRS, hierarchical namespace: false
	// versioning: not found: the newest day has no blob to look at
}
