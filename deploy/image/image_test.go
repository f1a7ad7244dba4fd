package main

import (
	"archive/tar"
	"bytes"
	"crypto/x509"
	"errors"
	"io"
	"io/fs"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/planvault/azblob/internal/efforttest"
)

// TestImage pushes an image to a registry and looks at what a node would pull. The layout has the same.
func TestImage(t *testing.T) {
	server := httptest.NewServer(registry.New())
	defer server.Close()
	ref, err := name.ParseReference(strings.TrimPrefix(server.URL, "http://") + "/tool:v1")
	must(t, err)
	index, err := indexOf([]program{{"tool", "amd64", []byte("x")}, {"tool", "arm64", []byte("a")}})
	must(t, err)
	folder := t.TempDir()
	must(t, publish(t.Context(), index, ref.Name(), folder))
	pushed, err := remote.Index(ref)
	must(t, err)
	written, err := layout.ImageIndexFromPath(folder)
	must(t, err)
	was, err := pushed.IndexManifest()
	must(t, err)
	is, err := written.IndexManifest()
	must(t, err)
	if !reflect.DeepEqual(was, is) || len(is.Manifests) != 2 {
		t.Errorf("the registry has\n%+v\nthe layout\n%+v", was, is)
	}
	for arch, binary := range map[string]string{"amd64": "x", "arm64": "a"} {
		image, err := remote.Image(ref, remote.WithPlatform(v1.Platform{OS: "linux", Architecture: arch}))
		must(t, err)
		must(t, validate.Image(image))
		file, err := image.ConfigFile()
		must(t, err)
		if file.OS != "linux" || file.Architecture != arch || file.Config.User != user || len(file.Config.Entrypoint) != 1 || file.Config.Entrypoint[0] != "/tool" {
			t.Errorf("%s: %+v", arch, file)
		}
		files := unpacked(t, image)
		if got := files["tool"]; string(got.content) != binary || got.mode != 0o555 {
			t.Errorf("%s: the program is %q, %o", arch, got.content, got.mode)
		}
		if got := files[authorities]; !x509.NewCertPool().AppendCertsFromPEM(got.content) || bytes.Count(got.content, []byte("BEGIN")) < 100 || got.mode != 0o444 {
			t.Errorf("%s: the certificates are %.40q…, %o", arch, got.content, got.mode)
		}
		if len(files) != 2 {
			t.Errorf("%s: there are %d files", arch, len(files))
		}
	}
}

// file is a file of an image.
type file struct {
	content []byte
	mode    fs.FileMode
}

// unpacked returns the files of an image. All are root's and have no time.
func unpacked(t *testing.T, image v1.Image) map[string]file {
	t.Helper()
	r := mutate.Extract(image)
	defer r.Close()
	files := map[string]file{}
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		must(t, err)
		content, err := io.ReadAll(tr)
		must(t, err)
		if h.Uid != 0 || h.Gid != 0 || h.ModTime.Unix() != 0 {
			t.Errorf("%s is of %d:%d, from %v", h.Name, h.Uid, h.Gid, h.ModTime)
		}
		files[h.Name] = file{content, h.FileInfo().Mode()}
	}
}

// TestBuiltTwice builds the images of the tool and of the example twice, with two build caches. Their digests are the same, and
// the programs run on nothing but their image, as its user.
func TestBuiltTwice(t *testing.T) {
	if !efforttest.Long() {
		t.Skip("left out without PLANVAULT_LONG: it compiles everything twice for two architectures")
	}
	packages := []string{"./cmd/planvault", "./examples/orders"}
	var first []v1.ImageIndex
	for _, pkg := range packages {
		first = append(first, built(t, pkg))
	}
	t.Setenv("GOCACHE", t.TempDir())
	for i, pkg := range packages {
		was, err := first[i].Digest()
		must(t, err)
		is, err := built(t, pkg).Digest()
		must(t, err)
		if was != is {
			t.Errorf("%s: %s, then %s", pkg, was, is)
		}
		sizes, err := sizesOf(first[i])
		must(t, err)
		for _, s := range sizes {
			t.Logf("%s, linux/%s: %.1f MB to pull, %.1f MB unpacked", pkg, s.arch, float64(s.packed)/1e6, float64(s.unpacked)/1e6)
		}
		runs(t, first[i])
	}
}

func built(t *testing.T, pkg string) v1.ImageIndex {
	t.Helper()
	programs, err := build(t.Context(), "../..", pkg)
	must(t, err)
	index, err := indexOf(programs)
	must(t, err)
	return index
}

// runs runs the program of an image for amd64 with -h, on a root that has the image's files alone.
func runs(t *testing.T, index v1.ImageIndex) {
	t.Helper()
	manifest, err := index.IndexManifest()
	must(t, err)
	image, err := index.Image(manifest.Manifests[0].Digest)
	must(t, err)
	config, err := image.ConfigFile()
	must(t, err)
	if os.Getuid() != 0 || config.Architecture != runtime.GOARCH {
		t.Log("not run: that takes root on amd64")
		return
	}
	root := t.TempDir()
	for dir := root; len(dir) > len(os.TempDir()); dir = filepath.Dir(dir) {
		must(t, os.Chmod(dir, 0o755)) // for the image's user
	}
	for path, f := range unpacked(t, image) {
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(root, path)), 0o755))
		must(t, os.WriteFile(filepath.Join(root, path), f.content, f.mode))
	}
	uid, _, _ := strings.Cut(config.Config.User, ":")
	id, err := strconv.ParseUint(uid, 10, 32)
	must(t, err)
	cmd := exec.CommandContext(t.Context(), config.Config.Entrypoint[0], "-h")
	cmd.Dir, cmd.Env = "/", []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: uint32(id), Gid: uint32(id)}}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
