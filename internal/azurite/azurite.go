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
// The folder is found through the path of this source file that the compiler recorded. Where that path does
// not exist (a binary built with -trimpath, or one copied to another machine), the folder internal/azurite is
// looked for in the working directory and its parents. This package is therefore for use inside a checkout of
// the module only.
package azurite

import (
	"bytes"
	"cmp"
	"context"
	"crypto/x509"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"time"
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
// signature nor the permissions of its holder. [Token] returns a token that it accepts.
//
// Clients have to trust the certificate. Use [Server.HTTPClient], or a transport whose root pool holds
// [Server.Certificate].
func WithOAuth() Option {
	return func(c *config) { c.oauth = true }
}

// Server is a running Azurite. It is safe for concurrent use.
type Server struct {
	url    string
	temp   string
	proc   *process
	out    *output
	clock  io.Writer
	cert   *x509.Certificate
	client *http.Client
	close  func() error
}

// Start starts Azurite on a free port of 127.0.0.1 and returns when it answers, after about half a second.
// Azurite runs without access log and telemetry and accepts any API version. Its data is in a temporary
// folder: data in memory would be faster, but after ten minutes the garbage collection makes Azurite stop
// answering for minutes. Start ignores AZURITE_* environment variables.
//
// ctx and a limit of two minutes bound only the start. The server runs until [Server.Close]. On Linux it is
// also killed when this process dies.
//
// The error wraps [ErrNotInstalled] if node or the pinned Azurite is missing. Otherwise it contains the last
// lines that Azurite printed.
func Start(ctx context.Context, opts ...Option) (*Server, error) {
	dir, err := folder()
	if err != nil {
		return nil, err
	}
	return start(ctx, dir, opts...)
}

// start is Start with Azurite installed in the folder dir.
func start(ctx context.Context, dir string, opts ...Option) (_ *Server, err error) {
	var cfg config
	for _, opt := range opts {
		opt(&cfg)
	}

	if err := installed(dir); err != nil {
		return nil, fmt.Errorf("%w (%w)", ErrNotInstalled, err)
	}
	node, err := exec.LookPath("node")
	if err != nil {
		return nil, fmt.Errorf("%w (%w)", ErrNotInstalled, err)
	}
	if node, err = filepath.Abs(node); err != nil { // the child has another working directory
		return nil, fmt.Errorf("azurite: %w", err)
	}

	s := &Server{out: newOutput()}
	s.close = sync.OnceValue(s.stop)
	defer func() {
		if err != nil {
			_ = s.Close()
		}
	}()
	if s.temp, err = os.MkdirTemp("", "azurite-"); err != nil {
		return nil, fmt.Errorf("azurite: cannot make a temporary folder; check TMPDIR: %w", err)
	}

	lean := filepath.Join(s.temp, "lean.js")
	if err = os.WriteFile(lean, leanScript, 0o600); err != nil {
		return nil, fmt.Errorf("azurite: cannot write to the temporary folder: %w", err)
	}
	args := []string{
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
		MaxIdleConnsPerHost: 100,
		IdleConnTimeout:     4 * time.Second, // Azurite closes idle connections after 5
	}
	if cfg.oauth {
		pair, err := newKeyPair(s.temp)
		if err != nil {
			return nil, fmt.Errorf("azurite: cannot make a certificate: %w", err)
		}
		s.cert = pair.cert.Leaf
		transport.TLSClientConfig = pair.clientConfig()
		args = append(args, "--oauth", "basic", "--cert", pair.certFile, "--key", pair.keyFile)
	}
	s.client = &http.Client{Transport: transport}

	cmd := exec.Command(node, args...)
	cmd.Dir = s.temp
	cmd.Env = environ()
	cmd.Stdout, cmd.Stderr = s.out, s.out
	if s.clock, err = cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("azurite: %w", err)
	}
	if s.proc, err = startProcess(cmd); err != nil {
		return nil, fmt.Errorf("azurite: cannot run node; check that `node --version` works: %w", err)
	}
	if err := s.ready(ctx); err != nil {
		return nil, fmt.Errorf("azurite did not start: %w\nCheck that `node --version` is 20 or later, and install again with `%s`.\nAzurite's last output:\n%s",
			err, installCommand, s.out.tail())
	}
	return s, nil
}

// ready waits until Azurite has printed its address and answers requests there.
func (s *Server) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("no answer within %v", startLimit))
	defer cancel()

	select {
	case address := <-s.out.address:
		s.url = address + "/" + AccountName
	case <-s.proc.done:
		return fmt.Errorf("node exited: %w", cmp.Or(s.proc.err, errors.New("exit status 0")))
	case <-ctx.Done():
		return context.Cause(ctx)
	}

	for {
		err := s.ping(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-time.After(pollPause):
		case <-s.proc.done:
			return fmt.Errorf("node exited: %w", cmp.Or(s.proc.err, errors.New("exit status 0")))
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

// Certificate returns the server's certificate, or nil without [WithOAuth].
func (s *Server) Certificate() *x509.Certificate { return s.cert }

// Close kills Azurite, waits until it is gone, and removes its temporary files. Close returns an error if
// Azurite had stopped before. Later calls return the same result.
func (s *Server) Close() error { return s.close() }

func (s *Server) stop() error {
	var errs []error
	if s.client != nil {
		s.client.CloseIdleConnections()
	}
	if s.proc != nil {
		errs = append(errs, s.stopProcess())
	}
	if s.temp != "" {
		if err := os.RemoveAll(s.temp); err != nil {
			errs = append(errs, fmt.Errorf("azurite: temporary files are left, remove them by hand: %w", err))
		}
	}
	return errors.Join(errs...)
}

func (s *Server) stopProcess() error {
	select {
	case <-s.proc.done:
		return fmt.Errorf("azurite stopped before Close (%w); its last output:\n%s",
			cmp.Or(s.proc.err, errors.New("exit status 0")), s.out.tail())
	default:
	}

	s.proc.kill()
	select {
	case <-s.proc.done:
		return nil
	case <-time.After(killLimit):
		return fmt.Errorf("azurite: process %d still exists %v after it was killed; end it by hand", s.proc.cmd.Process.Pid, killLimit)
	}
}

// Install runs `npm ci` in Azurite's folder unless the pinned version is installed. The output of npm goes to
// out. The error wraps [ErrNotInstalled] if npm is missing or fails. Installations must not run concurrently.
func Install(ctx context.Context, out io.Writer) error {
	dir, err := folder()
	if err != nil {
		return err
	}
	return install(ctx, dir, out)
}

// install is Install for the folder dir.
func install(ctx context.Context, dir string, out io.Writer) error {
	if installed(dir) == nil {
		return nil
	}
	npm, err := exec.LookPath("npm")
	if err != nil {
		return fmt.Errorf("%w (%w)", ErrNotInstalled, err)
	}
	if npm, err = filepath.Abs(npm); err != nil {
		return fmt.Errorf("azurite: %w", err)
	}

	cmd := exec.Command(npm, "ci")
	cmd.Dir = dir
	cmd.Stdout, cmd.Stderr = out, out
	proc, err := startProcess(cmd)
	if err != nil {
		return fmt.Errorf("%w (cannot run npm: %w)", ErrNotInstalled, err)
	}
	select {
	case <-proc.done:
	case <-ctx.Done():
		proc.kill()
		<-proc.done // bounded by WaitDelay; nothing writes to out after it
		return fmt.Errorf("%w (npm ci was stopped: %w)", ErrNotInstalled, context.Cause(ctx))
	}
	if proc.err != nil {
		return fmt.Errorf("%w (npm ci failed, see its output: %w)", ErrNotInstalled, proc.err)
	}
	if err := installed(dir); err != nil {
		return fmt.Errorf("%w (npm ci succeeded, yet: %w; check that package.json pins %s)", ErrNotInstalled, err, Version)
	}
	return nil
}

// folder returns the folder that holds package.json and node_modules.
func folder() (string, error) {
	isFolder := func(dir string) bool {
		_, err := os.Stat(filepath.Join(dir, "package-lock.json"))
		return err == nil
	}
	if _, file, _, ok := runtime.Caller(0); ok && filepath.IsAbs(file) && isFolder(filepath.Dir(file)) {
		return filepath.Dir(file), nil
	}
	wd, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("%w (%w)", ErrNotInstalled, err)
	}
	for up := wd; ; up = filepath.Dir(up) {
		if dir := filepath.Join(up, "internal", "azurite"); isFolder(dir) {
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

// environ returns the environment without the variables that change Azurite's behavior.
func environ() []string {
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(strings.ToUpper(v), "AZURITE_") {
			env = append(env, v)
		}
	}
	return env
}

// process is a started command.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed once the command has ended and is reaped
	err  error         // what Wait returned; set before done is closed
}

// startProcess starts cmd. On Linux the command dies with this process.
func startProcess(cmd *exec.Cmd) (*process, error) {
	setAttributes(cmd)
	cmd.WaitDelay = killLimit
	p := &process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		// The kernel ties the child to the thread that forked it, not to the process, so the thread must live
		// as long as the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		p.err = cmd.Wait()
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// kill kills the process, on Linux with its group, and does not wait.
func (p *process) kill() {
	select {
	case <-p.done: // another process may have its number now
	default:
		killProcess(p.cmd)
	}
}

// output keeps the last part of what Azurite prints, and finds Azurite's address in it.
type output struct {
	address chan string // receives one value

	mu    sync.Mutex
	data  []byte
	found bool
}

var listening = regexp.MustCompile(`successfully listens on (https?://127\.0\.0\.1:\d+)\r?\n`)

func newOutput() *output { return &output{address: make(chan string, 1)} }

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
	if text := bytes.TrimSpace(o.data); len(text) > 0 {
		return string(text)
	}
	return "(none)"
}
