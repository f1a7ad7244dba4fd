// Package azblob is a vault for workflow plans on Azure Blob Storage: a storage.Vault that engines embed, so that an engine
// which crashes comes back and knows exactly where every plan stood.
//
// # Start
//
//	cred, err := azidentity.NewDefaultAzureCredential(nil)
//	if err != nil {
//		return err
//	}
//	vault, err := azblob.New(ctx, "my-cluster", "https://account.blob.core.windows.net", cred, reg)
//	if err != nil {
//		return err
//	}
//	defer vault.Close(ctx)
//	err = vault.Recovery(ctx) // names what it could not settle; everything else is settled
//
// The package examples show how a service starts (New, Recovery, Search for what is open, Read, go on), how it runs a plan, and
// how it ends. docs/embedding.md tells authors of engines what to write when, and what to do at each error.
//
// # Promises
//
// Create is all or nothing: a plan is visible whole or not at all, whatever fails. A nil error of a write means that it is
// durable; any other means that it had no effect, unless errors.Is finds storage.ErrUnknown, and then the same call again, or
// Recovery, settles it. An update never overwrites a version that its caller does not know. What was deleted does not come
// back. Reads never write. Whatever a crash leaves half done is finished or removed by Recovery, which never touches what may
// still be under way. Every blob is read back with its length and MD5 checked.
//
// # Clocks
//
// Three clocks matter. A plan's ID carries the time of its creator's clock, which decides the plan's day, the order of
// listings, and what filters by time find; an ID more than a day ahead is refused. A Create or Delete has a deadline by the
// monotonic clock of its machine, within the grace period. How old unfinished work is, Recovery learns from the service's
// clock alone. The service refuses requests whose time is 15 minutes off.
//
// # Layout
//
// A plan lies in the container of the UTC day inside its UUIDv7, <prefix>-YYYY-MM-DD. An entry has the plan's own fields, one
// blob each sub-object, an object the whole plan; its presence is what makes it a plan. Markers under open/ lead Recovery to
// what is not final. A day can be dropped as a whole by deleting its container. docs/protocol.md tells all of it.
//
// # Permissions
//
// The identity needs the role Storage Blob Data Contributor on the account; Storage Blob Data Reader is enough to read. One
// that may not list containers takes WithDayProbing: the last days are then asked for by name, and older ones are not seen.
//
// # Contexts
//
// Requests that fail for a passing reason are tried again until the context ends, and without a deadline for
// Retry.MaxElapsed: give calls a deadline. A call returns soon after its context ends. A write that was under way then is
// ErrUnknown.
//
// # Errors
//
// Every error is a *storage.Error, with the method, the plan and the blob, around one of the errors of package storage or the
// context's. The service's own error is found with errors.As as *azcore.ResponseError.
//
// # Cost
//
// For N sub-objects: Create N+3 requests, an update 1, the update to a final status 3, Exists 1, Read 2, or up to N+2 while
// the plan is Running, of which large plans take as many as parts have changed, Delete 5 + ⌈N/256⌉.
// Search by ID is 2 for each. The newest ten plans are four requests at most, however many there are; what is open is one for
// each day and one or two for each plan. Recovery lists each day's markers, and looks at each open plan. docs/protocol.md has
// the table.
//
// # Limits
//
// A prefix has at most 52 characters. A plan must be encoded in less than 256 MiB. Names and descriptions are any UTF-8 of any
// length; what does not fit into 8 KiB of metadata costs listings one more request. The account must be a general-purpose v2
// one whose containers allow overwriting: immutable storage can't hold a vault.
package azblob
