//go:build unix && !aix && !solaris

package emulator

import (
	"errors"
	"io"
	"os"
	"syscall"
)

// lockFile locks a file until it is closed or the process ends.
func lockFile(path string) (io.Closer, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(errInUse, f.Close())
	}
	return f, nil
}
