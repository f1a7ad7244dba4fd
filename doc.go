// Package azblob is a vault for workflow plans on Azure Blob Storage. A [Vault] is a [storage.Vault] that
// engines embed: an engine that crashes finds every plan in the state in which it was last stored.
//
// # Start
//
//	cred, err := azidentity.NewDefaultAzureCredential(nil)
//	if err != nil {
//		return err
//	}
//	vault, err := azblob.New(ctx, "my-cluster", "https://account.blob.core.windows.net", cred, reg, azblob.Options{})
//	if err != nil {
//		return err
//	}
//	defer vault.Close(ctx)
//	err = vault.Recovery(ctx) // names the plans that it could not repair; all others are in order
//
// The package examples show how a service starts ([New], [Vault.Recovery], [Vault.Search] for open plans,
// [Vault.Read], continue), how it runs a plan, and how it stops. docs/embedding.md tells authors of engines
// what to write when, and what to do about each error.
//
// # Promises
//
// Create is atomic: whatever fails, a plan is visible as a whole or not at all. If a write returns nil, it is
// durable. If it returns an error, it had no effect, unless errors.Is finds [storage.ErrUnknown]; then the
// same call again, or Recovery, settles it. An update never overwrites a version that its caller has not
// read. A deleted plan does not come back. Reads never write. Recovery finishes or removes what a crash left
// unfinished, and leaves alone what may still be under way. The length and the MD5 of every blob are checked
// when it is read.
//
// # Clocks
//
// Three clocks matter. A plan's ID has the time of its creator's clock, which determines the plan's day, its
// place in listings, and the filters by time that match it; Create refuses an ID more than a day ahead. A
// Create or Delete has a deadline within the grace period, by the monotonic clock of its machine. Recovery
// measures the age of unfinished work by the service's clock alone. The service refuses requests whose time
// is wrong by 15 minutes.
//
// # Layout
//
// A plan is stored in the container of the UTC day in its UUIDv7, <prefix>-YYYY-MM-DD. Its entry has the
// plan's own fields, one blob for each sub-object has the fields of that, and its object has the whole plan.
// A plan exists if it has an entry and an object. Markers under open/ lead Recovery to plans that are not final. The container
// <prefix>-control has the members of a fleet and requests to stop plans. docs/protocol.md has the details.
//
// # History
//
// A day is past when the day after it has ended. The plans of a past day may have a catalogue, one blob that
// listings read in place of the day. Engines build catalogues daily; without them, call [Admin.Catalogue]. Whoever
// changes a past day removes its catalogue first.
//
// To remove old plans, call [Admin.Expire], which drops whole days in which no plan is open; [storage.Purge] removes
// single plans. Don't delete containers by other means. [Admin.Hold] keeps the plans of a day until [Admin.Release].
// A hold binds vaults; it is not immutable storage.
//
// [Vault.Restore] stores a plan of any status as it is. Packages bundle and mirror, below storage, export, import
// and copy plans with it.
//
// # Operation
//
// [Admin.Stats] counts plans and bytes by day. [Admin.Check] reads everything and reports what is broken, and
// [Admin.Repair] repairs it. Package fleet finds plans that are stuck, and says why. The command planvault, in
// cmd/planvault, does all of this from a shell.
//
// # Permissions
//
// The identity needs the role Storage Blob Data Contributor on the account; Storage Blob Data Reader is
// enough for reads. Expire, Hold and Release also lease and delete containers, and a Delete in a day that has
// passed reads the properties of its container; the role includes that, and a signature of one container does
// not. An identity that may not list containers can use [Options].DayProbing: the vault then asks
// for the last days by name, and does not see older ones.
//
// [Vault.Ping] says whether the vault can work: what is wrong with the endpoint, the network, the login or the
// clock. docs/account.md has a table of logins, of what works with each, and of what an error then says.
//
// [Admin.Account] says what kind of account it is, and what the account keeps of deleted blobs.
//
// A vault that is opened at the endpoint of an account's read-only secondary reads there, for outages of the primary:
// what it shows may be minutes old. Engines don't work there, because every write is [storage.ErrDenied].
//
// # Contexts
//
// A request that fails for a temporary reason is tried again until the context ends or, without a deadline,
// for Options.Backoff.MaxElapsed: give calls a deadline. A call returns soon after its context ends. A write that was
// under way at that time is [storage.ErrUnknown].
//
// # Errors
//
// Every error is a [*storage.Error] with the method, the plan and the blob. It wraps one of the errors of
// package storage or the context's. errors.As finds the service's own error as an *azcore.ResponseError.
//
// # Observation
//
// The vault logs nothing. An [Observer] sees each call of a method as an operation, with its duration,
// requests, round trips, bytes and [Outcome], and each request, retry, conflict and repair. All of it has the
// context that [Observer].OperationStart returned, so an operation can be a span. [LogObserver] writes to a
// [log/slog.Logger]. Events have neither URLs nor bodies.
//
// # Cost
//
// For N sub-objects, Create takes N+3 requests, an update 1, an update to a final status 3, Exists 1, and
// Delete 7 + ⌈N/256⌉. Read takes 2, and up to N+2 while the plan is Running; for a large plan as many as
// sub-objects have changed. A change of a day that has passed takes up to five more. Search by ID takes 2
// for each ID. The newest ten plans take two to five requests, however many plans there are, and more if they
// are spread over several days. A search for open plans, and Recovery, take one for each day, and one or two
// for each open plan or one for hundreds of them, if they are close together. docs/protocol.md has the table.
//
// # Limits
//
// A prefix has at most 52 characters. An encoded plan must be smaller than 256 MiB. Names and descriptions
// are UTF-8 of any length; if they don't fit into 8 KiB of metadata, listings take one more request for the
// plan. The account must be a general-purpose v2 account whose containers allow overwriting: immutable
// storage can't hold a vault. It may have a hierarchical namespace; listings of large days then cost more.
package azblob
