package faults_test

import (
	"os"
	"testing"

	"github.com/planvault/azblob/tests/vaulttest"
)

func TestMain(m *testing.M) { os.Exit(vaulttest.Azurite.Run(m)) }
