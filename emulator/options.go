package emulator

import "time"

// The development account, which Azurite and the SDKs know as well. The key is public:
// https://learn.microsoft.com/azure/storage/common/storage-configure-connection-string
const (
	DefaultAccount = "devstoreaccount1"
	DefaultKey     = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)

// Option configures a [Server].
type Option func(*Server)

// WithLatency sets how long each request takes: half of the time before it takes effect, and half before its
// answer arrives. If the context ends meanwhile, the request ends, applied or not. The default is 0.
func WithLatency(d time.Duration) Option { return func(s *Server) { s.latency = d } }

// WithClock sets the clock that stamps blobs and answers and checks the dates of signatures. It must be safe
// for concurrent use. It does not measure latency. The default is [time.Now].
func WithClock(now func() time.Time) Option { return func(s *Server) { s.clock = now } }

// WithPageLimit sets the largest number of items in a page of a listing, whatever the client asks for. The
// service, too, may send fewer items than asked for. The default is 5,000, which is also the maximum.
func WithPageLimit(n int) Option {
	return func(s *Server) { s.pageLimit = min(max(n, 1), pageLimit) }
}

// WithoutLog keeps no log, for runs of millions of requests. By default all requests are logged.
func WithoutLog() Option { return func(s *Server) { s.logging = false } }

// WithRealAnswers makes the server answer as recorded real accounts do, where Azurite and the server without
// it are plainer. What differs depends on the seed and the request. The figures are from 2,176
// exchanges with real accounts, which azure-storage-python recorded in 2019.
//
//   - Date lags behind the clock by which blobs are stamped: in 43 % of the answers by one second (509 of
//     1,184 writes have a Date before their own Last-Modified), and in a few by two (up to 1.9 s in 177
//     refusals).
//   - One in eight pages of a listing is cut short at random. It has a marker, and may have no items. This is
//     documented, not recorded.
//   - The bodies of listings begin with a byte order mark, and so do those of the items of a batch.
//   - Listings and the answers to batches are chunked: they have no Content-Length.
//   - The items of a batch name an older x-ms-version than the client asks for, and have no Date.
//   - HEAD requests that are refused with 400 before they were executed have x-ms-request-id alone. So has every
//     request with a service version that is newer than the service.
//   - Every other 401 and 403 lacks x-ms-version, and every other 404 of Get Blob lacks x-ms-error-code (one
//     of two).
//
// Answers of front ends that depend on no request are faults: see [Foreign]. By default all answers are plain.
func WithRealAnswers(seed uint64) Option {
	return func(s *Server) { s.real, s.listings = &seed, map[uint64]int{} }
}
