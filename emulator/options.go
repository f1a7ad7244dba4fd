package emulator

import (
	"encoding/base64"
	"time"
)

// The development account, which Azurite and the SDKs know as well. The key is public:
// https://learn.microsoft.com/azure/storage/common/storage-configure-connection-string
const (
	DefaultAccount = "devstoreaccount1"
	DefaultKey     = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)

// Option configures a [Server].
type Option func(*Server)

// withAccount sets the name of the account and its key in base64. It panics if the key is not base64. The
// default is [DefaultAccount] with [DefaultKey].
func withAccount(name, base64Key string) Option {
	key, err := base64.StdEncoding.DecodeString(base64Key)
	if err != nil || name == "" {
		panic("emulator: withAccount wants a name and a key in base64")
	}
	return func(s *Server) { s.account, s.key = name, key }
}

// WithLatency sets how long each request takes: half of the time before it takes effect, and half before its
// answer arrives. If the context ends meanwhile, the request ends, applied or not. The default is 0.
func WithLatency(d time.Duration) Option { return func(s *Server) { s.latency = d } }

// WithClock sets the clock that stamps blobs and answers and checks the dates of signatures. It must be safe
// for concurrent use. It does not measure latency. The default is [time.Now].
func WithClock(now func() time.Time) Option { return func(s *Server) { s.clock = now } }

// withContainerDeletion sets how long the name of a deleted container can't be used again. With 0 the name is
// free at once, as in Azurite. The default is 30 s, the least that the service promises.
func withContainerDeletion(d time.Duration) Option { return func(s *Server) { s.deletion = d } }

// WithPageLimit sets the largest number of items in a page of a listing, whatever the client asks for. The
// service, too, may send fewer items than asked for. The default is 5,000, which is also the maximum.
func WithPageLimit(n int) Option {
	return func(s *Server) { s.pageLimit = min(max(n, 1), pageLimit) }
}

// withMaxBody sets the largest body of a request in bytes. The answer to a larger one is 413
// RequestBodyTooLarge. The default is 256 MiB; the limit of the service is 5,000 MiB.
func withMaxBody(n int64) Option { return func(s *Server) { s.maxBody = n } }

// WithoutLog keeps no log, for runs of millions of requests. By default all requests are logged.
func WithoutLog() Option { return func(s *Server) { s.logging = false } }
