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
	"github.com/planvault/azblob/internal/firsthour"
	"github.com/planvault/azblob/internal/sleep"
)

// target is a service that steps run against.
type target struct {
	// title names the service, without any secret.
	title string
	// connect makes a new connection to the service. Everything that needs no connection of its own uses
	// transport.
	connect   func() policy.Transporter
	transport policy.Transporter
	// service is the SDK's client. It lists blobs without the vault and deletes containers.
	service *service.Client
	// dial opens a vault on a new connection, unless the options have one.
	dial func(ctx context.Context, prefix string, opts ...azblob.Option) (*azblob.Vault, error)
	// reach returns an order with what another process needs to open a vault on the target. The caller calls
	// end afterwards.
	reach func() (o order, end func() error, err error)
	// probe says to the first hour where the account is, and how to log in.
	probe firsthour.Config
	// wait lets time pass by the service's clock.
	wait func(ctx context.Context, d time.Duration) error
	// casesAtOnce is how many cases run at the same time. Most of them wait for the network or for retries.
	casesAtOnce int
	close       func() error
	// between is called before each step, by tests that do damage. It may be nil.
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
	var opts []emulator.Option
	if c.real {
		opts = append(opts, emulator.WithRealAnswers(c.seed))
	}
	server, advance := newEmulator(opts...)
	if c.faults {
		lie(server, c.seed, c.soak > 0) // a fleet lets go of a plan that it believes is deleted
	}
	return onEmulator(server, advance)
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

// newEmulator returns an emulator, and a function that advances its clock.
func newEmulator(opts ...emulator.Option) (server *emulator.Server, advance func(time.Duration)) {
	var ahead atomic.Int64
	server = emulator.New(append(opts, emulator.WithoutLog(), emulator.WithClock(func() time.Time {
		return time.Now().Add(time.Duration(ahead.Load()))
	}))...)
	return server, func(d time.Duration) { ahead.Add(int64(d)) }
}

// onEmulator returns a target without sockets: the emulator's transport takes the SDK's requests directly.
// Waiting advances the emulator's clock.
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
	t := newTarget(client, connect, transport)
	t.reach = reachedBy(order{ConnectionString: connectionString})
	t.probe.ConnectionString = connectionString
	t.dial = func(ctx context.Context, prefix string, opts ...azblob.Option) (*azblob.Vault, error) {
		return azblob.NewFromConnectionString(ctx, prefix, connectionString, register(), opts...)
	}
	return t, nil
}

func onEndpoint(endpoint string, cred azcore.TokenCredential, connect func() policy.Transporter) (*target, error) {
	transport := connect()
	client, err := service.NewClient(endpoint, cred, serviceOptions(transport))
	if err != nil {
		return nil, err
	}
	t := newTarget(client, connect, transport)
	t.probe.Endpoint, t.probe.Credential = endpoint, cred
	t.dial = func(ctx context.Context, prefix string, opts ...azblob.Option) (*azblob.Vault, error) {
		return azblob.New(ctx, prefix, endpoint, cred, register(), opts...)
	}
	return t, nil
}

func newTarget(client *service.Client, connect func() policy.Transporter, transport policy.Transporter) *target {
	return &target{
		title: "the account at " + withoutQuery(client.URL()), connect: connect, transport: transport, service: client,
		wait: func(ctx context.Context, d time.Duration) error {
			sleep.For(ctx, d)
			return ctx.Err()
		},
		casesAtOnce: 4, close: func() error { return nil },
	}
}

// reachedBy returns a target's reach for a service that other processes reach as this one does.
func reachedBy(o order) func() (order, func() error, error) {
	return func() (order, func() error, error) { return o, func() error { return nil }, nil }
}

// credential returns the credential to sign in with. An ID with slashes is a resource ID.
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
	// A wrong endpoint should fail soon.
	o.Retry = policy.RetryOptions{MaxRetries: 2, RetryDelay: 500 * time.Millisecond, TryTimeout: 30 * time.Second}
	return o
}

// newHTTPClient keeps a connection for each request that a vault has in flight.
func newHTTPClient() policy.Transporter {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConns, t.MaxIdleConnsPerHost = 100, 100
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
