package azblob

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/storage"
)

// AccountReport is what [Vault.Account] finds out about the storage account.
type AccountReport struct {
	// Kind is the kind of the account, such as StorageV2, and SKU its performance and redundancy, such as
	// Standard_LRS or Standard_RAGRS.
	Kind, SKU Fact[string]
	// Hierarchical says whether the account has a hierarchical namespace. Listings cost more there.
	Hierarchical Fact[bool]
	// SoftDelete is for how many days the account keeps deleted blobs, and ContainerSoftDelete the same for
	// deleted containers, such as days that [Vault.Expire] has dropped; 0 if it does not keep them. The Blob
	// service does not tell the second one, so it is always unknown.
	SoftDelete, ContainerSoftDelete Fact[int]
	// Versioning says whether the account kept versions when one of the vault's newest blobs was written. It is
	// unknown while the newest day has no blob.
	Versioning Fact[bool]
	// Replication is what the secondary says. It is known only of a vault that was opened [WithSecondary], and
	// of accounts whose SKU has no secondary that can be read.
	Replication Fact[Replication]
}

// Fact is something that the service may tell about an account. The vault never guesses: what the service does
// not tell is unknown.
type Fact[T any] struct {
	Value T
	Known bool
	// Why says why the fact is unknown, and what the login lacks if that is the reason. It is nil if the fact
	// is known, and if Account ended before it was asked for.
	Why error
}

// String returns the value, or "unknown".
func (f Fact[T]) String() string {
	if f.Known {
		return fmt.Sprint(f.Value)
	}
	return "unknown"
}

// Replication is the state of an account's secondary.
type Replication struct {
	// Status is live, bootstrap (the first copy is being made), unavailable, or [NoSecondary].
	Status string
	// Synced is the time, by the service's clock, up to which the secondary has all writes. It is zero if the
	// service does not tell.
	Synced time.Time
}

// NoSecondary is the status of an account without a secondary that can be read.
const NoSecondary = "none"

// Account finds out what kind of account the vault is in, and how the account protects data. It changes nothing. It
// sends up to six requests in three round trips: two to ask the service, one to ask the secondary, and three to look
// at a blob.
//
// Not every login may ask. The data roles allow none of the questions to the service: they take the account's key, a
// shared access signature of the account (for SoftDelete and Replication with the resource type s and the permission
// r), or a role with the actions Microsoft.Storage/storageAccounts/blobServices/getInfo/action and
// Microsoft.Storage/storageAccounts/blobServices/read, such as Storage Account Contributor. A refused question is no
// error: the fact is unknown, and its Why says what is missing.
//
// Errors: [storage.ErrUnavailable] if the service does not answer, and that of ctx. The report has what was found
// until then. A secondary that does not answer within two seconds is no error.
func (v *Vault) Account(ctx context.Context) (report AccountReport, err error) {
	err = v.call(ctx, "Account", uuid.Nil, func(ctx context.Context) error {
		q := inquiry{v.store, v.second, &report}
		questions := []func(context.Context) error{q.askInfo, q.askSoftDelete, q.askVersioning, q.askReplication}
		err := v.parallel(len(questions), func(i int) error { return questions[i](ctx) })
		if !report.Replication.Known && report.SKU.Known && !readableSecondary(report.SKU.Value) {
			report.Replication = known(Replication{Status: NoSecondary})
		}
		return err
	})
	return report, err
}

// inquiry is an Account that is running.
type inquiry struct {
	*store
	second *secondary
	report *AccountReport
}

func known[T any](value T) Fact[T] { return Fact[T]{Value: value, Known: true} }

// unless returns a fact that is known if why is nil.
func unless[T any](why error, value T) Fact[T] {
	if why != nil {
		return Fact[T]{Why: why}
	}
	return known(value)
}

// unanswered returns err if it means that nobody answered. Otherwise the service has refused to tell.
func unanswered(err error) error {
	if blob.Is(err, blob.Ended, blob.Unreachable) {
		return err
	}
	return nil
}

// untold is why a fact is unknown that an answer does not have.
func untold(what string) error { return fmt.Errorf("the service's answer does not have %s", what) }

// readableSecondary reports whether a SKU, such as Standard_RAGZRS, has a secondary that can be read.
func readableSecondary(sku string) bool { return strings.Contains(strings.ToUpper(sku), "_RAG") }

func (q inquiry) askInfo(ctx context.Context) error {
	info, err := q.client.AccountInfo(ctx)
	err = blobError("ask for the kind of the account", blob.Ref{}, err)
	need := func(told bool, what string) error {
		if err == nil && !told {
			return untold(what)
		}
		return err
	}
	q.report.Kind = unless(need(info.Kind != "", "the kind"), info.Kind)
	q.report.SKU = unless(need(info.SKU != "", "the SKU"), info.SKU)
	q.report.Hierarchical = unless(need(info.Hierarchical != nil, "the kind of the namespace"), info.Hierarchical != nil && *info.Hierarchical)
	return unanswered(err)
}

// errContainersUntold is why it is unknown how long deleted containers are kept.
var errContainersUntold = errors.New("the Blob service does not tell this; ask Azure Resource Manager: az storage account blob-service-properties show")

func (q inquiry) askSoftDelete(ctx context.Context) error {
	q.report.ContainerSoftDelete.Why = errContainersUntold
	days, told, err := q.client.SoftDelete(ctx)
	err = blobError("ask how long deleted blobs are kept", blob.Ref{}, err)
	if err == nil && !told {
		q.report.SoftDelete.Why = untold("how long deleted blobs are kept")
		return nil
	}
	q.report.SoftDelete = unless(err, days)
	return unanswered(err)
}

// askVersioning finds out whether a blob of the newest day has a version. It looks at the latest of the day's first
// blobs, because the setting may have changed.
func (q inquiry) askVersioning(ctx context.Context) error {
	ref, err := q.recentBlob(ctx)
	if err != nil {
		q.report.Versioning.Why = err
		return unanswered(err)
	}
	id, err := q.client.VersionID(ctx, ref)
	err = blobError("look for version", ref, err)
	q.report.Versioning = unless(err, id != "")
	return unanswered(err)
}

// errNoBlobs is why it is unknown whether blobs have versions.
var errNoBlobs = fmt.Errorf("%w: the newest day has no blob to look at", storage.ErrNotFound)

// recentBlob returns a blob that was written recently.
func (s *store) recentBlob(ctx context.Context) (blob.Ref, error) {
	days, err := s.days(ctx)
	if err != nil {
		return blob.Ref{}, err
	}
	if len(days) == 0 {
		return blob.Ref{}, errNoBlobs
	}
	const some = 100
	ref := blob.Ref{Container: days[0].container}
	for page, err := range s.client.List(ctx, ref.Container, blob.ListOptions{MaxResults: some}) {
		if err != nil {
			return ref, blobError("look for a blob", ref, err)
		}
		var last time.Time
		for _, item := range page.Items {
			if item.LastModified.After(last) {
				ref.Name, last = item.Name, item.LastModified
			}
		}
		if ref.Name != "" {
			break
		}
	}
	if ref.Name == "" {
		return ref, errNoBlobs
	}
	return ref, nil
}

// errNotOpened is why a secondary was not asked.
var errNotOpened = errors.New("the vault was opened without WithSecondary")

// askReplication asks the secondary. One that is away is a fact, and no failure of the account.
func (q inquiry) askReplication(ctx context.Context) error {
	if q.second == nil {
		q.report.Replication.Why = errNotOpened
		return nil
	}
	r, err := q.second.replication(ctx)
	err = blobError("ask the secondary for its state", blob.Ref{}, err)
	q.report.Replication = unless(err, Replication{r.Status, r.Synced.UTC()})
	if ctx.Err() != nil {
		return err
	}
	return nil
}
