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
	"github.com/planvault/azblob/workflow/plantest"
)

// target is a service that steps run against. Steps do not know which one it is.
type target struct {
	// title says which one it is, without any secret.
	title string
	// connect makes a connection to the service, and transport is the one of all that needs none of its own.
	connect   func() policy.Transporter
	transport policy.Transporter
	// service is the SDK's own client, to look at what is stored past the vault, and to delete containers.
	service *service.Client
	// dial opens a vault, on a connection of its own unless the options have another one.
	dial func(ctx context.Context, prefix string, opts ...azblob.Option) (*azblob.Vault, error)
	// reach is how other processes open a vault here: an order with all that it takes, and how that is ended.
	reach func() (o order, end func() error, err error)
	// wait lets time pass on the service's clock.
	wait func(ctx context.Context, d time.Duration) error
	// casesAtOnce is how many cases run at the same time. Most of them wait: for a network, or for their own retries.
	casesAtOnce int
	close       func() error
	// between is called before each step, for tests that do damage; it may be nil.
	between func(step string)
}

func openTarget(ctx context.Context, c config, stderr io.Writer) (*target, error) {
	switch {
	case c.endpoint != "":
		cred, err := credential(c.msi)
		if err != nil {
			return nil, err
		}
		t, err := onEndpoint(c.endpoint, cred, newHTTPClient)
		if err == nil {
			t.reach = reachedBy(order{Endpoint: c.endpoint, MSI: c.msi})
		}
		return t, err
	case c.connectionString != "":
		return onConnectionString(c.connectionString, newHTTPClient)
	case c.azurite:
		return onAzurite(ctx, stderr)
	}
	server, advance := newEmulator()
	if c.faults {
		lie(server, c.seed)
	}
	return onEmulator(server, advance)
}

// lie injects the lies of proxies into the answers for the clients of a soak. The clients use a listener; the checks use a
// transport and get the truth.
func lie(server *emulator.Server, seed uint64) {
	client := func(r emulator.Request) bool { return strings.HasPrefix(r.Client, "listener-") }
	server.Inject(emulator.Lies(0.04, seed).Where(client),
		// A reader has to believe that a blob does not exist. A client that removes something must not.
		emulator.FalseAbsences(0.02, seed).Where(func(r emulator.Request) bool { return client(r) && r.Op != emulator.HeadBlob }))
}

// newEmulator returns an emulator, and what moves its clock on.
func newEmulator() (server *emulator.Server, advance func(time.Duration)) {
	var ahead atomic.Int64
	server = emulator.New(emulator.WithoutLog(), emulator.WithClock(func() time.Time {
		return time.Now().Add(time.Duration(ahead.Load()))
	}))
	return server, func(d time.Duration) { ahead.Add(int64(d)) }
}

// onEmulator needs no sockets: the emulator's transport takes the SDK's requests as they are, and works where no port may be
// opened. Its clock is moved instead of waited for.
func onEmulator(server *emulator.Server, advance func(time.Duration)) (*target, error) {
	t, err := onConnectionString(server.ConnectionString(), func() policy.Transporter { return server.Transport() })
	if err != nil {
		return nil, err
	}
	t.title = "the emulator in this process"
	t.reach = func() (order, func() error, error) {
		l, err := server.Listen("127.0.0.1:0")
		if err != nil {
			return order{}, nil, err
		}
		return order{ConnectionString: l.ConnectionString()}, l.Close, nil
	}
	dial := t.dial
	t.dial = func(ctx context.Context, prefix string, opts ...azblob.Option) (*azblob.Vault, error) {
		return dial(ctx, prefix, append([]azblob.Option{azblob.WithTransport(server.Transport())}, opts...)...)
	}
	t.wait = func(ctx context.Context, d time.Duration) error {
		advance(d)
		return ctx.Err()
	}
	return t, nil
}

// onAzurite installs Azurite, if need be, and starts it.
func onAzurite(ctx context.Context, stderr io.Writer) (*target, error) {
	fmt.Fprintf(stderr, "integration: installing Azurite %s unless it is there, and starting it\n", azurite.Version)
	if err := azurite.Install(ctx, stderr); err != nil {
		return nil, err
	}
	server, err := azurite.Start(ctx)
	if err != nil {
		return nil, err
	}
	t, err := onConnectionString(server.ConnectionString(), newHTTPClient)
	if err != nil {
		return nil, err
	}
	t.title = fmt.Sprintf("Azurite %s at %s", azurite.Version, server.URL())
	t.close = server.Close
	return t, nil
}

func onConnectionString(connectionString string, connect func() policy.Transporter) (*target, error) {
	transport := connect()
	client, err := service.NewClientFromConnectionString(connectionString, serviceOptions(transport))
	if err != nil {
		return nil, err
	}
	return &target{
		title:     "the account at " + withoutQuery(client.URL()),
		connect:   connect,
		transport: transport,
		service:   client,
		reach:     reachedBy(order{ConnectionString: connectionString}),
		dial: func(ctx context.Context, prefix string, opts ...azblob.Option) (*azblob.Vault, error) {
			return azblob.NewFromConnectionString(ctx, prefix, connectionString, plantest.Register(), opts...)
		},
		wait:        sleep,
		casesAtOnce: 4,
		close:       func() error { return nil },
	}, nil
}

func onEndpoint(endpoint string, cred azcore.TokenCredential, connect func() policy.Transporter) (*target, error) {
	transport := connect()
	client, err := service.NewClient(endpoint, cred, serviceOptions(transport))
	if err != nil {
		return nil, err
	}
	return &target{
		title:     "the account at " + withoutQuery(client.URL()),
		connect:   connect,
		transport: transport,
		service:   client,
		dial: func(ctx context.Context, prefix string, opts ...azblob.Option) (*azblob.Vault, error) {
			return azblob.New(ctx, prefix, endpoint, cred, plantest.Register(), opts...)
		},
		wait:        sleep,
		casesAtOnce: 4,
		close:       func() error { return nil },
	}, nil
}

// reachedBy is for what other processes reach just as this one does.
func reachedBy(o order) func() (order, func() error, error) {
	return func() (order, func() error, error) { return o, func() error { return nil }, nil }
}

// credential finds who to sign in as. An ID with slashes is a resource ID.
func credential(msi string) (azcore.TokenCredential, error) {
	if msi == "" {
		return azidentity.NewDefaultAzureCredential(nil)
	}
	var id azidentity.ManagedIDKind = azidentity.ClientID(msi)
	if strings.Contains(msi, "/") {
		id = azidentity.ResourceID(msi)
	}
	return azidentity.NewManagedIdentityCredential(&azidentity.ManagedIdentityCredentialOptions{ID: id})
}

func serviceOptions(transport policy.Transporter) *service.ClientOptions {
	o := &service.ClientOptions{}
	o.Transport = transport
	// A wrong endpoint should be said soon.
	o.Retry = policy.RetryOptions{MaxRetries: 2, RetryDelay: 500 * time.Millisecond, TryTimeout: 30 * time.Second}
	return o
}

// newHTTPClient keeps a connection for each of the requests that a vault has in flight.
func newHTTPClient() policy.Transporter {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConns, t.MaxIdleConnsPerHost = 100, 100
	return &http.Client{Transport: t}
}

// withoutQuery leaves out where a URL may carry a signature.
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

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
