package azurite

import (
	"bytes"
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

// startServer is azuritetest.Start, which this package cannot import.
func startServer(t *testing.T, opts ...Option) *Server {
	t.Helper()
	s, err := Start(t.Context(), opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() }) // tests check Close themselves
	return s
}

func sharedKeyClient(t *testing.T, s *Server) *azblob.Client {
	t.Helper()
	client, err := azblob.NewClientFromConnectionString(s.ConnectionString(), &azblob.ClientOptions{
		ClientOptions: policy.ClientOptions{Transport: s.HTTPClient()},
	})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func put(t *testing.T, client *azblob.Client) {
	t.Helper()
	if _, err := client.CreateContainer(t.Context(), "box", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := client.UploadBuffer(t.Context(), "box", "dir/blob", []byte("hello"), nil); err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, client *azblob.Client) {
	t.Helper()
	resp, err := client.DownloadStream(t.Context(), "box", "dir/blob", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	got, err := io.ReadAll(resp.Body)
	if err != nil || string(got) != "hello" {
		t.Fatalf("got %q, %v", got, err)
	}
}

// checkGone fails the test unless the server's port can be listened on.
func checkGone(t *testing.T, s *Server) {
	t.Helper()
	u, err := url.Parse(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", u.Host)
	if err != nil {
		t.Fatalf("the port is still taken: %v", err)
	}
	_ = l.Close()
	if _, err := os.Stat(s.temp); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("temporary files are left: %v", err)
	}
}

// TestStart runs two servers at once. One is closed, the other crashes.
func TestStart(t *testing.T) {
	needsAzurite(t)
	t.Setenv("AZURITE_ACCOUNTS", "other:a2V5") // must not matter
	s, withOAuth := startServer(t), startServer(t, WithOAuth())
	if s.URL() == withOAuth.URL() {
		t.Fatalf("both are at %s", s.URL())
	}
	testOAuth(t, withOAuth)
	testCrash(t, withOAuth)

	client := sharedKeyClient(t, s)
	put(t, client)
	get(t, client)
	if got := strings.TrimSuffix(client.URL(), "/"); got != s.URL() {
		t.Errorf("the connection string leads to %s, want %s", got, s.URL())
	}
	if s.Certificate() != nil {
		t.Error("there is a certificate without WithOAuth")
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	checkGone(t, s)
}

type tokenCredential struct{}

func (tokenCredential) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	expires := time.Now().Add(time.Hour)
	return azcore.AccessToken{Token: Token(expires), ExpiresOn: expires}, nil
}

// testOAuth uses a server with tokens and with the key.
func testOAuth(t *testing.T, s *Server) {
	t.Helper()
	client, err := azblob.NewClient(s.URL(), tokenCredential{}, &azblob.ClientOptions{
		ClientOptions: policy.ClientOptions{Transport: s.HTTPClient()},
	})
	if err != nil {
		t.Fatal(err)
	}
	put(t, client)
	get(t, client)
	get(t, sharedKeyClient(t, s)) // the key works as well

	if s.Certificate() == nil {
		t.Error("there is no certificate")
	}
	if resp, err := http.Get(s.URL()); err == nil {
		_ = resp.Body.Close()
		t.Error("a client that does not know the certificate trusts the server")
	}

	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL()+"/box?restype=container&comp=list", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Ms-Version", "2026-06-06")
	for name, test := range map[string]struct {
		token string
		want  int
	}{
		"valid":   {Token(time.Now().Add(time.Hour)), http.StatusOK},
		"expired": {Token(time.Now().Add(-time.Hour)), http.StatusForbidden},
	} {
		req.Header.Set("Authorization", "Bearer "+test.token)
		resp, err := s.HTTPClient().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != test.want {
			t.Errorf("%s token: status %s, want %d", name, resp.Status, test.want)
		}
	}
}

// testCrash kills a server. Close reports it.
func testCrash(t *testing.T, s *Server) {
	t.Helper()
	if err := s.proc.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-s.proc.done
	err := s.Close()
	if err == nil || !strings.Contains(err.Error(), "before Close") || !strings.Contains(err.Error(), "successfully listens") {
		t.Fatalf("Close: %v", err)
	}
	checkGone(t, s)
}

func TestStartCanceled(t *testing.T) {
	needsAzurite(t)
	t.Setenv("TMPDIR", t.TempDir())
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("enough")
	cancel(cause)
	if _, err := Start(ctx); !errors.Is(err, cause) {
		t.Fatalf("Start: %v, want %v", err, cause)
	}
	checkEmpty(t, os.Getenv("TMPDIR"))
}

func TestStartFails(t *testing.T) {
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip(err)
	}
	t.Setenv("TMPDIR", t.TempDir())
	for name, test := range map[string]struct {
		script string
		want   []string
	}{
		"exits":  {`console.error("Exit due to x"); process.exit(3)`, []string{"exit status 3", "Exit due to x", "npm ci", "node --version"}},
		"ends":   {``, []string{"exit status 0", "(none)"}},
		"stops":  {`console.log("Azurite Blob service successfully listens on http://127.0.0.1:1")`, []string{"exited"}},
		"unused": {`require("applicationinsights"); class C extends require("sequelize").Model {}; console.log("not loaded")`, []string{"not loaded"}},
		"floods": {`console.log("x".repeat(100000)); console.log("the end"); process.exitCode = 1`, []string{"the end"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := start(t.Context(), fakeInstall(t, Version, test.script))
			if err == nil || errors.Is(err, ErrNotInstalled) {
				t.Fatalf("Start: %v", err)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error does not hold %q: %v", want, err)
				}
			}
			if len(err.Error()) > 2*tailSize {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
		})
	}
	checkEmpty(t, os.Getenv("TMPDIR"))
}

func TestNotInstalled(t *testing.T) {
	check := func(t *testing.T, err error) {
		t.Helper()
		if !errors.Is(err, ErrNotInstalled) || !strings.Contains(err.Error(), "npm ci --prefix internal/azurite") {
			t.Errorf("got %v, want ErrNotInstalled", err)
		}
	}
	t.Run("nothing", func(t *testing.T) {
		_, err := start(t.Context(), t.TempDir())
		check(t, err)
	})
	t.Run("old version", func(t *testing.T) {
		_, err := start(t.Context(), fakeInstall(t, "3.36.0", ""))
		check(t, err)
	})
	t.Run("partial", func(t *testing.T) {
		dir := fakeInstall(t, Version, "")
		if err := os.Remove(filepath.Join(dir, "node_modules", ".package-lock.json")); err != nil {
			t.Fatal(err)
		}
		_, err := start(t.Context(), dir)
		check(t, err)
	})
	t.Run("no node", func(t *testing.T) {
		t.Setenv("PATH", t.TempDir())
		_, err := start(t.Context(), fakeInstall(t, Version, ""))
		check(t, err)
	})
	t.Run("no npm", func(t *testing.T) {
		t.Setenv("PATH", t.TempDir())
		check(t, install(t.Context(), t.TempDir(), io.Discard))
	})
}

func TestInstall(t *testing.T) {
	if _, err := exec.LookPath("npm"); err != nil {
		t.Skip(err)
	}
	t.Run("present", func(t *testing.T) {
		t.Setenv("PATH", t.TempDir()) // npm is not needed
		if err := install(t.Context(), fakeInstall(t, Version, ""), io.Discard); err != nil {
			t.Error(err)
		}
	})
	t.Run("fails", func(t *testing.T) {
		var out bytes.Buffer
		err := install(t.Context(), t.TempDir(), &out) // has no package.json
		if !errors.Is(err, ErrNotInstalled) || out.Len() == 0 {
			t.Errorf("got %v, want ErrNotInstalled; output:\n%s", err, &out)
		}
	})
	t.Run("canceled", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := install(ctx, t.TempDir(), io.Discard); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want %v", err, context.Canceled)
		}
	})
}

// TestPinned checks that the npm files pin Version, and record no addresses.
func TestPinned(t *testing.T) {
	dir, err := folder()
	if err != nil {
		t.Fatal(err)
	}
	var manifest struct {
		Dependencies map[string]string `json:"dependencies"`
	}
	var lock struct {
		Packages map[string]struct {
			Version   string `json:"version"`
			Resolved  string `json:"resolved"`
			Integrity string `json:"integrity"`
		} `json:"packages"`
	}
	for file, v := range map[string]any{"package.json": &manifest, "package-lock.json": &lock} {
		data, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			t.Fatal(err)
		}
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
		if p.Resolved != "" {
			t.Errorf("package-lock.json records an address for %s; run npm in internal/azurite, whose .npmrc omits it", name)
		}
		if name != "" && p.Integrity == "" {
			t.Errorf("package-lock.json has no checksum for %s", name)
		}
	}
}

// fakeInstall returns a folder in which script is installed as Azurite.
func fakeInstall(t *testing.T, version, script string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		mainFile(dir): script,
		filepath.Join(dir, "node_modules", "azurite", "package.json"): `{"version":"` + version + `"}`,
		filepath.Join(dir, "node_modules", ".package-lock.json"):      `{}`,
	} {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// checkEmpty fails the test if an Azurite left its temporary folder in dir.
func checkEmpty(t *testing.T, dir string) {
	t.Helper()
	left, err := filepath.Glob(filepath.Join(dir, "azurite-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left in the temporary folder: %v, %v", left, err)
	}
}
