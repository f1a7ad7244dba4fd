package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/examples/engine/plugins"
	"github.com/planvault/azblob/plugins/registry"
)

// opened is a vault with everything that must be closed after it.
type opened struct {
	*azblob.Vault
	reg *registry.Register
	// title names the place of the plans, without any secret.
	title string
	// beside is set if another process serves the emulator.
	beside  bool
	closers []func() error
}

// close closes everything that was opened, the last first.
func (o *opened) close() error {
	var errs []error
	for i := range o.closers {
		errs = append(errs, o.closers[len(o.closers)-1-i]())
	}
	return errors.Join(errs...)
}

// open opens the vault that the flags name, with plugins that write into the folder of -data. It calls say
// when an account does not answer.
func open(ctx context.Context, c config, say func(string)) (_ *opened, err error) {
	o := &opened{reg: registry.New()}
	defer func() {
		if err != nil {
			err = errors.Join(err, o.close())
		}
	}()
	if err := o.registerPlugins(c.data); err != nil {
		return nil, err
	}
	switch {
	case c.endpoint != "":
		account := accountAt(c.endpoint)
		o.title = fmt.Sprintf("the account %s, prefix %s", account, c.prefix)
		cred, err := credential(c.msi)
		if err != nil {
			return nil, err
		}
		o.Vault, err = azblob.New(ctx, c.prefix, c.endpoint, cred, o.reg, o.watch(account, say))
		if err != nil {
			return nil, err
		}
	case c.connectionString != "":
		account := accountOf(c.connectionString)
		o.title = fmt.Sprintf("the account %s, prefix %s", account, c.prefix)
		if o.Vault, err = azblob.NewFromConnectionString(ctx, c.prefix, c.connectionString, o.reg, o.watch(account, say)); err != nil {
			return nil, err
		}
	default:
		if err := o.openData(ctx, c, say); err != nil {
			return nil, err
		}
	}
	o.closers = append(o.closers, func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		return o.Vault.Close(ctx)
	})
	return o, nil
}

// registerPlugins starts the service that the built-in plan releases, and registers the plugins.
func (o *opened) registerPlugins(data string) error {
	work, err := o.openFolder(filepath.Join(data, "work"))
	if err != nil {
		return err
	}
	regions, err := o.openFolder(filepath.Join(data, "service"))
	if err != nil {
		return err
	}
	base, closeService, err := service{regions}.listen()
	if err != nil {
		return fmt.Errorf("serve the demonstration's service: %w", err)
	}
	o.closers = append(o.closers, closeService)
	var errs []error
	for _, p := range pluginsIn(work.Name(), work, base) {
		errs = append(errs, o.reg.Register(p))
	}
	return errors.Join(errs...)
}

// pluginsIn returns the plugins that plans may use. They work in a folder and reach the service.
func pluginsIn(dir string, root *os.Root, service string) []engine.Plugin {
	return []engine.Plugin{
		engine.Func("command", plugins.Command{Dir: dir}.Run),
		engine.Func("file", plugins.File{Root: root}.Run),
		engine.Func("http", plugins.HTTP{Base: service}.Run),
		engine.Func("sleep", plugins.Sleep{}.Run),
	}
}

// requestOf returns an empty request of a plugin.
func requestOf(name string) (any, error) {
	var known []string
	for _, p := range pluginsIn("", nil, "") {
		if p.Name() == name {
			return p.Request(), nil
		}
		known = append(known, p.Name())
	}
	return nil, fmt.Errorf("there is no plugin %q; known are %s", name, strings.Join(known, ", "))
}

// watch returns the option that lets the vault report whether an account answers.
func (o *opened) watch(account string, say func(string)) azblob.Option {
	w := newWatch(account, say)
	o.closers = append(o.closers, w.stop)
	return azblob.WithObserver(w.observer())
}

// accountAt returns the account of an endpoint, without secrets.
func accountAt(endpoint string) string {
	u, err := url.Parse(endpoint)
	if err != nil {
		return "of -endpoint"
	}
	return strings.TrimSuffix(u.Host+u.Path, "/")
}

// accountOf returns the account of a connection string.
func accountOf(connectionString string) string {
	fields := map[string]string{"EndpointSuffix": "core.windows.net"}
	for field := range strings.SplitSeq(connectionString, ";") {
		name, value, _ := strings.Cut(field, "=")
		fields[strings.TrimSpace(name)] = value
	}
	if endpoint := fields["BlobEndpoint"]; endpoint != "" {
		return accountAt(endpoint)
	}
	return fields["AccountName"] + ".blob." + fields["EndpointSuffix"]
}

func (o *opened) openFolder(path string) (*os.Root, error) {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return nil, fmt.Errorf("make the folder of -data: %w", err)
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, fmt.Errorf("open the folder of -data: %w", err)
	}
	o.closers = append(o.closers, root.Close)
	return root, nil
}

// openData opens the vault on the emulator in the folder, which this process or another one serves.
func (o *opened) openData(ctx context.Context, c config, say func(string)) error {
	f, err := openFolder(c.data, say)
	if err != nil {
		return err
	}
	o.closers = append(o.closers, f.close)
	o.title = fmt.Sprintf("the folder %s (an emulator in this process), prefix %s", c.data, c.prefix)
	if o.beside = !f.serves(); o.beside {
		o.title = fmt.Sprintf("the folder %s (through the process that serves it), prefix %s", c.data, c.prefix)
	}
	o.Vault, err = azblob.NewFromConnectionString(ctx, c.prefix, emulator.New().ConnectionString(), o.reg, azblob.WithTransport(f), o.watch("the process that serves "+c.data, say))
	return err
}

// credential returns the credential to sign in with. An ID with slashes is a resource ID.
func credential(msi string) (azcore.TokenCredential, error) {
	if msi == "" {
		return azidentity.NewDefaultAzureCredential(nil)
	}
	var id azidentity.ManagedIDKind = azidentity.ClientID(msi)
	if strings.Contains(msi, "/") {
		id = azidentity.ResourceID(msi)
	}
	return azidentity.NewManagedIdentityCredential(&azidentity.ManagedIdentityCredentialOptions{ID: id})
}
