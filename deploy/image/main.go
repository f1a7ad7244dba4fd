// Command image builds a container image of a Go program for linux/amd64 and linux/arm64, without a container engine:
//
//	go -C deploy run ./image -dir .. -push registry.example.com/planvault:v1 ./cmd/planvault
//	go -C deploy run ./image -dir ~/src/orders -layout /tmp/orders ./cmd/orders
//
// The image has the program, certificates of authorities, and nothing else. It runs as a user without rights, and needs no
// writable file system. The same sources and the same Go give the same digest.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	dir := flag.String("dir", ".", "`folder` of the program's module")
	push := flag.String("push", "", "push the image under this `NAME:TAG`, with the login of docker's configuration")
	out := flag.String("layout", "", "write the image to this `folder`, as an OCI layout")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "image: it takes one package, such as ./cmd/planvault")
		os.Exit(2)
	}
	if err := run(ctx, *dir, flag.Arg(0), *push, *out); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// run builds the image of a package, tells its digest and sizes, and puts it where it is asked to.
func run(ctx context.Context, dir, pkg, push, out string) error {
	programs, err := build(ctx, dir, pkg)
	if err != nil {
		return err
	}
	index, err := indexOf(programs)
	if err != nil {
		return err
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	sizes, err := sizesOf(index)
	if err != nil {
		return err
	}
	for _, s := range sizes {
		fmt.Printf("linux/%s: %.1f MB to pull, %.1f MB unpacked\n", s.arch, float64(s.packed)/1e6, float64(s.unpacked)/1e6)
	}
	if err := publish(ctx, index, push, out); err != nil {
		return err
	}
	fmt.Println(digest)
	return nil
}

// publish writes an image to a folder and pushes it under a name, if they are given.
func publish(ctx context.Context, index v1.ImageIndex, push, out string) error {
	if out != "" {
		if _, err := layout.Write(out, index); err != nil {
			return fmt.Errorf("write the layout: %w", err)
		}
	}
	if push == "" {
		return nil
	}
	ref, err := name.ParseReference(push)
	if err != nil {
		return err
	}
	if err := remote.WriteIndex(ref, index, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
		return fmt.Errorf("push to %s: %w", ref, err)
	}
	return nil
}
