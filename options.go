package azblob

import (
	"cmp"
	"errors"
	"math"
	"net/http"
	"slices"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/storage/driver"
)

// Options are the settings of a vault. The zero value has the defaults. Wrong settings are [storage.ErrInvalid].
type Options struct {
	// ClientOptions are those of every client for Azure:
	//
	//   - Transport sends the HTTP requests. It is called from many goroutines, and Close leaves it open. It must not follow
	//     redirects: the service sends none, and the redirected request would take its token or signature along. The vault
	//     copies an *http.Client and switches its redirects off. It needs an idle connection for each request that may be in
	//     flight, because whatever it closes is opened again, which takes two or three round trips with TLS.
	//     [http.DefaultTransport] keeps two. Set MaxIdleConnsPerHost, and MaxIdleConns unless it is 0, to Concurrency, or
	//     lower that. New refuses an *http.Client whose *http.Transport keeps fewer; it does not see what another sender
	//     keeps. Default: an HTTP client of the vault's own.
	//   - PerCallPolicies and PerRetryPolicies see each try of a request.
	//   - APIVersion is the version of the service's REST API, a date such as "2021-12-02", for a service that does not know the
	//     default: a national cloud, Azure Stack Hub, or an older emulator. Such a service refuses every request with 400, which
	//     is [storage.ErrDenied]. Before version 2026-02-06 listings can't begin in the middle of a day: they return the same
	//     and read more pages. Default: "2026-02-06".
	//   - Telemetry, TracingProvider, Logging and Cloud are as everywhere. The application's ID in the User-Agent is "planvault"
	//     by default.
	//   - Retry must be its zero value: the vault has a layer of retries of its own, see Backoff.
	policy.ClientOptions

	// Concurrency is the largest number of requests in flight. The vault sends fewer at a time while the service asks for
	// fewer requests, with status 503 or 429: half of those in flight, and then one more with each round trip. Calls of the
	// vault take turns, so a single request does not wait for all those of a large plan. A fleet's heartbeats and looks at
	// its members do not count: a node makes one of each at a time. Default: 256.
	Concurrency int
	// GracePeriod is the time that a Create may take, and a Delete until it commits. Recovery leaves alone what is younger,
	// because a Create or Delete may still be running. Vaults of one prefix may have different grace periods: each marker
	// names that of its writer, and the longest counts. It is at least 1s and at most 12h: a change that finds its day young
	// must end before the day is past. Default: 10m.
	GracePeriod time.Duration
	// Backoff says how failed requests are tried again. Default: see [Backoff].
	Backoff Backoff
	// DayProbing lets listings, Recovery and Check work without the right to list containers. If the service denies the
	// listing, they ask for the container of each day by name, from tomorrow back to this number of days before today, by
	// this machine's clock. They see no older days, and no containers to which the identity has no rights. A search of at
	// most three days asks for these days. Default: 0, which means that such calls fail with [storage.ErrDenied].
	DayProbing int
	// UnversionedUpdates allows updates with an empty State.ETag, for engines that keep no versions. Such an update
	// overwrites any version: the last writer wins, a lost answer may make an update take effect twice, and children that are
	// not those of the plan go unnoticed. A plan still moves only forward, otherwise the update is [storage.ErrConflict];
	// looking at the plan takes up to two more requests. An update with a version is checked as always. Such a vault can't
	// join a fleet, and an engine of another kind can't claim plans through it. Default: an update without a version is
	// [storage.ErrInvalid].
	UnversionedUpdates bool
	// Observer sees what the vault does. Default: none.
	Observer Observer
}

// Backoff says how failed requests are tried again: after InitialInterval, then after twice as long each time up to
// MaxInterval. Each wait is changed by up to half at random, and is never shorter than the service asks for. Zero fields
// have their defaults.
type Backoff struct {
	// InitialInterval is the wait before the second try. Default: 200ms.
	InitialInterval time.Duration
	// MaxInterval is the longest wait. Default: 20s.
	MaxInterval time.Duration
	// MaxElapsed bounds the tries of a request if the caller's context has no deadline. If it has one, only
	// the deadline counts. Default: 15m.
	MaxElapsed time.Duration
}

// maxGrace leaves time between the end of a change that began on the plan's day and the end of the day after it.
const maxGrace = 12 * time.Hour

// maxProbing is the most days that are asked for by name.
const maxProbing = 36_525

// complete sets the defaults. The error names everything that is wrong with the options.
func (o Options) complete() (Options, error) {
	var errs []error
	bad := func(name, problem string, args ...any) {
		errs = append(errs, driver.Invalid("Options."+name, problem, args...))
	}
	positive := func(name string, d *time.Duration, fallback time.Duration) {
		if *d == 0 {
			*d = fallback
		}
		if *d < 0 {
			bad(name, "%v is negative", *d)
		}
	}
	positive("Backoff.InitialInterval", &o.Backoff.InitialInterval, 200*time.Millisecond)
	positive("Backoff.MaxInterval", &o.Backoff.MaxInterval, 20*time.Second)
	positive("Backoff.MaxElapsed", &o.Backoff.MaxElapsed, 15*time.Minute)
	positive("GracePeriod", &o.GracePeriod, 10*time.Minute)
	if o.Concurrency == 0 {
		o.Concurrency = 256
	}
	if o.Concurrency < 0 {
		bad("Concurrency", "%d is negative", o.Concurrency)
	}
	if c, ok := o.Transport.(*http.Client); ok && c == nil {
		bad("Transport", "is a nil *http.Client")
	} else if idle := idleConnections(o.Transport); idle < o.Concurrency {
		bad("Transport", "keeps %d idle connections, and %d requests may be in flight: raise MaxIdleConnsPerHost and MaxIdleConns, or lower Options.Concurrency", idle, o.Concurrency)
	}
	if o.DayProbing < 0 {
		bad("DayProbing", "%d is negative", o.DayProbing)
	} else if o.DayProbing > maxProbing {
		bad("DayProbing", "%d is more than a hundred years: at most %d are allowed", o.DayProbing, maxProbing)
	}
	for name, policies := range map[string][]policy.Policy{"PerCallPolicies": o.PerCallPolicies, "PerRetryPolicies": o.PerRetryPolicies} {
		if slices.Contains(policies, nil) {
			bad(name, "has a nil policy")
		}
	}
	if _, err := time.Parse(time.DateOnly, o.APIVersion); err != nil && o.APIVersion != "" {
		bad("APIVersion", "%q is not a date such as %s", o.APIVersion, blob.Version)
	}
	if g := o.GracePeriod; g > 0 && g < time.Second {
		bad("GracePeriod", "%v is less than 1s, the resolution of the service's clock", g)
	} else if g > maxGrace {
		bad("GracePeriod", "%v is more than %v", g, maxGrace)
	}
	if r := o.Retry; r.MaxRetries != 0 || r.TryTimeout != 0 || r.RetryDelay != 0 || r.MaxRetryDelay != 0 || r.StatusCodes != nil || r.ShouldRetry != nil {
		bad("Retry", "is set: the vault has the only layer of retries, see Backoff")
	}
	return o, errors.Join(errs...)
}

// idleConnections returns how many connections to the account an HTTP client keeps, or the largest number if it is not
// known. If these are fewer than the requests in flight, the others connect anew each time: that works at twice the cost, and
// nobody would notice. A larger pool costs nothing while it is not used, so too few are an error.
func idleConnections(t policy.Transporter) int {
	client, ok := t.(*http.Client)
	if !ok {
		return math.MaxInt
	}
	transport, ok := cmp.Or(client.Transport, http.DefaultTransport).(*http.Transport)
	switch {
	case !ok:
		return math.MaxInt
	case transport.DisableKeepAlives:
		return 0
	}
	idle := max(0, cmp.Or(transport.MaxIdleConnsPerHost, http.DefaultMaxIdleConnsPerHost))
	if n := transport.MaxIdleConns; n > 0 {
		idle = min(idle, n)
	}
	return idle
}

func (o Options) client() blob.Options {
	return blob.Options{
		ClientOptions: o.ClientOptions,
		Concurrency:   o.Concurrency,
		Retry:         blob.Retry(o.Backoff),
		OnStart:       requests(o.Observer.RequestStart),
		OnRequest:     requests(o.Observer.Request),
		OnRetry:       o.Observer.retries(),
	}
}
