package module_test

import (
	"os"
	"testing"

	"github.com/planvault/azblob/tests/vaulttest"
)

// TestMain runs the tests in the module's root.
func TestMain(m *testing.M) {
	if err := os.Chdir("../.."); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// read returns the text of a file of the module.
func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	vaulttest.Must(t, err)
	return string(text)
}
