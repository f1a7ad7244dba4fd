//go:build unix

package plugins_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/examples/engine/plugins"
)

// TestCommandIsApart checks that a signal to the command's group does not reach this process.
func TestCommandIsApart(t *testing.T) {
	resp, err := plugins.Command{}.Run(t.Context(), engine.Call{}, plugins.CommandRequest{Run: `trap "" INT; kill -INT 0; echo alive`})
	if err != nil || resp.Output != "alive\n" {
		t.Errorf("%+v, %v", resp, err)
	}
}

// TestCommandEnds checks that the end of the context ends the command and its children.
func TestCommandEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	dir := t.TempDir()
	go func() {
		for ctx.Err() == nil {
			if _, err := os.Stat(filepath.Join(dir, "started")); err == nil {
				cancel()
			}
			time.Sleep(time.Millisecond)
		}
	}()
	_, err := plugins.Command{Dir: dir}.Run(ctx, engine.Call{}, plugins.CommandRequest{Run: "sleep 1000 & touch started; sleep 1000"})
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
