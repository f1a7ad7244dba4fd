package azblob

import (
	"errors"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/storage/driver"
)

// Option is a setting of a vault, for [New], [NewFromConnectionString] and [NewFromURL].
type Option func(*options)

type options struct {
	concurrency    int
	grace          time.Duration
	retry          Retry
	transport      policy.Transporter
	serviceVersion string
	probing        int
	unversioned    bool
	observer       Observer
}

// Retry says how failed requests are tried again: after InitialInterval, then after twice as long each time
// up to MaxInterval. Each wait is changed by up to half at random, and is never shorter than the service asks
// for. Zero fields have their defaults.
type Retry struct {
	// InitialInterval is the wait before the second try. Default: 200ms.
	InitialInterval time.Duration
	// MaxInterval is the longest wait. Default: 20s.
	MaxInterval time.Duration
	// MaxElapsed bounds the tries of a request if the caller's context has no deadline. If it has one, only
	// the deadline counts. Default: 15m.
	MaxElapsed time.Duration
}

// WithConcurrency sets the largest number of requests in flight. The vault sends fewer at a time while the
// service asks for fewer requests, with status 503 or 429: half of those in flight, and then one more with each
// round trip. Calls of the vault take turns, so a single request does not wait for all those of a large plan.
// The calls of [Vault.RenewMember] and [Vault.Roster] do not count: a fleet's node makes one of each at a time.
// Default: 256.
func WithConcurrency(n int) Option { return func(o *options) { o.concurrency = n } }

// maxGrace leaves time between the end of a change that began on the plan's day and the end of the day after it.
const maxGrace = 12 * time.Hour

// WithGracePeriod sets the time that a Create may take, and a Delete until it commits. Recovery leaves alone
// what is younger, because a Create or Delete may still be running. Vaults of one prefix may have different
// grace periods: each marker names that of its writer, and the longest counts. It is at least 1s and at most
// 12h: a change that finds its day young must end before the day is past. Default: 10m.
func WithGracePeriod(d time.Duration) Option { return func(o *options) { o.grace = d } }

// WithRetry sets how failed requests are tried again. Default: see [Retry].
func WithRetry(r Retry) Option { return func(o *options) { o.retry = r } }

// WithTransport sets the sender of HTTP requests, for tests, proxies and instrumentation. It is called from
// many goroutines, and Close leaves it open. It must not follow redirects: the service sends none, and the
// redirected request would take its token or signature along. The vault copies an *http.Client and switches
// its redirects off. Default: an HTTP client of the vault's own, with an idle connection for each request
// that may be in flight.
func WithTransport(t policy.Transporter) Option { return func(o *options) { o.transport = t } }

// WithServiceVersion sets the version of the service's REST API, a date such as "2021-12-02", for a service that does
// not know the default: a national cloud, Azure Stack Hub, or an older emulator. Such a service refuses every request
// with 400, which is [storage.ErrDenied]. Before version 2026-02-06 listings can't begin in the middle of a day: they
// return the same and read more pages. Default: "2026-02-06".
func WithServiceVersion(version string) Option {
	return func(o *options) { o.serviceVersion = version }
}

// WithDayProbing lets listings, Recovery and Check work without the right to list containers. If the service
// denies the listing, they ask for the container of each day by name, from tomorrow back to the given number
// of days before today, by this machine's clock. They see no older days, and no containers to which the
// identity has no rights. A search of at most three days asks for these days. Default: 0, which means that
// such calls fail with [storage.ErrDenied].
func WithDayProbing(days int) Option { return func(o *options) { o.probing = days } }

// WithUnversionedUpdates allows updates with an empty State.ETag, for engines that keep no versions. Such an
// update overwrites any version: the last writer wins, a lost answer may make an update take effect twice,
// and children that are not those of the plan go unnoticed. A plan still moves only forward, otherwise the update
// is [storage.ErrConflict]; looking at the plan takes up to two more requests. An update with a version is checked as
// always. Such a vault can't join a fleet. Default: an update without a version is [storage.ErrInvalid].
func WithUnversionedUpdates() Option { return func(o *options) { o.unversioned = true } }

// WithObserver sets the observer. Default: none.
func WithObserver(observer Observer) Option { return func(o *options) { o.observer = observer } }

// applyOptions applies options to the defaults. The error names everything that is wrong with them.
func applyOptions(opts []Option) (options, error) {
	o := options{concurrency: 256, grace: 10 * time.Minute}
	for _, opt := range opts {
		opt(&o)
	}
	var errs []error
	positive := func(name string, d *time.Duration, fallback time.Duration) {
		if *d == 0 {
			*d = fallback
		}
		if *d < 0 {
			errs = append(errs, driver.Invalid(name, "%v is negative", *d))
		}
	}
	positive("WithRetry: InitialInterval", &o.retry.InitialInterval, 200*time.Millisecond)
	positive("WithRetry: MaxInterval", &o.retry.MaxInterval, 20*time.Second)
	positive("WithRetry: MaxElapsed", &o.retry.MaxElapsed, 15*time.Minute)
	if o.concurrency < 1 {
		errs = append(errs, driver.Invalid("WithConcurrency", "%d is less than 1", o.concurrency))
	}
	if o.probing < 0 {
		errs = append(errs, driver.Invalid("WithDayProbing", "%d is negative", o.probing))
	}
	if _, err := time.Parse(time.DateOnly, o.serviceVersion); err != nil && o.serviceVersion != "" {
		errs = append(errs, driver.Invalid("WithServiceVersion", "%q is not a date such as %s", o.serviceVersion, blob.Version))
	}
	if o.grace < time.Second {
		errs = append(errs, driver.Invalid("WithGracePeriod", "%v is less than 1s, the resolution of the service's clock", o.grace))
	}
	if o.grace > maxGrace {
		errs = append(errs, driver.Invalid("WithGracePeriod", "%v is more than %v", o.grace, maxGrace))
	}
	return o, errors.Join(errs...)
}

func (o options) client() blob.Options {
	return blob.Options{
		Concurrency:    o.concurrency,
		Retry:          blob.Retry(o.retry),
		Transport:      o.transport,
		ServiceVersion: o.serviceVersion,
		OnStart:        requests(o.observer.RequestStart),
		OnRequest:      requests(o.observer.Request),
		OnRetry:        o.observer.retries(),
	}
}
