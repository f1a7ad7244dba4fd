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

// onEmulator opens a vault on an emulator in this process.
func onEmulator(t *testing.T, server *emulator.Server, opts ...azblob.Option) *azblob.Vault {
	t.Helper()
	return openVault(t, "test", server.ConnectionString(), append([]azblob.Option{azblob.WithTransport(server.Transport())}, opts...)...)
}

func openVault(t *testing.T, prefix, connectionString string, opts ...azblob.Option) *azblob.Vault {
	t.Helper()
	opts = append([]azblob.Option{azblob.WithRetry(azblob.Retry{InitialInterval: time.Millisecond})}, opts...)
	v, err := azblob.NewFromConnectionString(t.Context(), prefix, connectionString, plantest.Register(), opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := v.Close(t.Context()); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
	})
	return v
}

// withToken opens a vault on an emulator in this process with a made-up token.
func withToken(t *testing.T, server *emulator.Server, opts ...azblob.Option) *azblob.Vault {
	t.Helper()
	opts = append([]azblob.Option{azblob.WithTransport(server.Transport())}, opts...)
	v, err := azblob.New(t.Context(), "test", "https://devstoreaccount1.blob.core.windows.net", token{}, plantest.Register(), opts...)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// token is a credential that the emulator accepts.
type token struct{}

func (token) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{Token: "made-up", ExpiresOn: time.Now().Add(24 * time.Hour)}, nil
}
