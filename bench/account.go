package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/service"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/workflow/plantest"
)

// account measures wall times on an account. It fills vaults through the vault itself.
type account struct {
	connectionString string
	client           *service.Client
	transport        *http.Client
	prefix           string // of all vaults' prefixes
	// now is the time of the newest plan: yesterday at 18:00, so that each day has its share at any time of
	// day.
	now    time.Time
	vaults int
	filled map[shape]string // the prefixes of filled vaults
}

func openAccount(connectionString string) (*account, error) {
	transport := newHTTPClient()
	var o service.ClientOptions
	o.Transport = transport
	client, err := service.NewClientFromConnectionString(connectionString, &o)
	if err != nil {
		return nil, err
	}
	return &account{
		connectionString: connectionString, client: client, transport: transport,
		prefix: fmt.Sprintf("bench-%08x", rand.Uint32()), now: time.Now().UTC().Truncate(24 * time.Hour).Add(-6 * time.Hour), filled: map[shape]string{},
	}, nil
}

// newHTTPClient keeps a connection for each request in flight, like the vault's own client.
func newHTTPClient() *http.Client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConns, t.MaxIdleConnsPerHost = concurrency, concurrency
	return &http.Client{Transport: t}
}

// newPrefix returns an unused prefix.
func (a *account) newPrefix() string {
	a.vaults++
	return fmt.Sprintf("%s-%d", a.prefix, a.vaults)
}

// runs is how often each row is measured. The median counts.
const runs = 3

func (a *account) measure(ctx context.Context, r row) (res result, err error) {
	var took []time.Duration
	for range runs {
		prefix, err := a.vault(ctx, r.vault)
		if err != nil {
			return res, err
		}
		m := newMeter(a.transport)
		err = perform(ctx, performance{r, a.now, a.connectionString, prefix, concurrency, m, func() {}, func(d time.Duration) {
			took = append(took, d)
			res = newResult(r, m.end())
		}})
		if err != nil {
			return res, err
		}
	}
	slices.Sort(took)
	res.Wall = took[runs/2]
	return res, nil
}

// vault returns the prefix of a vault of the shape, filling it if necessary. An empty vault is new each time.
func (a *account) vault(ctx context.Context, s shape) (string, error) {
	if prefix, ok := a.filled[s]; ok {
		return prefix, nil
	}
	prefix := a.newPrefix()
	if s.plans == 0 {
		return prefix, nil
	}
	v, err := azblob.NewFromConnectionString(ctx, prefix, a.connectionString, plantest.Register(), azblob.WithTransport(a.transport))
	if err != nil {
		return "", err
	}
	f := fillingAt(s, a.now)
	for i := range f.Plans {
		if err := f.Put(ctx, v, i); err != nil {
			return "", errors.Join(err, v.Close(ctx))
		}
	}
	a.filled[s] = prefix
	return prefix, v.Close(ctx)
}

// close deletes all containers that the account's vaults made.
func (a *account) close(ctx context.Context) error {
	defer a.transport.CloseIdleConnections()
	prefix := a.prefix + "-"
	pages := a.client.NewListContainersPager(&service.ListContainersOptions{Prefix: &prefix})
	for pages.More() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return err
		}
		for _, c := range page.ContainerItems {
			if _, err := a.client.DeleteContainer(ctx, *c.Name, nil); err != nil {
				return err
			}
		}
	}
	return nil
}
