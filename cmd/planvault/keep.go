package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/planvault/azblob/storage/bundle"
)

// keepNone is the value of --keep for no copies.
const keepNone = "none"

func addKeep(flags *pflag.FlagSet, keep *string) {
	flags.StringVar(keep, "keep", "", "write what is removed to this bundle first, a new `FILE`, or a new one in a folder (default: in $PLANVAULT_KEEP, or here); none keeps no copies")
}

// keeping is a bundle of what a command removes. Without one, keeper is nil.
type keeping struct {
	keeper *bundle.Keeper
	file   *os.File
}

// keep begins the bundle of a command. Nothing may be removed before.
func (a *app) keep(where, doing string) (k keeping, err error) {
	if where == "" {
		where = cmp.Or(a.getenv("PLANVAULT_KEEP"), ".")
	}
	if where == keepNone {
		return k, nil
	}
	if info, err := os.Stat(where); err == nil && info.IsDir() {
		where = filepath.Join(where, fmt.Sprintf("planvault-%s-%s.bundle", doing, time.Now().UTC().Format("20060102-150405")))
	}
	if k.file, err = newFile(where); err == nil {
		k.keeper, err = bundle.NewKeeper(k.file, a.places[0])
	}
	if err != nil {
		return k, fmt.Errorf("%s: nothing was changed: %w; --keep says where copies go, and --keep none keeps none", doing, err)
	}
	return k, nil
}

// newFile makes a file that the user alone may read, by a name that no other has: a number goes before the extension.
func newFile(path string) (f *os.File, err error) {
	ext := filepath.Ext(path)
	for n := 1; ; n++ {
		name := path
		if n > 1 {
			name = fmt.Sprintf("%s-%d%s", strings.TrimSuffix(path, ext), n, ext)
		}
		f, err = os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err == nil {
			return f, syncFolder(filepath.Dir(name))
		}
		if !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
	}
}

// syncFolder makes the names of a folder survive a crash, where the system can do that.
func syncFolder(name string) error {
	dir, err := os.Open(name)
	if err != nil {
		return nil // it may be written, and not read
	}
	_ = dir.Sync()
	return dir.Close()
}

// end ends the bundle, and says where it is. One without plans is removed.
func (a *app) endKeeping(k keeping) error {
	if k.keeper == nil {
		return nil
	}
	err := errors.Join(k.keeper.Close(), k.file.Close())
	if n := k.keeper.Plans(); n == 0 {
		err = errors.Join(err, os.Remove(k.file.Name()))
	} else {
		fmt.Fprintf(a.stderr, "planvault: copies of %s are in %s: planvault import brings them back\n", plural(n, "plan"), printable(k.file.Name(), 0))
	}
	return err
}
