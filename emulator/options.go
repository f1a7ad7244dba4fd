package emulator

import "time"

// The development account, which Azurite and the SDKs know as well. The key is public:
// https://learn.microsoft.com/azure/storage/common/storage-configure-connection-string
const (
	DefaultAccount = "devstoreaccount1"
	DefaultKey     = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)

// Options are the settings of a [Server]. The zero value has the defaults.
type Options struct {
	// Latency is how long each request takes: half of the time before it takes effect, and half before its answer arrives. If
	// the context ends meanwhile, the request ends, applied or not. Default: 0.
	Latency time.Duration
	// Clock is the clock that stamps blobs and answers and checks the dates of signatures. It must be safe for concurrent use.
	// It does not measure latency. Default: [time.Now].
	Clock func() time.Time
	// PageLimit is the largest number of items in a page of a listing, whatever the client asks for. The service, too, may
	// send fewer items than asked for. Default: 5,000, which is also the maximum.
	PageLimit int
	// NoLog keeps no log, for runs of millions of requests. Default: all requests are logged.
	NoLog bool
	// RealAnswers makes the server answer as recorded real accounts do, where Azurite and the server without it are plainer.
	// What differs depends on this seed and the request. The figures are from 2,176 exchanges with real accounts, which
	// azure-storage-python recorded in 2019.
	//
	//   - Date lags behind the clock by which blobs are stamped: in 43 % of the answers by one second (509 of 1,184 writes have
	//     a Date before their own Last-Modified), and in a few by two (up to 1.9 s in 177 refusals).
	//   - One in eight pages of a listing is cut short at random. It has a marker, and may have no items. This is documented,
	//     not recorded.
	//   - The bodies of listings begin with a byte order mark, and so do those of the items of a batch.
	//   - Listings and the answers to batches are chunked: they have no Content-Length.
	//   - The items of a batch name an older x-ms-version than the client asks for, and have no Date.
	//   - HEAD requests that are refused with 400 before they were executed have x-ms-request-id alone. So has every request
	//     with a service version that is newer than the service.
	//   - Every other 401 and 403 lacks x-ms-version, and every other 404 of Get Blob lacks x-ms-error-code (one of two).
	//
	// Answers of front ends that depend on no request are faults: see [Foreign]. Default: 0, and all answers are plain.
	RealAnswers uint64
	// HierarchicalNamespace gives the account a hierarchical namespace. Its directories are visible, a write creates those
	// above its blob, and they stay when they become empty. Listings support the delimiter "/" only. Default: false.
	HierarchicalNamespace bool
	// Versioning keeps a version of a blob whenever the blob is overwritten or deleted, and names versions in answers. See
	// [Server.Kept]. Default: false.
	// https://learn.microsoft.com/azure/storage/blobs/versioning-overview
	Versioning bool
	// SoftDelete keeps blobs that are overwritten or deleted, and containers that are deleted. Overwritten blobs are not kept
	// on an account with a hierarchical namespace. The account says that it keeps them for seven days. See [Server.Kept].
	// Default: false.
	// https://learn.microsoft.com/azure/storage/blobs/soft-delete-blob-overview,
	// https://learn.microsoft.com/azure/storage/blobs/soft-delete-container-overview
	SoftDelete bool
	// Tokens is the tenant whose bearer tokens the server checks: the audience, the tenant that issued them, their times, and
	// the role of their holder. A token must come over https, which [Server.Transport] takes from the URL. Default: every
	// token is accepted, without a look into it.
	Tokens string
}
