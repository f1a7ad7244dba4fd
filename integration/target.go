package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/service"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/azurite"
	"github.com/planvault/azblob/internal/merge"
	"github.com/planvault/azblob/internal/settings"
	"github.com/planvault/azblob/internal/sleep"
	"github.com/planvault/azblob/plugins"
	"github.com/planvault/azblob/plugins/registry"
)

// account says where a service is, and how to log in: with a connection string, or with an endpoint as whom azidentity finds.
type account struct{ ConnectionString, Endpoint string }

// target is a service that steps run against.
type target struct {
	account
	credential azcore.TokenCredential // of an endpoint
	// title names the service, without any secret.
	title string
	// connect makes a new connection to the service. Everything that needs no connection of its own uses
	// transport.
	connect   func() policy.Transporter
	transport policy.Transporter
	// service is the SDK's client. It lists blobs without the vault and deletes containers.
	service *service.Client
	// reach returns what another process needs to open a vault on the target. The caller calls end afterwards.
	reach func() (a account, end func() error, err error)
	// wait lets time pass by the service's clock.
	wait  func(ctx context.Context, d time.Duration) error
	close func() error
}

func openTarget(ctx context.Context, c config, stderr io.Writer) (*target, error) {
	switch {
	case c.azurite:
		return onAzurite(ctx, stderr)
	case c.account != account{}:
		return newTarget(c.account, nil, newHTTPClient)
	}
	var opts []emulator.Options
	if c.real {
		opts = append(opts, emulator.Options{RealAnswers: c.seed})
	}
	t, server, err := onEmulator(opts...)
	if err == nil && c.faults {
		lie(server, c.seed, c.soak > 0) // a fleet lets go of a plan that it believes is deleted
	}
	return t, err
}

// lie injects the lies of proxies into the answers for other processes, and false absences if they are wanted.
// Processes use a listener; the checks use a transport and get the truth.
func lie(server *emulator.Server, seed uint64, absences bool) {
	client := func(r emulator.Request) bool { return strings.HasPrefix(r.Client, "listener-") }
	server.Inject(emulator.Lies(0.04, seed).Where(client))
	if absences {
		// A reader has to believe that a blob does not exist. A client that removes something must not.
		server.Inject(emulator.FalseAbsences(0.02, seed).Where(func(r emulator.Request) bool { return client(r) && r.Op != emulator.HeadBlob }))
	}
}

// onEmulator returns a target without sockets: the emulator's transport takes the SDK's requests directly.
// Waiting advances the emulator's clock.
func onEmulator(opts ...emulator.Options) (*target, *emulator.Server, error) {
	var ahead atomic.Int64
	server := emulator.New(merge.Fields(append(opts, emulator.Options{NoLog: true}, emulator.Options{Clock: func() time.Time {
		return time.Now().Add(time.Duration(ahead.Load()))
	}})...))
	t, err := newTarget(account{ConnectionString: server.ConnectionString()}, nil, func() policy.Transporter { return server.Transport() })
	if err != nil {
		return nil, nil, err
	}
	t.title = "the emulator in this process"
	t.reach = func() (account, func() error, error) {
		l, err := server.Listen("127.0.0.1:0")
		if err != nil {
			return account{}, nil, err
		}
		return account{ConnectionString: l.ConnectionString()}, l.Close, nil
	}
	t.wait = func(ctx context.Context, d time.Duration) error {
		ahead.Add(int64(d))
		return ctx.Err()
	}
	return t, server, nil
}

// onAzurite installs Azurite if necessary, and starts it.
func onAzurite(ctx context.Context, stderr io.Writer) (*target, error) {
	fmt.Fprintf(stderr, "integration: installing Azurite %s if necessary, and starting it\n", azurite.Version)
	if err := azurite.Install(ctx, stderr); err != nil {
		return nil, err
	}
	server, err := azurite.Start(ctx)
	if err != nil {
		return nil, err
	}
	t, err := newTarget(account{ConnectionString: server.ConnectionString()}, nil, newHTTPClient)
	if err != nil {
		return nil, err
	}
	t.title, t.close = fmt.Sprintf("Azurite %s at %s", azurite.Version, server.URL()), server.Close
	return t, nil
}

// newTarget returns an account as a target. Without a credential it logs in as the account says.
func newTarget(a account, cred azcore.TokenCredential, connect func() policy.Transporter) (t *target, err error) {
	t = &target{
		account: a, credential: cred, connect: connect, transport: connect(),
		reach: func() (account, func() error, error) { return a, func() error { return nil }, nil },
		wait: func(ctx context.Context, d time.Duration) error {
			sleep.For(ctx, d)
			return ctx.Err()
		},
		close: func() error { return nil },
	}
	o := &service.ClientOptions{}
	o.Transport = t.transport
	// A wrong endpoint should fail soon.
	o.Retry = policy.RetryOptions{MaxRetries: 2, RetryDelay: 500 * time.Millisecond, TryTimeout: 30 * time.Second}
	if a.Endpoint == "" {
		t.service, err = service.NewClientFromConnectionString(a.ConnectionString, o)
	} else {
		if cred == nil {
			if t.credential, err = azidentity.NewDefaultAzureCredential(nil); err != nil {
				return nil, err
			}
		}
		t.service, err = service.NewClient(a.Endpoint, t.credential, o)
	}
	if err != nil {
		return nil, err
	}
	t.title = "the account at " + withoutQuery(t.service.URL())
	return t, nil
}

// dial opens a vault on a new connection, unless the options have one. It reads the plans of this program.
func (t *target) dial(ctx context.Context, prefix string, opts ...azblob.Options) (*azblob.Vault, error) {
	return t.dialWith(ctx, prefix, register(plugins.Typed[task, int64](taskName)), opts...)
}

// dialWith is dial with other plugins.
func (t *target) dialWith(ctx context.Context, prefix string, reg *registry.Register, opts ...azblob.Options) (*azblob.Vault, error) {
	opts = append([]azblob.Options{settings.Over(t.connect())}, opts...)
	if t.Endpoint != "" {
		return azblob.New(ctx, prefix, t.Endpoint, t.credential, reg, merge.Fields(opts...))
	}
	return azblob.NewFromConnectionString(ctx, prefix, t.ConnectionString, reg, merge.Fields(opts...))
}

// newHTTPClient keeps a connection for each request that a vault has in flight.
func newHTTPClient() policy.Transporter {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConns, t.MaxIdleConnsPerHost = 256, 256
	return &http.Client{Transport: t}
}

// withoutQuery removes the query of a URL, which may hold a signature.
func withoutQuery(s string) string {
	s, _, _ = strings.Cut(s, "?")
	return strings.TrimSuffix(s, "/")
}

// redact removes the query from the URL of an error: it may hold a signature.
func redact(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		e.URL = withoutQuery(e.URL)
	}
	return err
}
