// Package azurite starts and stops a pinned Azurite, the reference emulator of Azure Blob Storage, for tests
// and for the integration binary.
//
// Azurite is a Node.js program. The package.json and package-lock.json beside this source file pin it;
// Install, or
//
//	npm ci --prefix internal/azurite
//
// in the module's root folder, puts it into node_modules. Node.js 20 or later is needed; 20.20 and 22.23 are
// tested. Azurite's own manifest asks for 22, about which npm only warns.
//
// The folder is looked for in the working directory and its parents, so this package is for use inside a
// checkout of the module only.
package azurite

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/planvault/azblob/internal/selfsigned"
)

// Version is the Azurite version that package.json pins.
const Version = "3.37.0"

// The well-known development account that every Azurite serves. The key is published in Azurite's
// documentation and protects nothing.
const (
	AccountName = "devstoreaccount1"
	AccountKey  = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)

const (
	startLimit = 2 * time.Minute // until Azurite answers, on a machine that is very busy
	killLimit  = 5 * time.Second // for a killed process to be gone
	pollPause  = 20 * time.Millisecond
	tailSize   = 8 << 10

	// installCommand is the command that users should run in the module's root folder.
	installCommand = "npm ci --prefix internal/azurite"
)

//go:embed lean.js
var leanScript []byte

// ErrNotInstalled means that node or the pinned Azurite is missing. Start and Install wrap it; test with
// [errors.Is].
var ErrNotInstalled = errors.New("azurite " + Version + " is not installed; with Node.js 20 or later in PATH run `" +
	installCommand + "` in the module's root folder")

// Option configures [Start].
type Option func(*config)

type config struct {
	oauth bool
}

// WithOAuth makes Azurite serve HTTPS with a new self-signed certificate, and accept bearer tokens besides
// the account key. Azurite checks the audience, the issuer and the times of a token, but neither its
// signature nor the permissions of its holder. [Token] returns a token that it accepts. Only
// [Server.HTTPClient] trusts the certificate.
func WithOAuth() Option {
	return func(c *config) { c.oauth = true }
}

// Server is a running Azurite. It is safe for concurrent use.
type Server struct {
	url    string
	temp   string
	cmd    *exec.Cmd
	done   chan struct{} // closed once the process has ended
	err    error         // why it ended; set before done is closed
	out    output
	clock  io.Writer
	client *http.Client
	close  func() error
}

// Start starts Azurite on a free port of 127.0.0.1 and returns when it answers, after about half a second.
// Azurite runs without access log and telemetry and accepts any API version. Its data is in a temporary
// folder: data in memory would be faster, but after ten minutes the garbage collection makes Azurite stop
// answering for minutes. Start ignores AZURITE_* environment variables.
//
// ctx and a limit of two minutes bound only the start. The server runs until [Server.Close], or until this
// process dies.
//
// The error wraps [ErrNotInstalled] if node or the pinned Azurite is missing. Otherwise it contains the last
// lines that Azurite printed.
func Start(ctx context.Context, opts ...Option) (_ *Server, err error) {
	var cfg config
	for _, opt := range opts {
		opt(&cfg)
	}
	dir, err := folder()
	if err != nil {
		return nil, err
	}
	if err := installed(dir); err != nil {
		return nil, fmt.Errorf("%w (%w)", ErrNotInstalled, err)
	}
	node, err := command("node")
	if err != nil {
		return nil, err
	}
	s := &Server{done: make(chan struct{}), out: output{address: make(chan string, 1)}}
	s.close = sync.OnceValue(s.stop)
	defer func() {
		if err != nil {
			_ = s.Close()
		}
	}()
	args, err := s.prepare(dir, cfg)
	if err != nil {
		return nil, err
	}
	if err = s.launch(node, args); err != nil {
		return nil, err
	}
	if err = s.ready(ctx); err != nil {
		return nil, fmt.Errorf("azurite did not start: %w\nCheck that `node --version` is 20 or later, and install again with `%s`.\n"+
			"Azurite's last output:\n%s", err, installCommand, s.out.tail())
	}
	return s, nil
}

// prepare makes the temporary folder and the client, and returns the arguments of node.
func (s *Server) prepare(dir string, cfg config) (args []string, err error) {
	if s.temp, err = os.MkdirTemp("", "azurite-"); err != nil {
		return nil, fmt.Errorf("azurite: cannot make a temporary folder; check TMPDIR: %w", err)
	}
	lean := filepath.Join(s.temp, "lean.js")
	if err = os.WriteFile(lean, leanScript, 0o600); err != nil {
		return nil, fmt.Errorf("azurite: cannot write to the temporary folder: %w", err)
	}
	args = []string{
		"--require", lean,
		mainFile(dir),
		"--location", filepath.Join(s.temp, "data"),
		"--blobHost", "127.0.0.1",
		"--blobPort", "0", // Azurite chooses a port and prints it
		"--silent",
		"--skipApiVersionCheck",
		"--disableTelemetry",
	}
	transport := &http.Transport{
		MaxIdleConnsPerHost: 256,
		IdleConnTimeout:     4 * time.Second, // Azurite closes idle connections after 5
	}
	s.client = &http.Client{Transport: transport}
	if !cfg.oauth {
		return args, nil
	}
	cert, key := filepath.Join(s.temp, "cert.pem"), filepath.Join(s.temp, "key.pem")
	if transport.TLSClientConfig, err = writeCertificate(cert, key); err != nil {
		return nil, fmt.Errorf("azurite: cannot make a certificate: %w", err)
	}
	return append(args, "--oauth", "basic", "--cert", cert, "--key", key), nil
}

// launch starts the process.
func (s *Server) launch(node string, args []string) (err error) {
	cmd := exec.Command(node, args...)
	cmd.Dir = s.temp
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(strings.ToUpper(v), "AZURITE_") })
	cmd.Stdout, cmd.Stderr = &s.out, &s.out
	cmd.WaitDelay = killLimit
	// lean.js ends the process when this pipe is closed, and moves the clock.
	if s.clock, err = cmd.StdinPipe(); err != nil {
		return fmt.Errorf("azurite: %w", err)
	}
	if err = cmd.Start(); err != nil {
		return fmt.Errorf("azurite: cannot run node; check that `node --version` works: %w", err)
	}
	s.cmd = cmd
	go func() {
		s.err = cmp.Or(cmd.Wait(), errors.New("exit status 0"))
		close(s.done)
	}()
	return nil
}

// writeCertificate writes a new self-signed certificate for 127.0.0.1 and its key to files. It returns a
// configuration that trusts it.
func writeCertificate(certFile, keyFile string) (*tls.Config, error) {
	cert, err := selfsigned.New(time.Now())
	if err != nil {
		return nil, err
	}
	key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	if err != nil {
		return nil, err
	}
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Leaf.Raw})
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})
	return selfsigned.ClientConfig(cert), errors.Join(os.WriteFile(certFile, certPEM, 0o600), os.WriteFile(keyFile, keyPEM, 0o600))
}

// Token returns an unsigned bearer token that a server with [WithOAuth] accepts until it expires. Azure
// refuses it.
func Token(expires time.Time) string {
	encode := base64.RawURLEncoding.EncodeToString
	claims := fmt.Sprintf(`{"aud":"https://storage.azure.com","iss":"https://sts.windows.net/00000000-0000-0000-0000-000000000000/",`+
		`"iat":%d,"nbf":%[1]d,"exp":%d}`, time.Now().Add(-time.Minute).Unix(), expires.Unix())
	return encode([]byte(`{"alg":"none","typ":"JWT"}`)) + "." + encode([]byte(claims)) + "."
}

// ready waits until Azurite has printed its address and answers requests there.
func (s *Server) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("no answer within %v", startLimit))
	defer cancel()
	err := errors.New("it has no address")
	address := s.out.address
	for {
		var again <-chan time.Time
		if s.url != "" {
			if err = s.ping(ctx); err == nil {
				return nil
			}
			again = time.After(pollPause)
		}
		select {
		case text := <-address:
			s.url = text + "/" + AccountName
		case <-again:
		case <-s.done:
			return fmt.Errorf("node exited: %w", s.err)
		case <-ctx.Done():
			return fmt.Errorf("%w; last try: %w", context.Cause(ctx), err)
		}
	}
}

// ping succeeds if an Azurite answers at the server's address.
func (s *Server) ping(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"?comp=list", nil)
	if err != nil {
		return err
	}
	// The request is not signed, so the answer is an error from Azurite itself.
	resp, err := s.client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if server := resp.Header.Get("Server"); !strings.HasPrefix(server, "Azurite-Blob/") {
		return fmt.Errorf("%s answered, with status %s and the Server header %q", s.url, resp.Status, server)
	}
	return nil
}

// Advance moves the server's clock ahead. Requests that are sent afterwards see it moved.
func (s *Server) Advance(ctx context.Context, d time.Duration) error {
	if _, err := fmt.Fprintln(s.clock, d.Milliseconds()); err != nil {
		return fmt.Errorf("azurite: move the clock: %w", err)
	}
	return s.ping(ctx) // node reads what is written before this request no later than the request
}

// URL returns the address of the account without a trailing slash, such as
// http://127.0.0.1:40589/devstoreaccount1.
func (s *Server) URL() string { return s.url }

// ConnectionString returns the connection string of the account, with its key. With [WithOAuth], its clients
// must also use [Server.HTTPClient].
func (s *Server) ConnectionString() string {
	scheme, _, _ := strings.Cut(s.url, ":")
	return fmt.Sprintf("DefaultEndpointsProtocol=%s;AccountName=%s;AccountKey=%s;BlobEndpoint=%s;",
		scheme, AccountName, AccountKey, s.url)
}

// HTTPClient returns a client that trusts the server's certificate, for the Transport field of the Azure
// SDK's client options.
func (s *Server) HTTPClient() *http.Client { return s.client }

// Close kills Azurite, waits until it is gone, and removes its temporary files. Close returns an error if
// Azurite had stopped before. Later calls return the same result.
func (s *Server) Close() error { return s.close() }

func (s *Server) stop() error {
	if s.client != nil {
		s.client.CloseIdleConnections()
	}
	var err error
	if s.cmd != nil {
		select {
		case <-s.done:
			err = fmt.Errorf("azurite stopped before Close (%w); its last output:\n%s", s.err, s.out.tail())
		default:
			_ = s.cmd.Process.Kill() // it may have ended just now
			<-s.done
		}
	}
	if s.temp == "" {
		return err
	}
	return errors.Join(err, os.RemoveAll(s.temp))
}

// Install runs `npm ci` in Azurite's folder unless the pinned version is installed. The output of npm goes to
// out. The error wraps [ErrNotInstalled] if npm is missing or fails. Installations must not run concurrently.
func Install(ctx context.Context, out io.Writer) error {
	dir, err := folder()
	if err != nil || installed(dir) == nil {
		return err
	}
	npm, err := command("npm")
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, npm, "ci")
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = dir, out, out, killLimit
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%w (npm ci failed, see its output: %w)", ErrNotInstalled, cmp.Or(context.Cause(ctx), err))
	}
	if err := installed(dir); err != nil {
		return fmt.Errorf("%w (npm ci succeeded, yet: %w; check that package.json pins %s)", ErrNotInstalled, err, Version)
	}
	return nil
}

// command returns the path of a program, for use in any folder.
func command(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return "", fmt.Errorf("%w (%w)", ErrNotInstalled, err)
	}
	return path, nil
}

// folder returns the folder that holds package.json and node_modules.
func folder() (string, error) {
	wd, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("%w (%w)", ErrNotInstalled, err)
	}
	for up := wd; ; up = filepath.Dir(up) {
		dir := filepath.Join(up, "internal", "azurite")
		if _, err := os.Stat(filepath.Join(dir, "package-lock.json")); err == nil {
			return dir, nil
		}
		if up == filepath.Dir(up) {
			return "", fmt.Errorf("%w (there is no internal/azurite in %s or above; run this inside a checkout of the module)", ErrNotInstalled, wd)
		}
	}
}

// mainFile returns the script of azurite-blob. Node runs it directly, because a wrapper in between would have
// to be killed as well.
func mainFile(dir string) string {
	return filepath.Join(dir, "node_modules", "azurite", "dist", "src", "blob", "main.js")
}

// installed returns nil if the folder dir contains the pinned Azurite, or what is wrong.
func installed(dir string) error {
	modules := filepath.Join(dir, "node_modules")
	data, err := os.ReadFile(filepath.Join(modules, "azurite", "package.json"))
	if err != nil {
		return err
	}
	var manifest struct {
		Version string `json:"version"`
	}
	if err := json.Unmarshal(data, &manifest); err != nil {
		return fmt.Errorf("node_modules/azurite/package.json: %w", err)
	}
	if manifest.Version != Version {
		return fmt.Errorf("node_modules holds azurite %q", manifest.Version)
	}
	if _, err := os.Stat(mainFile(dir)); err != nil {
		return err
	}
	// npm writes this file last, so without it an installation is incomplete.
	_, err = os.Stat(filepath.Join(modules, ".package-lock.json"))
	return err
}

// output keeps the last part of what Azurite prints, and finds Azurite's address in it.
type output struct {
	address chan string // receives one value

	mu    sync.Mutex
	data  []byte
	found bool // the address
}

var listening = regexp.MustCompile(`successfully listens on (https?://127\.0\.0\.1:\d+)\r?\n`)

// Write implements io.Writer.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.data = append(o.data, p...)
	if !o.found {
		if m := listening.FindSubmatch(o.data); m != nil {
			o.found = true
			o.address <- string(m[1])
		}
	}
	if extra := len(o.data) - tailSize; extra > 0 {
		o.data = append(o.data[:0], o.data[extra:]...)
	}
	return len(p), nil
}

// tail returns the last part of the output.
func (o *output) tail() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return cmp.Or(string(bytes.TrimSpace(o.data)), "(none)")
}
