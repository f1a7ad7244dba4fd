package main

import (
	"context"
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
	// transport sends the requests of everything here.
	transport policy.Transporter
	// service is the SDK's own client, to look at what is stored past the vault, and to delete containers.
	service *service.Client
	// dial opens a vault.
	dial func(ctx context.Context, prefix string, opts ...azblob.Option) (*azblob.Vault, error)
	// wait lets time pass on the service's clock.
	wait  func(ctx context.Context, d time.Duration) error
	close func() error
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
		return onEndpoint(c.endpoint, cred, newHTTPClient())
	case c.connectionString != "":
		t, err := onConnectionString(c.connectionString, newHTTPClient())
		if err == nil && c.fromEnvironment {
			t.title += ", of " + connectionStringVariable
		}
		return t, err
	case c.azurite:
		return onAzurite(ctx, stderr)
	}
	return onEmulator(newEmulator())
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
	t, err := onConnectionString(server.ConnectionString(), server.Transport())
	if err != nil {
		return nil, err
	}
	t.title = "the emulator in this process"
	t.wait = func(ctx context.Context, d time.Duration) error {
		advance(d)
		return ctx.Err()
	}
	return t, nil
}

func onAzurite(ctx context.Context, stderr io.Writer) (*target, error) {
	fmt.Fprintf(stderr, "integration: installing Azurite %s unless it is there, and starting it\n", azurite.Version)
	if err := azurite.Install(ctx, stderr); err != nil {
		return nil, err
	}
	server, err := azurite.Start(ctx)
	if err != nil {
		return nil, err
	}
	t, err := onConnectionString(server.ConnectionString(), server.HTTPClient())
	if err != nil {
		return nil, err
	}
	t.title = fmt.Sprintf("Azurite %s at %s", azurite.Version, server.URL())
	t.close = server.Close
	return t, nil
}

func onConnectionString(connectionString string, transport policy.Transporter) (*target, error) {
	client, err := service.NewClientFromConnectionString(connectionString, serviceOptions(transport))
	if err != nil {
		return nil, err
	}
	return &target{
		title:     "the account at " + withoutQuery(client.URL()),
		transport: transport,
		service:   client,
		dial: func(ctx context.Context, prefix string, opts ...azblob.Option) (*azblob.Vault, error) {
			return azblob.NewFromConnectionString(ctx, prefix, connectionString, plantest.Register(), opts...)
		},
		wait:  sleep,
		close: func() error { return nil },
	}, nil
}

func onEndpoint(endpoint string, cred azcore.TokenCredential, transport policy.Transporter) (*target, error) {
	client, err := service.NewClient(endpoint, cred, serviceOptions(transport))
	if err != nil {
		return nil, err
	}
	return &target{
		title:     "the account at " + withoutQuery(client.URL()),
		transport: transport,
		service:   client,
		dial: func(ctx context.Context, prefix string, opts ...azblob.Option) (*azblob.Vault, error) {
			return azblob.New(ctx, prefix, endpoint, cred, plantest.Register(), opts...)
		},
		wait:  sleep,
		close: func() error { return nil },
	}, nil
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
func newHTTPClient() *http.Client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConns, t.MaxIdleConnsPerHost = 100, 100
	return &http.Client{Transport: t}
}

// withoutQuery leaves out where a URL may carry a signature.
func withoutQuery(s string) string {
	s, _, _ = strings.Cut(s, "?")
	return strings.TrimSuffix(s, "/")
}

// base is the path that comes before container names: none at a real account, the account's name at emulators.
func (t *target) base() string {
	u, err := url.Parse(t.service.URL())
	if err != nil {
		return "/"
	}
	return strings.TrimSuffix(u.Path, "/") + "/"
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
