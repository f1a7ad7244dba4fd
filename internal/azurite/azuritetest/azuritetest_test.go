package azuritetest

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
	"testing"

	"github.com/planvault/azblob/internal/azurite"
)

var emulator = Holder{Options: []azurite.Option{azurite.WithOAuth()}}

func TestMain(m *testing.M) { os.Exit(emulator.Run(m)) }

func TestStart(t *testing.T) {
	var server *azurite.Server
	t.Run("use", func(t *testing.T) {
		server = Start(t)
		request(t, server)
	})
	if server == nil {
		t.Skip("not installed")
	}
	if resp, err := server.HTTPClient().Get(server.URL()); err == nil {
		_ = resp.Body.Close()
		t.Error("the server outlived the test")
	}
}

func TestHolder(t *testing.T) {
	first := emulator.Get(t)
	if first.Certificate() == nil {
		t.Error("the holder's options were not used")
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if emulator.Get(t) != first {
				t.Error("got another server")
			}
		})
	}
	wg.Wait()
	request(t, first)

	if err := emulator.Close(); err != nil {
		t.Fatal(err)
	}
	request(t, emulator.Get(t)) // Run closes this one
}

func request(t *testing.T, server *azurite.Server) {
	t.Helper()
	resp, err := server.HTTPClient().Get(server.URL() + "?comp=list")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusForbidden {
		t.Errorf("status %s, want %d", resp.Status, http.StatusForbidden)
	}
}

// recorder is a testing.TB that records how the test ended.
type recorder struct {
	testing.TB
	ended string
}

func (r *recorder) Helper()      {}
func (r *recorder) Skip(...any)  { r.ended = "skip" }
func (r *recorder) Fatal(...any) { r.ended = "fatal" }

func TestGiveUp(t *testing.T) {
	missing := fmt.Errorf("%w (reason)", azurite.ErrNotInstalled)
	for _, test := range []struct {
		ci   string
		err  error
		want string
	}{
		{"", missing, "skip"},
		{"false", missing, "skip"},
		{"true", missing, "fatal"},
		{"", errors.New("other"), "fatal"},
	} {
		t.Setenv("CI", test.ci)
		r := &recorder{TB: t}
		giveUp(r, test.err)
		if r.ended != test.want {
			t.Errorf("CI=%q, %v: %s, want %s", test.ci, test.err, r.ended, test.want)
		}
	}
}
