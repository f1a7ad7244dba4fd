package azurite

import (
	"bufio"
	"net"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

const killedParentEnv = "AZURITE_TEST_KILLED_PARENT"

// TestKilledParent checks that Azurite does not outlive a parent that is killed by SIGKILL. The parent is
// another process of this test binary.
func TestKilledParent(t *testing.T) {
	if os.Getenv(killedParentEnv) != "" {
		s, err := Start(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = os.Stdout.WriteString("\nurl " + s.URL() + "\n")
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
	needsAzurite(t)

	cmd := exec.Command(os.Args[0], "-test.run=^TestKilledParent$")
	cmd.Env = append(os.Environ(), killedParentEnv+"=1", "TMPDIR="+t.TempDir())
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var host string
	var text strings.Builder
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		text.WriteString(lines.Text() + "\n")
		if rest, ok := strings.CutPrefix(lines.Text(), "url "); ok {
			u, err := url.Parse(rest)
			if err != nil {
				t.Fatal(err)
			}
			host = u.Host
		}
	}
	err = cmd.Wait()
	if host == "" {
		t.Fatalf("the parent started nothing: %v\n%s", err, &text)
	}

	for limit := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		l, err := net.Listen("tcp", host)
		if err == nil {
			_ = l.Close()
			return
		}
		if time.Now().After(limit) {
			t.Fatalf("Azurite outlived its parent: %v", err)
		}
	}
}
