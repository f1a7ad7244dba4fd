package main

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/planvault/azblob/emulator"
)

// folder is a transport to an emulator that keeps its data in a file. The process that has the file open serves
// the emulator to the others. When that process dies, the next one whose request fails opens the file and serves
// it. The vault repeats the failed requests. A folder is safe for concurrent use.
type folder struct {
	path string

	mu      sync.Mutex
	address string           // of the process that serves
	server  *emulator.Server // set if this process serves
	port    *emulator.Listener
}

// openFolder serves the emulator in a folder, or finds the process that does, which must be a node.
func openFolder(path string, shared bool) (*folder, error) {
	f := &folder{path: path}
	var err error
	for range 100 {
		if err = f.find(""); err == nil {
			break
		}
		time.Sleep(50 * time.Millisecond) // until the process that has the file open has written its address
	}
	if err == nil && f.server == nil && !shared {
		err = fmt.Errorf("another process works on %s: -node shares its work, another -data has a vault of its own", path)
	}
	return f, err
}

// Do sends a request to the emulator. If nobody answers, it looks for the emulator before it returns the error.
func (f *folder) Do(req *http.Request) (*http.Response, error) {
	f.mu.Lock()
	address := f.address
	f.mu.Unlock()
	req = req.Clone(req.Context())
	req.URL.Host, req.Host = address, "" // the signature does not cover the host
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err == nil || req.Context().Err() != nil {
		return resp, err
	}
	if findErr := f.find(address); findErr != nil {
		return nil, errors.Join(err, findErr)
	}
	return nil, errors.Join(err, errMoved)
}

// errMoved marks the error of a request that went to a process that has ended. The vault sends it again, to the next one.
var errMoved = errors.New("the emulator's process has ended")

// find replaces an address that has failed: it opens the file and serves it, or reads the address of the process
// that has the file open.
func (f *folder) find(failed string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.server != nil || f.address != failed {
		return nil // another request was faster
	}
	server, err := emulator.Open(filepath.Join(f.path, "account.db"), emulator.Options{NoLog: true})
	if err != nil {
		address, addressErr := os.ReadFile(f.addressFile())
		switch {
		case addressErr != nil && failed != "":
			return nil // the process that served the folder is closing it: the next try finds who serves it
		case addressErr != nil:
			return err // no other process serves the folder
		}
		if failed != "" && f.address != string(address) {
			say("the process that served the store has ended: another one serves it now")
		}
		f.address = string(address)
		return nil
	}
	if f.port, err = server.Listen("127.0.0.1:0"); err == nil {
		f.address = f.port.Addr().String()
		err = os.WriteFile(f.addressFile()+".new", []byte(f.address), 0o600)
	}
	if err == nil {
		err = os.Rename(f.addressFile()+".new", f.addressFile()) // nobody reads half of it
	}
	if err != nil {
		return errors.Join(err, server.Close())
	}
	if f.server = server; failed != "" {
		say("the process that served the store has ended: this one serves it now")
	}
	return nil
}

// close ends the service, if this process serves.
func (f *folder) close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.server == nil {
		return nil
	}
	// The next process can't write its address before the file is closed.
	return errors.Join(os.Remove(f.addressFile()), f.port.Close(), f.server.Close())
}

func (f *folder) addressFile() string { return filepath.Join(f.path, "address") }
