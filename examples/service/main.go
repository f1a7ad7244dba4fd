// Command service runs plans that are submitted by HTTP. Copies of it share a vault, and take over the plans of one that dies.
//
//	go run ./examples/service -endpoint https://account.blob.core.windows.net
//	curl -d '{"Whom": "world"}' localhost:8080/plans
package main

import (
	"context"
	"errors"
	"flag"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"

	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"golang.org/x/sync/errgroup"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/plugins/registry"
)

func main() {
	endpoint := flag.String("endpoint", "", "blob endpoint `URL` of the storage account")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cred, err := azidentity.NewDefaultAzureCredential(nil)
	check(err)
	vault, err := azblob.New(ctx, "service", *endpoint, cred, registry.Must(greet), azblob.Options{})
	check(err)
	e, err := engine.New(vault, engine.Options{Fleet: &fleet.Options{}})
	check(err)
	l, err := net.Listen("tcp", "localhost:8080")
	check(err)
	check(errors.Join(serve(ctx, e, l), vault.Close(context.Background())))
}

// serve runs plans until ctx ends. It then takes no more plans, and returns when running actions have ended.
func serve(ctx context.Context, e *engine.Engine, l net.Listener) error {
	server := &http.Server{Handler: submits(e)}
	work, ctx := errgroup.WithContext(ctx) // the first error ends everything
	work.Go(func() error { return e.Run(ctx) })
	work.Go(func() error { <-ctx.Done(); return server.Shutdown(context.WithoutCancel(ctx)) })
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return work.Wait()
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
