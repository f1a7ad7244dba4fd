package emulator

import (
	"encoding/base64"
	"time"
)

// The development account, which Azurite and the SDKs know, too. The key is
// public: https://learn.microsoft.com/azure/storage/common/storage-configure-connection-string
const (
	DefaultAccount = "devstoreaccount1"
	DefaultKey     = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)

// Option changes a [Server].
type Option func(*Server)

// WithAccount names the account and its key in base64. It panics if the key is
// not base64. Default: [DefaultAccount] and [DefaultKey].
func WithAccount(name, base64Key string) Option {
	key, err := base64.StdEncoding.DecodeString(base64Key)
	if err != nil || name == "" {
		panic("emulator: WithAccount wants a name and a key in base64")
	}
	return func(s *Server) { s.account, s.key = name, key }
}

// WithLatency makes each request take that long, half of it before it takes
// effect and half before its answer arrives. A context that ends meanwhile ends
// the request, applied or not. Default: 0.
func WithLatency(d time.Duration) Option { return func(s *Server) { s.latency = d } }

// WithClock sets the server's clock: what it stamps on blobs and answers and
// compares signatures with. It must be safe for concurrent use. Latency is not
// measured by it. Default: time.Now.
func WithClock(now func() time.Time) Option { return func(s *Server) { s.clock = now } }

// WithContainerDeletion sets for how long the name of a deleted container can't
// be used again. 0 is at once, as in Azurite. Default: 30 s, the least that the
// service promises.
func WithContainerDeletion(d time.Duration) Option { return func(s *Server) { s.deletion = d } }

// WithPageLimit sets the most items that one page of a listing holds, whatever
// the client asks for: the service may always send fewer. Default: 5,000, and no
// more than that.
func WithPageLimit(n int) Option {
	return func(s *Server) { s.pageLimit = min(max(n, 1), pageLimit) }
}

// WithMaxBody sets the largest body of a request in bytes; a larger one is
// 413 RequestBodyTooLarge. Default: 256 MiB. (The service takes 5,000 MiB.)
func WithMaxBody(n int64) Option { return func(s *Server) { s.maxBody = n } }

// WithoutLog keeps no log, for runs of millions of requests.
// Default: everything is logged.
func WithoutLog() Option { return WithLogLimit(0) }

// WithLogLimit keeps the last n requests. Default: all.
func WithLogLimit(n int) Option { return func(s *Server) { s.logLimit = max(n, 0) } }
