// Package emulator is an Azure Blob service in process. It speaks the
// service's wire protocol, so the real Azure SDK for Go runs against it
// unmodified: over a [Transport] without sockets or goroutines, which is what
// unit tests under testing/synctest want, or over a [Listener] on a real port.
//
//	server := emulator.New()
//	client, err := azblob.NewClientFromConnectionString(server.ConnectionString(), &azblob.ClientOptions{
//		ClientOptions: azcore.ClientOptions{Transport: server.Transport()},
//	})
//
// # What it does
//
// Shared key signatures are verified in full, bearer tokens are accepted as
// they are. Containers: create, delete, properties, metadata, list. Block
// blobs: put, get (with ranges), head, delete, metadata, list (flat and by
// delimiter, with prefix, marker and startFrom). Conditions on every blob
// operation. Batches of deletes. Account information.
//
// Beyond the service it has what tests need: faults ([Rule]), lies as proxies
// tell them ([Foreign], [Strip], [Lies]), a request log
// ([Server.Requests]), a gate for schedulers ([Gate]), a ban on requests that a
// protocol forbids ([Server.Forbid]), copies of everything stored
// ([Server.Clone]), and direct access to what is stored ([Server.Blobs],
// [Server.Put], [Server.Corrupt]).
//
// A server from [New] is in memory. One from [Open] is in a file, too, and comes
// back with all that was answered, whatever became of its process.
//
// # What it does not do
//
// Page and append blobs, blocks, snapshots, versions, soft delete, copies,
// leases, tags, tiers other than an online one, legal holds, immutability,
// encryption with the client's keys, shared access signatures, Shared Key Lite,
// public access, the $root container, Apache Arrow listings (a client that
// accepts Arrow gets XML, as from accounts without Arrow). All of them are
// refused with an error, never silently accepted: a header or a query parameter
// that the emulator does not know is an error, too.
//
// Tokens are not looked into: every bearer may do everything.
//
// # Where it differs from Azurite
//
// Tests compare its answers with those of Azurite, the reference: TestFidelity
// for every operation under every condition and for the limits of the service,
// TestDifferential for random requests. Where they differ the emulator follows
// the documentation of the real service. All differences are listed, with their
// sources, in deviations_test.go; these matter to clients:
//
//   - GET and HEAD with If-Match on a missing blob are 404 BlobNotFound, not 412
//     (https://github.com/Azure/Azurite/issues/2751). Writes with If-Match on a
//     missing blob are 412 in both.
//   - If-None-Match: * on an existing blob is honoured by every write: 409 for
//     Put Blob, 412 for metadata and delete, where Azurite ignores it.
//   - Conditions that containers do not have are 400
//     ConditionHeadersNotSupported.
//   - A request signed with a date more than 15 minutes away from the server's
//     clock, or with none, is 403 AuthenticationFailed; a bad signature is 403
//     AuthenticationFailed, where Azurite says AuthorizationFailure, and none at
//     all is 401 NoAuthenticationInformation.
//   - Metadata is limited to 8 KiB and blob names to 1,024 characters.
//   - Metadata values that are not visible ASCII are 403 AuthenticationFailed
//     with a signature, and 400 InvalidMetadata with a bearer token, which
//     Azurite accepts.
//   - The name of a deleted container is held for 30 seconds
//     (409 ContainerBeingDeleted); see [WithContainerDeletion].
//   - A marker stands for the first name that a page did not hold: names that
//     come before it while a client pages are missed. Markers that the emulator
//     did not give out are refused.
//   - Every write of a server has an ETag of its own, even two in the same
//     instant.
//   - Names of metadata are folded to lower case, which is how the SDK shows
//     them in listings. (The service keeps the case of the first writer, but
//     HTTP libraries, Go's among them, do not.)
//
// Where nothing is documented the emulator does as Azurite does, such as 412 for
// a delete with If-Match of a missing blob, or a creation time that an overwrite
// begins anew.
//
// # Time
//
// The clock is time.Now, so under testing/synctest it is the bubble's clock.
// Nothing runs between requests: no goroutine and no timer outlives one.
package emulator
