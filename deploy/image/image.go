package main

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// user is whom programs run as: neither root nor anybody else's number.
const user = "65532:65532"

// authorities is where Go looks for the certificates of authorities.
const authorities = "etc/ssl/certs/ca-certificates.crt"

// program is a program for an architecture of Linux.
type program struct {
	name, arch string
	binary     []byte
}

// build compiles a package of the module in dir for each architecture, without cgo and without paths of this machine.
func build(ctx context.Context, dir, pkg string) ([]program, error) {
	tmp, err := os.MkdirTemp("", "image")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(tmp)
	var programs []program
	for _, arch := range []string{"amd64", "arm64"} {
		folder := filepath.Join(tmp, arch) + string(filepath.Separator) // so that go names the program
		cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", folder, pkg)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("build %s for linux/%s: %w\n%s", pkg, arch, err, out)
		}
		files, _ := filepath.Glob(folder + "*")
		if len(files) != 1 {
			return nil, fmt.Errorf("%s has %d programs: name one", pkg, len(files))
		}
		binary, err := os.ReadFile(files[0])
		if err != nil {
			return nil, err
		}
		programs = append(programs, program{filepath.Base(files[0]), arch, binary})
	}
	return programs, nil
}

// indexOf returns the image of a program for all its architectures. It depends on nothing but the programs.
func indexOf(programs []program) (v1.ImageIndex, error) {
	roots, err := layerOf(authorities, 0o444, certificates())
	if err != nil {
		return nil, err
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range programs {
		image, err := imageOf(p, roots)
		if err != nil {
			return nil, err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: p.arch}},
		})
	}
	return index, nil
}

// imageOf returns the image of a program for one architecture: the layer that all programs share, and its own.
func imageOf(p program, roots v1.Layer) (v1.Image, error) {
	layer, err := layerOf(p.name, 0o555, p.binary)
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	if image, err = mutate.AppendLayers(image, roots, layer); err != nil {
		return nil, err
	}
	file, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.OS, file.Architecture = "linux", p.arch
	file.Config.User, file.Config.Entrypoint = user, []string{"/" + p.name}
	return mutate.ConfigFile(image, file)
}

// layerOf returns a layer with one file, of root and without a time.
func layerOf(name string, mode int64, content []byte) (v1.Layer, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	err := w.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: int64(len(content))})
	if err == nil {
		_, err = w.Write(content)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("layer of %s: %w", name, err)
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil }
	return tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer))
}

// certificates returns Mozilla's authorities, at the version in go.sum, without those that are trusted on conditions: a file
// can't state these.
func certificates() []byte {
	var b bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate})
		}
	}
	return b.Bytes()
}

// size is how large an image is for one architecture.
type size struct {
	arch             string
	packed, unpacked int64
}

// sizesOf returns the sizes of an image, in the order of its architectures.
func sizesOf(index v1.ImageIndex) (sizes []size, err error) {
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	for _, m := range manifest.Manifests {
		s := size{arch: m.Platform.Architecture}
		image, err := index.Image(m.Digest)
		if err != nil {
			return nil, err
		}
		layers, err := image.Layers()
		if err != nil {
			return nil, err
		}
		for _, l := range layers {
			packed, err := l.Size()
			if err != nil {
				return nil, err
			}
			content, err := l.Uncompressed()
			if err != nil {
				return nil, err
			}
			unpacked, err := io.Copy(io.Discard, content)
			if err != nil {
				return nil, err
			}
			s.packed, s.unpacked = s.packed+packed, s.unpacked+unpacked
		}
		sizes = append(sizes, s)
	}
	return sizes, nil
}
