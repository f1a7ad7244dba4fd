// Package emulator is an Azure Blob service for tests. It speaks the wire protocol of the service, so the
// Azure SDK for Go runs against it unmodified. A [Transport] needs neither sockets nor goroutines, as tests
// under testing/synctest require. A [Listener] serves on a real port.
//
//	server := emulator.New(emulator.Options{})
//	client, err := azblob.NewClientFromConnectionString(server.ConnectionString(), &azblob.ClientOptions{
//		ClientOptions: azcore.ClientOptions{Transport: server.Transport()},
//	})
//
// # Supported operations
//
// The emulator verifies Shared Key signatures. It verifies shared access signatures of accounts, containers
// and blobs, by the account's key or a user delegation key: the signature, the times, and what they allow, but
// not addresses. It accepts every bearer token, without looking into it, for everything, unless it was opened
// [Options].Tokens.
//
// Containers: create, delete, properties, metadata, leases, list. Block blobs: put (with metadata, a content type
// and an MD5), get (with ranges), head, delete, list (flat and by delimiter, with prefix, marker and
// startFrom). Conditions work on every blob operation. Batches can delete blobs. Account information and
// service properties can be read.
// [Options].HierarchicalNamespace models an account with directories. [Options].Versioning, [Options].SoftDelete,
// [Server.Archive] and [Server.SetPolicy] protect blobs.
//
// [Server.Replicate] gives the account a read-only secondary that lags behind.
//
// # Support for tests
//
//   - [Rule] injects faults, and [Random] injects them at random. [Lies] answers as misbehaving proxies
//     do. [Before] and [After] call a function at a request.
//   - [Options].RealAnswers answers as real accounts were recorded to, where Azurite is plainer.
//   - [Server.Requests] is a log of all requests.
//   - [Server.Forbid] refuses requests that a protocol does not allow.
//   - [Gate] and the package emulator/schedule decide the order of requests.
//   - [Proxy] puts rules, log, gates and bans in front of another service.
//   - [Server.Clone] copies everything stored.
//   - [Server.Blobs], [Server.Put], [Server.Corrupt] and others access what is stored without a request.
//
// A server from [New] is in memory. A server from [Open] is kept in a file and survives its process.
//
// # Unsupported features
//
// Page and append blobs, blocks, snapshots, copies, new metadata of an existing blob, content headers other than the
// type, checksums other than the MD5 of a whole body, leases of blobs, changes of the IDs of leases, tags, access
// tiers, requests for earlier versions, deleted blobs and immutability policies, encryption with the client's keys,
// stored access policies, Shared Key Lite, public access, the $root container, and Apache Arrow listings (a client
// that accepts Arrow gets XML, as from accounts without Arrow). The emulator refuses all of them with an error, as
// it does every header and query parameter that it does not know.
//
// # Differences from Azurite
//
// Tests compare the emulator with Azurite, the reference: TestFidelity for every operation under every
// condition and for the limits of the service. Where they differ, the emulator follows the documentation of the
// service. deviations_test.go lists all differences with their sources. These matter to clients:
//
//   - GET and HEAD with If-Match on a missing blob are 404 BlobNotFound, not 412
//     (https://github.com/Azure/Azurite/issues/2751). Writes with If-Match on a missing blob are 412 in
//     both.
//   - Every write honors If-None-Match: * on an existing blob: 409 for Put Blob, 412 for a delete, where Azurite
//     ignores it.
//   - Conditions that containers don't support are 400 ConditionHeadersNotSupported.
//   - A signature without a date, or with a date more than 15 minutes from the server's clock, is 403
//     AuthenticationFailed. A bad signature is 403 AuthenticationFailed, where Azurite says
//     AuthorizationFailure. No signature is 401 NoAuthenticationInformation.
//   - Metadata is limited to 8 KiB and blob names to 1,024 characters.
//   - Metadata values that are not visible ASCII are 403 AuthenticationFailed with a signature, and 400
//     InvalidMetadata with a bearer token. Azurite accepts them.
//   - The name of a deleted container is held for 30 seconds (409 ContainerBeingDeleted).
//   - A marker stands for the first name that a page did not contain. A client that pages misses names
//     that are added before the marker. The emulator refuses markers that it did not issue.
//   - Every write has its own ETag, even two writes in the same instant.
//   - Names of metadata are folded to lower case, which is how the SDK shows them in listings. (The
//     service keeps the case of the first writer, but HTTP libraries, including Go's, do not.)
//
// Where nothing is documented, the emulator does as Azurite does. Examples are 412 for a delete with If-Match
// of a missing blob, and a creation time that an overwrite resets.
//
// # Time
//
// The clock is time.Now, so under testing/synctest it is the bubble's clock. No goroutine and no timer
// outlives a request.
package emulator
