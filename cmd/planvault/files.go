package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"
)

// writeFile writes a file that the user alone may read, whole or not at all: what write writes goes to a temporary file
// beside it, which then takes its place. Of what is not a regular file, such as a pipe, nothing is replaced: it is
// written to. "-" is stdout.
func (a *app) writeFile(path string, write func(io.Writer) error) error {
	if path == "-" {
		return buffered(a.stdout, write)
	}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		return errors.Join(buffered(f, write), f.Close())
	}
	return replaceFile(path, 0o600, write)
}

// abandoned is the age of a temporary file whose writer was killed: a writer writes more often.
const abandoned = time.Hour

// replaceFile writes a file whole or not at all, in place of what was there. It removes what killed writers of the same file
// have left.
func replaceFile(path string, mode fs.FileMode, write func(io.Writer) error) error {
	dir, base := filepath.Split(path)
	left, _ := os.ReadDir(filepath.Clean(dir + "."))
	for _, f := range left {
		info, err := f.Info()
		if mine, _ := filepath.Match("????????.tmp", strings.TrimPrefix(f.Name(), base+".")); mine && err == nil && time.Since(info.ModTime()) > abandoned {
			_ = os.Remove(filepath.Join(dir, f.Name()))
		}
	}
	temporary := fmt.Sprintf("%s.%s.tmp", path, uuid.NewString()[:8])
	f, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	err = errors.Join(buffered(f, write), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(temporary, path)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(temporary))
	}
	return err
}

func buffered(w io.Writer, write func(io.Writer) error) error {
	b := bufio.NewWriter(w)
	if err := write(b); err != nil {
		return err
	}
	return b.Flush()
}
