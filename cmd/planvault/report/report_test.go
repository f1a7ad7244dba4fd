package report_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	"github.com/planvault/azblob/cmd/planvault/report"
	"github.com/planvault/azblob/workflow/plantest"
)

// TestPolicyAllowsTheStyle checks the hash of the style as a browser computes it, which the page would be bare
// without.
func TestPolicyAllowsTheStyle(t *testing.T) {
	var page bytes.Buffer
	if err := report.Write(&page, plantest.Small(), report.Options{}); err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(page.String(), "<style>")
	style, _, _ := strings.Cut(rest, "</style>")
	sum := sha256.Sum256([]byte(style))
	if want := "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"; !strings.Contains(report.Policy(report.Options{}), want) {
		t.Errorf("the policy %q lacks %s", report.Policy(report.Options{}), want)
	}
}

func TestWriteFails(t *testing.T) {
	full := errors.New("disk full")
	if err := report.Write(failing{full}, plantest.Full(), report.Options{}); !errors.Is(err, full) {
		t.Errorf("Write returns %v", err)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }
