package emulator_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/planvault/azblob/internal/azurite/azuritetest"
)

// azuriteServer is the reference that the emulator is compared with. It starts
// when a test first asks for it.
var azuriteServer azuritetest.Holder

// TestMain fails if a goroutine outlives the tests: no request and no closed
// listener may leave one.
func TestMain(m *testing.M) {
	if path := os.Getenv(killedWriter); path != "" {
		os.Exit(write(path)) // a process of TestKilledInTheMiddleOfWrites
	}
	goleak.VerifyTestMain(withAzurite{m})
}

// withAzurite are the tests and, behind them, the end of Azurite.
type withAzurite struct{ m *testing.M }

func (w withAzurite) Run() int { return azuriteServer.Run(w.m) }
