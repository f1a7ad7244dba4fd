package azblob

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
)

// Vault is a [storage.Vault] on Azure Blob Storage. It is safe for concurrent use. Any number of vaults, in
// any number of processes, may share a prefix.
//
// It has the verbs of plans. [Vault.Admin] has what is about days, the account, and the vault as a whole.
type Vault struct{ *session }

var _ storage.Vault = (*Vault)(nil)

// Admin is what people and their programs do with a vault as a whole, beside services that work with its plans: it looks at the
// account, counts, checks, repairs, holds and drops days. It is safe for concurrent use, and closed with its vault.
// [Vault.Admin] returns it, and storage.As[*azblob.Admin] finds it through other vaults that wrap one.
type Admin struct{ *session }

// Admin returns what is done with the vault as a whole.
func (v *Vault) Admin() *Admin { return &Admin{v.session} }

// offered has methods for other packages of this module, which find them with [storage.As].
type offered struct {
	*Vault
	storage.Control
}

// audit makes a change that the audit log has from when do calls begin.
func (a *Admin) audit(ctx context.Context, entry storage.AuditEntry, do func(ctx context.Context, begin func()) error) error {
	return storage.AuditLate(ctx, &Vault{a.session}, entry, do)
}

// session is an open vault.
type session struct {
	*store
	reg *registry.Register

	mu     sync.Mutex
	calls  int // under way
	closed bool
	idle   chan struct{} // closed when the vault is closed and no call is under way
}

// New returns the vault named prefix in the storage account at endpoint, such as
// "https://account.blob.core.windows.net". It sends no request. The identity needs the role Storage Blob Data
// Contributor on the account.
//
// The prefix has at most 52 lower-case letters, digits and single hyphens, and no hyphen at either end. The
// registry names the types of requests and responses. With a nil registry they are read as json.RawMessage,
// which suits tools.
//
// Bad arguments are [storage.ErrInvalid]; the error names all of them.
func New(ctx context.Context, prefix, endpoint string, cred azcore.TokenCredential, reg *registry.Register, opts Options) (*Vault, error) {
	var errs []error
	if problem := checkEndpoint(endpoint); problem != "" {
		errs = append(errs, driver.Invalid("endpoint", "%s", problem))
	}
	if cred == nil {
		errs = append(errs, driver.Invalid("cred", "is nil"))
	}
	account, err := blob.WithToken(endpoint, cred)
	if err != nil && len(errs) == 0 {
		errs = append(errs, driver.Invalid("endpoint", "%v", err))
	}
	return newVault(ctx, prefix, account, reg, opts, errs)
}

// checkEndpoint says what is wrong with an endpoint for tokens, or returns "". It quotes no part that may be
// secret.
func checkEndpoint(endpoint string) string {
	u, err := url.Parse(endpoint)
	switch {
	case err != nil:
		return "is not like https://account.blob.core.windows.net"
	case u.Scheme != "https" || u.Host == "":
		return fmt.Sprintf("with scheme %q and host %q is not like https://account.blob.core.windows.net (a token is sent over https only)", u.Scheme, u.Host)
	case u.User != nil, u.RawQuery != "", u.Fragment != "":
		return fmt.Sprintf("of %s has more than a host and a path (a shared access signature is for NewFromConnectionString)", u.Host)
	}
	return ""
}

// SharedKeyCredential is the key of a storage account.
type SharedKeyCredential struct {
	account, key string
}

// NewSharedKeyCredential returns the credential of an account's key, as the portal shows it. The error is
// [storage.ErrInvalid] for a key that is not base64, and does not quote it.
func NewSharedKeyCredential(accountName, accountKey string) (*SharedKeyCredential, error) {
	if err := blob.CheckKey(accountName, accountKey); err != nil {
		return nil, opError("NewSharedKeyCredential", uuid.Nil, driver.Invalid("accountKey", "%v", err))
	}
	return &SharedKeyCredential{accountName, accountKey}, nil
}

// AccountName returns the name of the account.
func (c *SharedKeyCredential) AccountName() string { return c.account }

// NewWithSharedKeyCredential returns the vault named prefix in the storage account at endpoint, with the key of the account.
// It is otherwise like [New].
func NewWithSharedKeyCredential(ctx context.Context, prefix, endpoint string, cred *SharedKeyCredential, reg *registry.Register, opts Options) (*Vault, error) {
	if cred == nil {
		cred = new(SharedKeyCredential)
	}
	account, err := blob.WithKey(endpoint, cred.account, cred.key)
	var errs []error
	if err != nil {
		errs = append(errs, driver.Invalid("endpoint or cred", "%v", err))
	}
	return newVault(ctx, prefix, account, reg, opts, errs)
}

// NewFromConnectionString returns the vault named prefix in the storage account of a connection string, as
// the Azure portal and emulators show it: with AccountKey, with SharedAccessSignature, or
// UseDevelopmentStorage=true for the emulator at port 10000 of this machine. It is otherwise like [New].
func NewFromConnectionString(ctx context.Context, prefix, connectionString string, reg *registry.Register, opts Options) (*Vault, error) {
	account, err := blob.ParseConnectionString(connectionString)
	var errs []error
	if err != nil {
		errs = append(errs, driver.Invalid("connectionString", "%v", err))
	}
	return newVault(ctx, prefix, account, reg, opts, errs)
}

// NewFromURL returns the vault named prefix in the storage account of a URL with a shared access signature,
// such as "https://account.blob.core.windows.net/?sv=...&sig=...". The URL may be that of one of the vault's
// containers, as the portal shows it for a signature of a container: the vault then works in that container
// alone, and needs [Options].DayProbing. A signature can't be renewed: open another vault before it expires.
// NewFromURL is otherwise like [New].
func NewFromURL(ctx context.Context, prefix, url string, reg *registry.Register, opts Options) (*Vault, error) {
	account, err := blob.WithSignature(url, vaultContainer(prefix))
	var errs []error
	if err != nil {
		errs = append(errs, driver.Invalid("url", "%v", err))
	}
	return newVault(ctx, prefix, account, reg, opts, errs)
}

// vaultContainer returns a function that reports whether a name is that of a container of the vault.
func vaultContainer(name string) func(container string) bool {
	return func(container string) bool {
		_, day := prefix(name).parseDay(container)
		return day || container == prefix(name).control() || container == prefix(name).log()
	}
}

func newVault(ctx context.Context, name string, account blob.Account, reg *registry.Register, opts Options, errs []error) (*Vault, error) {
	if problem := prefix(name).check(); problem != "" {
		errs = append(errs, driver.Invalid("prefix", "%s", problem))
	}
	o, err := opts.complete()
	if err != nil {
		errs = append(errs, err)
	}
	if err := errors.Join(append(errs, ctx.Err())...); err != nil {
		return nil, opError("New", uuid.Nil, err)
	}
	v := &Vault{&session{reg: reg, idle: make(chan struct{})}}
	if v.store, err = newStore(name, account, o); err != nil {
		return nil, opError("New", uuid.Nil, err)
	}
	return v, nil
}

// Close waits for the calls under way, at most until ctx ends, and then closes the vault's connections. It
// returns nil if no call is under way, even if ctx has ended. Later calls return [storage.ErrClosed]; a
// second Close returns nil.
func (v *Vault) Close(ctx context.Context) error {
	return v.observer.observe(ctx, "Close", uuid.Nil, func(ctx context.Context) error {
		if !v.markClosed() {
			return nil
		}
		defer v.client.Close()
		select {
		case <-v.idle:
			return nil
		case <-ctx.Done():
		}
		select {
		case <-v.idle: // ready as well
			return nil
		default:
			return ctx.Err()
		}
	})
}

// markClosed closes the vault to new calls. It returns false if the vault was closed already.
func (s *session) markClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.closed = true
	s.closeIfIdle()
	return true
}

// begin counts a call as under way until the caller calls end. It returns ErrClosed after Close.
func (s *session) begin() (end func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, storage.ErrClosed
	}
	s.calls++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.calls--
		s.closeIfIdle()
	}, nil
}

// refuse is the start of a call that returns a sequence. It returns err, or ErrClosed after Close, and tells the
// observer.
func (s *session) refuse(ctx context.Context, name string, err error) error {
	if err == nil {
		var end func()
		if end, err = s.begin(); err == nil {
			end()
			return nil
		}
	}
	return s.observer.observe(ctx, name, uuid.Nil, func(context.Context) error { return err })
}

// closeIfIdle closes idle when the last call of a closed vault has ended. The caller holds mu.
func (s *session) closeIfIdle() {
	if s.closed && s.calls == 0 {
		close(s.idle)
	}
}

// callKey is the context key of the session whose call is under way.
type callKey struct{}

// call runs a method, unless the vault is closed. The observer sees it as an operation. A plan of uuid.Nil
// means that the method is not about one plan. A call within a call is part of it, so Close waits for it, too.
func (s *session) call(ctx context.Context, name string, plan uuid.UUID, do func(ctx context.Context) error) error {
	return s.observer.observe(ctx, name, plan, func(ctx context.Context) error {
		if ctx.Value(callKey{}) != s {
			end, err := s.begin()
			if err != nil {
				return err
			}
			defer end()
			ctx = context.WithValue(ctx, callKey{}, s)
		}
		return do(blob.AsOperation(ctx))
	})
}

// Registry returns the registry that the vault was opened with. It may be nil.
func (v *Vault) Registry() *registry.Register { return v.reg }

// CheckFenced returns [storage.ErrInvalid] if the vault was opened with [Options].UnversionedUpdates: nobody can own its plans.
func (v *Vault) CheckFenced() error { return driver.CheckFenced(v.unversioned) }
