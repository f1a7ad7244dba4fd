package main

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/planvault/azblob/emulator"
)

// folder is a transport to an emulator that keeps its data in a file. The process that opens the file first
// serves the emulator to the others. When that process dies, the next one whose request fails opens the file
// and serves it. The vault repeats the failed requests. A folder is safe for concurrent use.
type folder struct {
	path string
	say  func(string)
	net  *http.Transport

	mu     sync.Mutex
	to     policy.Transporter
	server *emulator.Server // set if this process serves
	port   *emulator.Listener
}

const (
	dataFile = "account.db"
	// addressFile holds the address of the process that serves the emulator.
	addressFile = "address"
	// patience is how long openFolder waits for the address of a process that has the file open.
	patience = 5 * time.Second
)

// openFolder serves the emulator in a folder, or finds the process that does.
func openFolder(path string, say func(string)) (*folder, error) {
	f := &folder{path: path, say: say, net: &http.Transport{MaxIdleConnsPerHost: 64}}
	for end := time.Now().Add(patience); ; time.Sleep(patience / 100) {
		if err := f.find(nil); err == nil || time.Now().After(end) {
			return f, err
		}
	}
}

// serves reports whether this process serves the emulator.
func (f *folder) serves() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.server != nil
}

// Do sends a request to the emulator. If nobody answers, it looks for the emulator before it returns the
// error.
func (f *folder) Do(req *http.Request) (*http.Response, error) {
	f.mu.Lock()
	to := f.to
	f.mu.Unlock()
	resp, err := to.Do(req)
	if err != nil && req.Context().Err() == nil {
		err = errors.Join(err, f.find(to))
	}
	return resp, err
}

// find replaces a transport that has failed: it opens the file, or reads the address of the process that has
// it open.
func (f *folder) find(failed policy.Transporter) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.server != nil || f.to != failed {
		return nil // another request was faster
	}
	server, err := emulator.Open(filepath.Join(f.path, dataFile), emulator.WithoutLog())
	if err != nil {
		address, addressErr := os.ReadFile(filepath.Join(f.path, addressFile))
		if addressErr != nil {
			return err // no other process serves the folder
		}
		f.to = remote{address: string(address), RoundTripper: f.net}
		return nil
	}
	if f.port, err = server.Listen("127.0.0.1:0"); err == nil {
		err = replaceFile(filepath.Join(f.path, addressFile), f.port.Addr().String())
	}
	if err != nil {
		return errors.Join(fmt.Errorf("listen for other processes: %w", err), f.shut(server))
	}
	f.server, f.to = server, server.Transport()
	if failed != nil {
		f.say("the process that served " + f.path + " is gone: this one serves it now")
	}
	return nil
}

// close ends the service, if this process serves.
func (f *folder) close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.net.CloseIdleConnections()
	if f.server == nil {
		return nil
	}
	// The next process can't write its address before the file is closed.
	return errors.Join(os.Remove(filepath.Join(f.path, addressFile)), f.shut(f.server))
}

func (f *folder) shut(server *emulator.Server) error {
	var err error
	if f.port != nil {
		err = f.port.Close()
	}
	return errors.Join(err, server.Close())
}

// remote is a transport to the emulator at an address. All processes sign for the same account, and the
// signature does not cover the host.
type remote struct {
	address string
	http.RoundTripper
}

func (r remote) Do(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.URL.Host, req.Host = r.address, ""
	return r.RoundTrip(req)
}

// replaceFile writes a file such that no process reads half of it.
func replaceFile(path, text string) error {
	temporary := path + ".new"
	if err := os.WriteFile(temporary, []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(temporary, path)
}
