package azblob

import (
	"errors"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/storage/driver"
)

// Option is a setting of a vault.
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

// Retry says how a request that failed is tried again: after InitialInterval, then after twice as long each time up to
// MaxInterval, each wait changed by up to half at random, and never before the service asks for. Zero fields stand for
// their defaults.
type Retry struct {
	// InitialInterval is the wait before the second try. Default: 200ms.
	InitialInterval time.Duration
	// MaxInterval is the longest wait. Default: 20s.
	MaxInterval time.Duration
	// MaxElapsed ends the tries of a request when the caller's context has no deadline. A deadline is the only bound
	// otherwise. Default: 15m.
	MaxElapsed time.Duration
}

// WithConcurrency sets how many requests the vault has in flight at most. Default: 64.
func WithConcurrency(n int) Option { return func(o *options) { o.concurrency = n } }

// WithGracePeriod sets how long a Create may take, and a Delete until its commit, and how long Recovery leaves alone what might
// be a create or delete that is under way. Vaults of one prefix may have different ones: markers tell that of their writer, and
// the longest is waited for. Default: 10m.
func WithGracePeriod(d time.Duration) Option { return func(o *options) { o.grace = d } }

// WithRetry sets how failed requests are tried again. Default: as Retry says.
func WithRetry(r Retry) Option { return func(o *options) { o.retry = r } }

// WithTransport sets what sends HTTP requests, for tests, proxies and instrumentation. It is called from many goroutines, and
// Close leaves it alone. It must not follow redirects: the service sends none, and a request that followed one would take its
// token or signature along. The redirects of an *http.Client are switched off in a copy of it. Default: an own HTTP client
// with an idle connection for each request that may be in flight.
func WithTransport(t policy.Transporter) Option { return func(o *options) { o.transport = t } }

// WithServiceVersion sets the version of the service's interface to ask for, such as "2026-06-06", where the service (or an
// emulator of it) does not know the SDK's. Default: the SDK's.
func WithServiceVersion(version string) Option {
	return func(o *options) { o.serviceVersion = version }
}

// WithDayProbing lets listings, Recovery and Check do without the right to list containers: where the service denies it, they
// ask for the container of each day by name, from tomorrow back to so many days before today, by this machine's date. What
// is older is not seen, nor what the identity has no rights to. Default: 0, which is off; then such calls are ErrDenied.
func WithDayProbing(days int) Option { return func(o *options) { o.probing = days } }

// WithUnversionedUpdates lets updates have an empty State.ETag, for engines that keep no versions. Such an update overwrites
// whatever version is there: the last writer wins, a lost answer may make an update take effect twice, and nobody notices
// children that are not those of the plan. Of a plan it is one request more, which looks whether there is such a plan. An
// update with a version is checked as always. Default: an update without a version is ErrInvalid.
func WithUnversionedUpdates() Option { return func(o *options) { o.unversioned = true } }

// WithObserver sets who is told what the vault does. Default: nobody.
func WithObserver(observer Observer) Option { return func(o *options) { o.observer = observer } }

// gather applies the options to the defaults and says everything that is wrong with them.
func applyOptions(opts []Option) (options, error) {
	o := options{concurrency: 64, grace: 10 * time.Minute}
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
	if o.grace < time.Second {
		errs = append(errs, driver.Invalid("WithGracePeriod", "%v is less than 1s, the finest time the service tells", o.grace))
	}
	return o, errors.Join(errs...)
}

func (o options) client() blob.Options {
	return blob.Options{
		Concurrency:    o.concurrency,
		Retry:          blob.Retry(o.retry),
		Transport:      o.transport,
		ServiceVersion: o.serviceVersion,
		OnRequest:      o.observer.requests(),
		OnRetry:        o.observer.retries(),
	}
}
