package emulator_test

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain fails if a goroutine outlives the tests: no request and no closed
// listener may leave one.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
