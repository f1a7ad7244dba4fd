package emulator_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/planvault/azblob/internal/azurite/azuritetest"
)

// azuriteServer is the reference for the emulator. It starts when a test first needs it.
var azuriteServer azuritetest.Holder

// TestMain fails if a goroutine outlives the tests.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(withAzurite{m})
}

// withAzurite runs the tests and then stops Azurite.
type withAzurite struct{ m *testing.M }

func (w withAzurite) Run() int { return azuriteServer.Run(w.m) }
