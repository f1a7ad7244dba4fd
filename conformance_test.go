package azblob_test

import (
	"context"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/service"
	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/conformance"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/storage/storagetest"
	"github.com/planvault/azblob/storage/storagetest/metamorphic"
	"github.com/planvault/azblob/workflow/plantest"
)

// slowCases matches the cases of the suite that take a third of its time.
var slowCases = regexp.MustCompile(`5,000 actions|of 1 MB|dies at any request is finished|two nodes at once leave`)

// TestConformance runs the suite over the vault, on the emulator in virtual time and on Azurite. The slow
// cases and the random operations run on Azurite only with PLANVAULT_LONG; the race pass leaves the slow
// cases out.
func TestConformance(t *testing.T) {
	slow := 0
	for _, c := range storagetest.Cases() {
		if slowCases.MatchString(c.Name) {
			slow++
		}
	}
	if slow != 4 {
		t.Errorf("slowCases matches %d cases, want 4", slow)
	}
	t.Run("emulator", func(t *testing.T) {
		storagetest.Run(t, storagetest.Harness{
			New: func(t storagetest.T) storagetest.Store {
				return emulated(t, efforttest.Pick(false, true, true))
			},
			Around:   synctest.Test,
			Parallel: true,
		}, metamorphic.Cases()...)
	})
	t.Run("azurite", func(t *testing.T) {
		if testing.Short() {
			t.Skip("left out by -short: the race detector sees the same cases on the emulator")
		}
		connectionString := azurite.Get(t).ConnectionString()
		var more []storagetest.Case
		if efforttest.Long() {
			more = metamorphic.Cases()
		}
		storagetest.Run(t, storagetest.Harness{
			New:      func(t storagetest.T) storagetest.Store { return onAzurite(t, connectionString) },
			Parallel: true, // each case has a prefix of its own
		}, more...)
	})
}

// skipSlow skips a slow case unless slow cases are wanted.
func skipSlow(t storagetest.T, wanted bool) {
	if !wanted && slowCases.MatchString(strings.ReplaceAll(t.Name(), "_", " ")) {
		t.Skipf("a slow case")
	}
}

// emulated is a store on an emulator in this process, with pages so small that listings have several.
func emulated(t storagetest.T, slow bool) storagetest.Store {
	skipSlow(t, slow)
	server := emulator.New(emulator.WithPageLimit(20), emulator.WithoutLog())
	strict(t, server)
	return onConnections(server, func() policy.Transporter { return server.Transport() }).Store()
}

// onConnections is an emulator in this process, and what its vaults reach it by.
func onConnections(server *emulator.Server, dial func() policy.Transporter) conformance.Endpoint {
	return conformance.Endpoint{
		Dial: func(ctx context.Context, opts ...azblob.Option) (*azblob.Vault, error) {
			opts = append([]azblob.Option{azblob.WithTransport(dial())}, opts...)
			return azblob.NewFromConnectionString(ctx, "test", server.ConnectionString(), plantest.Register(), opts...)
		},
		Transport: func(storagetest.T) policy.Transporter { return dial() },
	}
}

// onAzurite is a store on Azurite under a prefix of its own.
func onAzurite(t storagetest.T, connectionString string) storagetest.Store {
	skipSlow(t, efforttest.Long())
	prefix := "t" + uuid.NewString()
	ctx := context.WithoutCancel(t.Context())
	t.Cleanup(func() {
		if err := dropContainers(ctx, connectionString, prefix); err != nil {
			t.Errorf("%v", err)
		}
	})
	return conformance.Endpoint{
		Dial: func(ctx context.Context, opts ...azblob.Option) (*azblob.Vault, error) {
			return azblob.NewFromConnectionString(ctx, prefix, connectionString, plantest.Register(), opts...)
		},
		Transport: func(storagetest.T) policy.Transporter {
			transport := http.DefaultTransport.(*http.Transport).Clone()
			transport.MaxIdleConnsPerHost = 64
			return &http.Client{Transport: transport}
		},
	}.Store()
}

// dropContainers removes what a case stored: Azurite looks through all of its blobs at each delete.
func dropContainers(ctx context.Context, connectionString, prefix string) error {
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
