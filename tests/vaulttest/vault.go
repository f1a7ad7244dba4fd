// Package vaulttest holds what tests of the vault share: services and vaults on them, plans, states that crashes leave,
// faults, and how to look at what a vault shows and stores.
package vaulttest

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/service"
	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/azurite/azuritetest"
	"github.com/planvault/azblob/storage/storagetest"
	"github.com/planvault/azblob/workflow/plantest"
)

// Azurite is shared by all tests of the package. Each test has its own prefix.
var Azurite azuritetest.Holder

// OnServices runs a test on the emulator, and on Azurite where it is installed.
func OnServices(t *testing.T, test func(t *testing.T, open func(opts ...azblob.Option) *azblob.Vault)) {
	t.Run("emulator", func(t *testing.T) {
		server := emulator.New()
		test(t, func(opts ...azblob.Option) *azblob.Vault {
			return OnEmulator(t, server, opts...)
		})
	})
	t.Run("azurite", func(t *testing.T) {
		cs := Azurite.Get(t).ConnectionString()
		prefix := "t" + uuid.NewString()
		test(t, func(opts ...azblob.Option) *azblob.Vault {
			return OpenVault(t, prefix, cs, opts...)
		})
	})
}

// OnEmulator opens a vault on an emulator in this process until the test ends. Its token takes less time than a signature
// for each request.
func OnEmulator(t *testing.T, server *emulator.Server, opts ...azblob.Option) *azblob.Vault {
	t.Helper()
	v := WithToken(t, server, append([]azblob.Option{impatient}, opts...)...)
	closeAtEnd(t, v)
	return v
}

// Signing opens a vault on an emulator in this process that signs its requests.
func Signing(t *testing.T, server *emulator.Server, opts ...azblob.Option) *azblob.Vault {
	t.Helper()
	return OpenVault(t, "test", server.ConnectionString(), append([]azblob.Option{azblob.WithTransport(server.Transport())}, opts...)...)
}

// OpenVault opens a vault that signs its requests until the test ends.
func OpenVault(t *testing.T, prefix, connectionString string, opts ...azblob.Option) *azblob.Vault {
	t.Helper()
	v, err := azblob.NewFromConnectionString(t.Context(), prefix, connectionString, plantest.Register(), append([]azblob.Option{impatient}, opts...)...)
	Must(t, err)
	closeAtEnd(t, v)
	return v
}

// impatient lets a vault try again soon.
var impatient = azblob.WithRetry(azblob.Retry{InitialInterval: time.Millisecond})

func closeAtEnd(t *testing.T, v *azblob.Vault) {
	t.Cleanup(func() {
		if err := v.Close(t.Context()); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
	})
}

// WithToken opens a vault on an emulator in this process with a made-up token, and never closes it.
func WithToken(t *testing.T, server *emulator.Server, opts ...azblob.Option) *azblob.Vault {
	t.Helper()
	opts = append([]azblob.Option{azblob.WithTransport(server.Transport())}, opts...)
	v, err := Dial(t.Context(), opts...)
	Must(t, err)
	return v
}

// Dial opens a vault on an emulator in this process with a made-up token, which is the cheapest login: nothing is signed.
func Dial(ctx context.Context, opts ...azblob.Option) (*azblob.Vault, error) {
	return azblob.New(ctx, "test", "https://blob.emulator.invalid/"+emulator.DefaultAccount, Token{}, plantest.Register(), opts...)
}

// Token is a credential that the emulator accepts.
type Token struct{}

func (Token) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{Token: "made-up", ExpiresOn: time.Now().Add(24 * time.Hour)}, nil
}

// Geo is an account with a secondary, in virtual time.
type Geo struct {
	*emulator.Server
	Down bool
}

// At counts the requests at the primary and at the secondary since the last call.
func (g *Geo) At() (primary, secondary int) {
	for _, r := range g.Requests() {
		if r.Secondary {
			secondary++
		} else {
			primary++
		}
	}
	g.ResetRequests()
	return primary, secondary
}

// Open opens a vault on the account.
func (g *Geo) Open(t *testing.T, opts ...azblob.Option) *azblob.Vault {
	t.Helper()
	opts = append([]azblob.Option{azblob.WithTransport(g.Transport()), azblob.WithSecondary("")}, opts...)
	v, err := azblob.NewFromConnectionString(t.Context(), "test", g.ConnectionString(), plantest.Register(), opts...)
	Must(t, err)
	return v
}

// DropContainers removes what a case stored: Azurite looks through all of its blobs at each delete.
func DropContainers(ctx context.Context, connectionString, prefix string) error {
	client, err := service.NewClientFromConnectionString(connectionString, nil)
	if err != nil {
		return err
	}
	pager := client.NewListContainersPager(&service.ListContainersOptions{Prefix: &prefix})
	for pager.More() {
		page, err := pager.NextPage(ctx)
		if err != nil {
			return err
		}
		for _, container := range page.ContainerItems {
			if _, err := client.DeleteContainer(ctx, *container.Name, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

// InBubble runs a test in virtual time.
func InBubble(t *testing.T, name string, test func(t *testing.T, server *emulator.Server)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			server := emulator.New()
			Strict(t, server)
			test(t, server)
		})
	})
}

// InBubbleOf runs a test in virtual time on the given server.
func InBubbleOf(t *testing.T, server *emulator.Server, test func(t *testing.T, server *emulator.Server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, server) })
}

// Strict makes the test fail at its end if a vault with the prefix "test" sent a request that it must never
// send.
func Strict(t storagetest.T, server *emulator.Server) {
	server.Forbid(func(r emulator.Request) error {
		if r.Op == emulator.ListContainers {
			if r.Prefix != "test-" && !ownContainer.MatchString(r.Prefix) {
				return fmt.Errorf("containers of other prefixes are listed: %v", r)
			}
			return nil
		}
		object := strings.HasSuffix(r.Blob, "-object.json")
		hasEntry := func() bool {
			_, ok := server.Blob(r.Container, strings.Replace(r.Blob, "-object.json", "-entry.json", 1))
			return ok
		}
		switch {
		case !ownContainer.MatchString(r.Container):
			return fmt.Errorf("a request for another container: %v", r)
		case r.Op == emulator.DeleteContainer && r.Lease == "":
			return fmt.Errorf("a day is deleted without a lease: %v", r)
		case r.Op == emulator.PutBlob && r.Condition == "" && !strings.HasPrefix(r.Blob, "open/"):
			return fmt.Errorf("a write without condition: %v", r)
		case r.Op == emulator.PutBlob && r.Metadata["writeid"] == "":
			return fmt.Errorf("a write without writeid: %v", r)
		case r.Op == emulator.PutBlob && object && r.Condition == "If-None-Match:*" && !hasEntry():
			return fmt.Errorf("an object is written before its entry: %v", r)
		case r.Op == emulator.DeleteBlob && r.Condition == "" && object:
			return fmt.Errorf("an object is deleted without condition: %v", r)
		}
		return nil
	})
	t.Cleanup(func() {
		for _, err := range server.Violations() {
			t.Errorf("%v", err)
		}
	})
}

// ownContainer matches the name of a container of the prefix "test".
var ownContainer = regexp.MustCompile(`^test-(\d{4}-\d\d-\d\d|control)$`)
