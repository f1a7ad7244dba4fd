package azurite

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
)

// killedParent is the environment variable that makes a process of this test binary the parent that
// TestKilledParent kills.
const killedParent = "AZURITE_TEST_KILLED_PARENT"

func TestMain(m *testing.M) {
	if os.Getenv(killedParent) == "" {
		os.Exit(m.Run())
	}
	s, err := Start(context.Background())
	if err != nil {
		panic(err)
	}
	_, _ = os.Stdout.WriteString(s.URL() + "\n")
	select {} // until it is killed
}

// needsAzurite skips a test with -short, or if Azurite is not installed. In CI it must be.
func needsAzurite(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts Azurite")
	}
	dir, err := folder()
	if err == nil {
		err = installed(dir)
	}
	if err != nil && os.Getenv("CI") != "true" {
		t.Skip(err)
	}
}

// gone reports whether the port of an address is free.
func gone(t *testing.T, address string) bool {
	t.Helper()
	u, err := url.Parse(address)
	must(t, err)
	l, err := net.Listen("tcp", u.Host)
	if err == nil {
		_ = l.Close()
	}
	return err == nil
}

// TestKilledParent checks that Azurite does not outlive a parent that is killed.
func TestKilledParent(t *testing.T) {
	needsAzurite(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), killedParent+"=1", "TMPDIR="+t.TempDir())
	stdout, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	lines := bufio.NewScanner(stdout)
	started := lines.Scan()
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if !started {
		t.Fatal("the parent started nothing")
	}
	for limit := time.Now().Add(10 * time.Second); !gone(t, lines.Text()); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatal("Azurite outlived its parent")
		}
	}
}

type tokenCredential struct{}

func (tokenCredential) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	expires := time.Now().Add(time.Hour)
	return azcore.AccessToken{Token: Token(expires), ExpiresOn: expires}, nil
}

// TestStart runs two servers at once. One is closed, the other crashes.
func TestStart(t *testing.T) {
	needsAzurite(t)
	t.Setenv("AZURITE_ACCOUNTS", "other:a2V5") // must not matter
	var servers []*Server
	for _, opts := range [][]Option{nil, {WithOAuth()}} {
		s, err := Start(t.Context(), opts...)
		must(t, err)
		defer s.Close()
		servers = append(servers, s)
		options := &azblob.ClientOptions{ClientOptions: policy.ClientOptions{Transport: s.HTTPClient()}}
		client, err := azblob.NewClientFromConnectionString(s.ConnectionString(), options)
		if opts != nil {
			client, err = azblob.NewClient(s.URL(), tokenCredential{}, options)
		}
		must(t, err)
		if _, err := client.CreateContainer(t.Context(), "box", nil); err != nil {
			t.Fatal(err)
		}
	}
	plain, withOAuth := servers[0], servers[1]

	if resp, err := http.Get(withOAuth.URL()); err == nil {
		_ = resp.Body.Close()
		t.Error("a client that does not know the certificate trusts the server")
	}
	_ = withOAuth.cmd.Process.Kill()
	<-withOAuth.done
	if err := withOAuth.Close(); err == nil || !strings.Contains(err.Error(), "before Close") || !strings.Contains(err.Error(), "successfully listens") {
		t.Errorf("Close: %v", err)
	}
	for range 2 {
		if err := plain.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, s := range servers {
		if _, err := os.Stat(s.temp); !errors.Is(err, os.ErrNotExist) || !gone(t, s.URL()) {
			t.Errorf("%s is left: %v", s.URL(), err)
		}
	}
}

// TestNotInstalled looks for Azurite where it is not. A folder without the file that npm writes last is incomplete.
func TestNotInstalled(t *testing.T) {
	t.Chdir(t.TempDir())
	_, err := Start(t.Context())
	for what, err := range map[string]error{"outside a checkout": err, "an empty folder": installed(t.TempDir()), "to install": Install(t.Context(), io.Discard)} {
		if err == nil || what != "an empty folder" && (!errors.Is(err, ErrNotInstalled) || !strings.Contains(err.Error(), installCommand)) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestPinned checks that the npm files pin Version, and record no addresses.
func TestPinned(t *testing.T) {
	dir, err := folder()
	must(t, err)
	var manifest struct {
		Dependencies map[string]string `json:"dependencies"`
	}
	var lock struct {
		Packages map[string]struct {
			Version   string `json:"version"`
			Resolved  string `json:"resolved"`
			Integrity string `json:"integrity"`
			Link      bool   `json:"link"`
		} `json:"packages"`
	}
	for file, v := range map[string]any{"package.json": &manifest, "package-lock.json": &lock} {
		data, err := os.ReadFile(filepath.Join(dir, file))
		must(t, err)
		if err := json.Unmarshal(data, v); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
	}
	if got := manifest.Dependencies["azurite"]; got != Version {
		t.Errorf("package.json has azurite %q, want %q", got, Version)
	}
	if got := lock.Packages["node_modules/azurite"].Version; got != Version {
		t.Errorf("package-lock.json has azurite %q, want %q", got, Version)
	}
	for name, p := range lock.Packages {
		if p.Link && p.Resolved == "unused" || name == "unused" {
			continue // a folder beside the lock file
		}
		if p.Resolved != "" {
			t.Errorf("package-lock.json records an address for %s; run npm in internal/azurite, whose .npmrc omits it", name)
		}
		if name != "" && p.Integrity == "" {
			t.Errorf("package-lock.json has no checksum for %s", name)
		}
	}
}

// must fails the test if err is not nil.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
