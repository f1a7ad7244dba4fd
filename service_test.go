package azblob_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/azurite/azuritetest"
	"github.com/planvault/azblob/workflow/plantest"
)

// azurite is shared by all tests of the package. Each test has its own prefix.
var azurite azuritetest.Holder

func TestMain(m *testing.M) { os.Exit(azurite.Run(m)) }

// onServices runs a test on the emulator, and on Azurite where it is installed.
func onServices(t *testing.T, test func(t *testing.T, open func(opts ...azblob.Option) *azblob.Vault)) {
	t.Run("emulator", func(t *testing.T) {
		server := emulator.New()
		test(t, func(opts ...azblob.Option) *azblob.Vault {
			return onEmulator(t, server, opts...)
		})
	})
	t.Run("azurite", func(t *testing.T) {
		cs := azurite.Get(t).ConnectionString()
		prefix := "t" + uuid.NewString()
		test(t, func(opts ...azblob.Option) *azblob.Vault {
			return openVault(t, prefix, cs, opts...)
		})
	})
}

// onEmulator opens a vault on an emulator in this process until the test ends. Its token takes less time than a signature
// for each request.
func onEmulator(t *testing.T, server *emulator.Server, opts ...azblob.Option) *azblob.Vault {
	t.Helper()
	v := withToken(t, server, append([]azblob.Option{impatient}, opts...)...)
	closeAtEnd(t, v)
	return v
}

// signing opens a vault on an emulator in this process that signs its requests.
func signing(t *testing.T, server *emulator.Server, opts ...azblob.Option) *azblob.Vault {
	t.Helper()
	return openVault(t, "test", server.ConnectionString(), append([]azblob.Option{azblob.WithTransport(server.Transport())}, opts...)...)
}

// openVault opens a vault that signs its requests until the test ends.
func openVault(t *testing.T, prefix, connectionString string, opts ...azblob.Option) *azblob.Vault {
	t.Helper()
	v, err := azblob.NewFromConnectionString(t.Context(), prefix, connectionString, plantest.Register(), append([]azblob.Option{impatient}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
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

// withToken opens a vault on an emulator in this process with a made-up token.
func withToken(t *testing.T, server *emulator.Server, opts ...azblob.Option) *azblob.Vault {
	t.Helper()
	opts = append([]azblob.Option{azblob.WithTransport(server.Transport())}, opts...)
	v, err := byMadeUpToken(t.Context(), server, "", opts...)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// byMadeUpToken is the cheapest login: nothing is signed.
func byMadeUpToken(ctx context.Context, _ *emulator.Server, _ string, opts ...azblob.Option) (*azblob.Vault, error) {
	return azblob.New(ctx, "test", "https://blob.emulator.invalid/"+emulator.DefaultAccount, token{}, plantest.Register(), opts...)
}

// token is a credential that the emulator accepts.
type token struct{}

func (token) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{Token: "made-up", ExpiresOn: time.Now().Add(24 * time.Hour)}, nil
}
