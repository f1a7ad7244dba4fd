package memvault_test

import (
	"testing"
	"testing/synctest"

	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/memvault"
	"github.com/planvault/azblob/storage/storagetest"
	"github.com/planvault/azblob/storage/storagetest/metamorphic"
)

func TestConformance(t *testing.T) {
	storagetest.Run(t, storagetest.Harness{
		Around: synctest.Test,
		Skip: func(c storagetest.Case) string {
			if testing.Short() && (c.Long || !efforttest.Concurrent(c.Name)) {
				return "left out by -short"
			}
			return ""
		},
		New: func(storagetest.T) storagetest.Store {
			store := memvault.NewStore()
			return storagetest.Store{
				Open: func(storagetest.T) storage.Vault { return store.Open(plantest.Register(), memvault.Options{}) },
				Unversioned: func(storagetest.T) storage.Vault {
					return store.Open(plantest.Register(), memvault.Options{UnversionedUpdates: true})
				},
			}
		},
	}, metamorphic.Cases()...)
}
