//go:build !unix || aix || solaris

package emulator

import (
	"errors"
	"io"
	"io/fs"
	"os"
)

// lockFile creates a file anew. Windows refuses that while a process has it open.
func lockFile(path string) (io.Closer, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, errors.Join(errInUse, err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil, errInUse
	}
	return f, err
}
