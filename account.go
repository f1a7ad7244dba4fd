package azblob

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/storage"
)

// AccountReport is what [Admin.Account] finds out about the storage account.
type AccountReport struct {
	// Kind is the kind of the account, such as StorageV2, and SKU its performance and redundancy, such as
	// Standard_LRS or Standard_RAGRS.
	Kind, SKU string
	// Hierarchical says whether the account has a hierarchical namespace. Listings cost more there.
	Hierarchical bool
	// SoftDelete is for how many days the account keeps deleted blobs; 0 if it does not keep them. The Blob service
	// does not tell how long it keeps deleted containers, such as days that [Admin.Expire] has dropped.
	SoftDelete int
	// Versioning says whether the account kept versions when one of the vault's newest blobs was written. It is
	// unknown while the newest day has no blob.
	Versioning bool
	// Unknown says of the fields above that are unknown why they are, by their names, and what the login lacks if
	// that is the reason. The vault never guesses: what the service does not tell is unknown.
	Unknown map[string]error
}

// Account finds out what kind of account the vault is in, and how the account protects data. It changes nothing. It
// sends up to five requests in three round trips: two to ask the service, and three to look at a blob.
//
// Not every login may ask. The data roles allow none of the questions to the service: they take the account's key, a
// shared access signature of the account (for SoftDelete with the resource type s and the permission r), or a role with
// the actions Microsoft.Storage/storageAccounts/blobServices/getInfo/action and
// Microsoft.Storage/storageAccounts/blobServices/read, such as Storage Account Contributor. A refused question is no
// error: AccountReport.Unknown then says what is missing.
//
// Errors: [storage.ErrUnavailable] if the service does not answer, and that of ctx. The report has what was found
// until then.
func (a *Admin) Account(ctx context.Context) (report AccountReport, err error) {
	report.Unknown = map[string]error{}
	for _, field := range []string{"Kind", "SKU", "Hierarchical", "SoftDelete", "Versioning"} {
		report.Unknown[field] = errUnasked
	}
	err = a.call(ctx, "Account", uuid.Nil, func(ctx context.Context) error {
		q := inquiry{store: a.store, report: &report}
		questions := []func(context.Context) error{q.askInfo, q.askSoftDelete, q.askVersioning}
		return a.parallel(len(questions), func(i int) error { return questions[i](ctx) })
	})
	return report, err
}

// errUnasked is why a fact is unknown if Account ended before it asked for it.
var errUnasked = errors.New("it was not asked for")

// inquiry is an Account that is running.
type inquiry struct {
	*store

	mu     sync.Mutex // guards report.Unknown
	report *AccountReport
}

// learned notes that a field is known, or why it is not.
func (q *inquiry) learned(field string, why error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if delete(q.report.Unknown, field); why != nil {
		q.report.Unknown[field] = why
	}
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

func (q *inquiry) askInfo(ctx context.Context) error {
	info, err := q.client.AccountInfo(ctx)
	err = blobError("ask for the kind of the account", blob.Ref{}, err)
	need := func(told bool, what string) error {
		if err == nil && !told {
			return untold(what)
		}
		return err
	}
	q.report.Kind, q.report.SKU, q.report.Hierarchical = info.Kind, info.SKU, info.Hierarchical != nil && *info.Hierarchical
	q.learned("Kind", need(info.Kind != "", "the kind"))
	q.learned("SKU", need(info.SKU != "", "the SKU"))
	q.learned("Hierarchical", need(info.Hierarchical != nil, "the kind of the namespace"))
	return unanswered(err)
}

func (q *inquiry) askSoftDelete(ctx context.Context) error {
	days, told, err := q.client.SoftDelete(ctx)
	err = blobError("ask how long deleted blobs are kept", blob.Ref{}, err)
	q.report.SoftDelete = days
	if err == nil && !told {
		q.learned("SoftDelete", untold("how long deleted blobs are kept"))
		return nil
	}
	q.learned("SoftDelete", err)
	return unanswered(err)
}

// askVersioning finds out whether a blob of the newest day has a version. It looks at the latest of the day's first
// blobs, because the setting may have changed.
func (q *inquiry) askVersioning(ctx context.Context) error {
	ref, err := q.recentBlob(ctx)
	if err != nil {
		q.learned("Versioning", err)
		return unanswered(err)
	}
	id, err := q.client.VersionID(ctx, ref)
	err = blobError("look for version", ref, err)
	q.report.Versioning = id != ""
	q.learned("Versioning", err)
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

// PingReport is what a [Vault.Ping] finds.
type PingReport struct {
	// Container is the container of today, by this machine's clock. Exists says whether it exists; the first
	// Create of the day makes it.
	Container string
	Exists    bool
	// Latency is the time that the first request took, with what it needs: a connection and a token.
	Latency time.Duration
	// Skew is how far this machine's clock is ahead of the service's, within a second and half the latency.
	// It is zero if the service did not say its time. From 15 minutes on, the service refuses requests that
	// are signed with the account's key.
	Skew time.Duration
	// Server is the service's name for its software, such as "Windows-Azure-Blob/1.0 Microsoft-HTTPAPI/2.0".
	Server string
	// Writable says that the login may write. It is false unless [PingOptions.Writes] asked.
	Writable bool
	// Deletable says that the login may delete. It is false unless [PingOptions.Deletes] asked.
	Deletable bool
	// Vault says that a container of the vault's prefix exists. It is false unless [PingOptions.Vault] asked.
	Vault bool
}

// PingOptions are the options of [Vault.Ping]. By default it finds out whether the login may read.
type PingOptions struct {
	// Writes also finds out whether the login may write, with one more request. Default: false.
	Writes bool
	// Deletes also finds out whether the login may delete blobs, with one more request. Default: false.
	Deletes bool
	// Vault also finds out whether any container of the vault exists. That takes one more request if the container of today
	// does not exist, and the vault has not seen another one. Default: false.
	Vault bool
}

// pingLimit bounds a Ping.
const pingLimit = 10 * time.Second

// pingName is the name of the blob that a Ping asks for. There is no such blob.
const pingName = "ping"

// Ping finds out whether the vault can work, with one request, and at most one more for each of the
// options. It does not try again, and returns within 10 seconds, or when ctx ends. It suits readiness
// checks, and the first minutes on a new account.
//
// It reads a blob named ping in the container of today, which need not exist. Writes also sends a write
// of that blob whose condition never holds, and Deletes such a delete. The service checks the rights to a
// request before its condition, so the answer tells whether the login may write or delete, and nothing changes.
// Ping does not find out whether the login may create and list containers.
//
// Errors say what to check. [storage.ErrUnavailable]: the host is unknown, refuses the connection, does not
// answer, or somebody else answers in the service's place; [storage.ErrDenied]: the certificate is not
// trusted, the login is wrong or lacks a role or permission, the clock is wrong, or the account or container
// is disabled. The report has what was found until then.
func (v *Vault) Ping(ctx context.Context, o PingOptions) (report PingReport, err error) {
	err = v.call(ctx, "Ping", uuid.Nil, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeoutCause(blob.Once(blob.Urgent(ctx)), pingLimit, fmt.Errorf("no answer within %v", pingLimit))
		defer cancel()
		started := time.Now()
		ref := blob.Ref{Container: v.prefix.day(started), Name: pingName}
		contact, err := v.client.Reach(ctx, ref)
		report = PingReport{Container: ref.Container, Latency: time.Since(started), Server: contact.Server}
		report.Skew = skew(started, report.Latency, contact.Seen)
		report.Exists = err == nil || blob.Is(err, blob.Absent)
		if err != nil && !blob.Is(err, blob.Absent, blob.AbsentContainer) {
			return blobError("ping", ref, err)
		}
		err = nil
		if o.Writes {
			report.Writable, err = mayChange(ctx, "ping with a write", ref, v.client.TryWrite)
		}
		if o.Deletes && err == nil {
			report.Deletable, err = mayChange(ctx, "ping with a delete", ref, v.client.TryDelete)
		}
		if o.Vault && err == nil {
			report.Vault, err = v.exists(ctx, report.Exists)
		}
		return err
	})
	return report, err
}

// exists reports whether any container of the vault exists, if one is not known to.
func (s *store) exists(ctx context.Context, known bool) (bool, error) {
	for range s.containers.known.Range {
		return true, nil
	}
	if known {
		return true, nil
	}
	start := blob.Ref{Container: s.prefix.containerPrefix() + "*"}
	for page, err := range s.client.ListContainers(ctx, s.prefix.containerPrefix()) {
		if err != nil {
			return false, blobError("list containers", start, err)
		}
		for _, c := range page {
			if p, _, ok := parseContainer(c.Name); ok && p == s.prefix {
				return true, nil
			}
		}
	}
	return false, nil
}

// PrefixReport is a vault of an account, as [Admin.Prefixes] finds it.
type PrefixReport struct {
	// Prefix is what the names of the vault's containers begin with.
	Prefix string
	// Days is how many days have a container. It is 0 for a fleet that has no plan yet.
	Days int
	// First and Last are the oldest and the newest of these days. They are zero if Days is 0.
	First, Last storage.Day
}

// Prefixes lists the vaults of the account, this one and all others, in the order of their prefixes. It sends a
// request for each 5,000 containers, and looks at their names alone: a container of another program counts if it has
// the name that a vault would give it.
//
// Errors: [storage.ErrDenied] if the login may not list all containers.
func (a *Admin) Prefixes(ctx context.Context) (list []PrefixReport, err error) {
	err = a.call(ctx, "Prefixes", uuid.Nil, func(ctx context.Context) error {
		found := map[prefix]PrefixReport{}
		for page, err := range a.client.ListContainers(ctx, "") {
			if err != nil {
				return blobError("list containers", blob.Ref{Container: "*"}, err)
			}
			for _, c := range page {
				if p, day, ok := parseContainer(c.Name); ok {
					found[p] = found[p].with(p, day)
				}
			}
		}
		for _, p := range slices.Sorted(maps.Keys(found)) {
			list = append(list, found[p])
		}
		return nil
	})
	return list, err
}

// with adds a container of a prefix. Those of one prefix come in the order of their days.
func (r PrefixReport) with(p prefix, day time.Time) PrefixReport {
	r.Prefix = string(p)
	if day.IsZero() {
		return r
	}
	r.Days, r.Last = r.Days+1, storage.DayOf(day)
	if r.Days == 1 {
		r.First = r.Last
	}
	return r
}

// mayChange reports whether the login may send a change, which can't take effect.
func mayChange(ctx context.Context, doing string, ref blob.Ref, try func(context.Context, blob.Ref) (blob.Contact, error)) (bool, error) {
	_, err := try(ctx, ref)
	switch {
	case err == nil:
		return false, vaultError(doing, ref, "%w: it took effect although its condition did not hold: remove the blob if it is there, and check for a proxy that removes headers", storage.ErrUnavailable)
	case !blob.Is(err, blob.Absent, blob.AbsentContainer, blob.Mismatch):
		return false, blobError(doing, ref, err)
	}
	return true, nil
}

// skew returns how far this machine's clock was ahead of the service's, which said seen in whole seconds,
// probably in the middle of the request.
func skew(started time.Time, took time.Duration, seen time.Time) time.Duration {
	if seen.IsZero() {
		return 0
	}
	return started.Add(took / 2).Sub(seen.Add(time.Second / 2)).Round(100 * time.Millisecond)
}
