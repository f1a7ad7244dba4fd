package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/service"
	"github.com/spf13/pflag"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/merge"
	"github.com/planvault/azblob/plugins/registry"
)

// connection says where a vault is and how to log in. Its JSON is that of a profile.
type connection struct {
	Endpoint         string `json:"endpoint,omitempty"`
	ConnectionString string `json:"connectionString,omitempty"`
	Prefix           string `json:"prefix,omitempty"`
	ServiceVersion   string `json:"serviceVersion,omitempty"`

	profile string
	kind    string // what its flags begin with: "" or "to-"
}

// addFlags adds the flags of a connection. All of them begin with kind.
func (c *connection) addFlags(flags *pflag.FlagSet, kind string) {
	c.kind = kind
	flags.Var((*given)(&c.Endpoint), kind+"endpoint", "`URL` of the account: https://account.blob.core.windows.net")
	flags.Var((*given)(&c.ConnectionString), kind+"connection-string", "connection string of the account (`TEXT`), or UseDevelopmentStorage=true for an emulator here")
	flags.Var((*given)(&c.Prefix), kind+"prefix", "`NAME` of the vault, with which its containers begin")
	flags.Var((*given)(&c.ServiceVersion), kind+"service-version", "`DATE` of the service's API, for a service that refuses the default with 400")
	flags.Var((*given)(&c.profile), kind+"profile", "`NAME` of a profile that has what the flags leave out (planvault help connect)")
}

// given is the value of a flag that must not be empty: an empty one, perhaps of a variable that was not set, would count as
// not given. A vault would be that of the environment, and a purge would remove plans of every name.
type given string

func (g *given) String() string { return string(*g) }
func (g *given) Type() string   { return "string" }

func (g *given) Set(text string) error {
	if text == "" {
		return errors.New("it is empty; leave the flag out if you mean that")
	}
	*g = given(text)
	return nil
}

// resolve returns the connection that flags, profile and environment name. Flags come before the profile that
// --profile names, that before the environment, and the environment before the profile "default". A second vault, that
// of --to-..., has no default: a command that copies must not copy a vault to itself.
func (a *app) resolve(c connection) (connection, error) {
	name := c.profile
	if name == "" {
		name = a.getenv(c.variable("PROFILE"))
	}
	if name != "" {
		p, err := a.profileNamed(name)
		if err != nil {
			return c, err
		}
		c = c.fill(p)
	}
	c = c.fill(a.environment(c))
	if c.kind == "" && (!c.hasAccount() || c.Prefix == "") {
		profiles, err := a.readProfiles()
		if err != nil {
			return c, err
		}
		c = c.fill(profiles[defaultProfile])
	}
	switch {
	case !c.hasAccount():
		return c, usageError("no account: give --%sendpoint or --%sconnection-string, or a profile (planvault help connect)", c.kind, c.kind)
	case c.Prefix == "":
		return c, usageError("no vault: give --%sprefix, the name with which the vault's containers begin", c.kind)
	case c.Endpoint != "" && c.ConnectionString != "":
		return c, usageError("--%sendpoint and --%sconnection-string exclude each other", c.kind, c.kind)
	}
	return c, nil
}

// variable returns the name of an environment variable of the connection, such as PLANVAULT_TO_ENDPOINT.
func (c connection) variable(what string) string {
	return "PLANVAULT_" + strings.ToUpper(strings.ReplaceAll(c.kind, "-", "_")) + what
}

// environment returns the connection of the environment of the same kind as c.
func (a *app) environment(c connection) connection {
	e := connection{
		Endpoint:         a.getenv(c.variable("ENDPOINT")),
		ConnectionString: a.getenv(c.variable("CONNECTION_STRING")),
		Prefix:           a.getenv(c.variable("PREFIX")),
		ServiceVersion:   a.getenv(c.variable("SERVICE_VERSION")),
	}
	if c.kind == "" && !e.hasAccount() {
		e.ConnectionString = a.getenv("AZURE_STORAGE_CONNECTION_STRING")
	}
	return e
}

func (c connection) hasAccount() bool { return c.Endpoint != "" || c.ConnectionString != "" }

// hasSecret reports whether the connection has a key or a signature.
func (c connection) hasSecret() bool { return c.ConnectionString != "" || c.hasSignature() }

// public returns flags that lead to a vault that was resolved, without secrets. Where the profiles and the environment are
// the same, they log in as the connection does.
func (a *app) public(c connection) []string {
	name := cmp.Or(a.connection.profile, a.getenv("PLANVAULT_PROFILE"), defaultProfile)
	profiles, _ := a.readProfiles() // it was resolved, so they can be read if they are needed
	flags := []string{"--endpoint", c.account()}
	switch p := profiles[name]; {
	case !a.connection.hasAccount() && p.hasAccount() && p.Endpoint == c.Endpoint && p.ConnectionString == c.ConnectionString:
		flags = []string{"--profile", name}
	case c.fields()["usedevelopmentstorage"] != "":
		flags = []string{"--connection-string", "UseDevelopmentStorage=true"}
	}
	flags = append(flags, "--prefix", c.Prefix)
	if c.ServiceVersion != "" {
		flags = append(flags, "--service-version", c.ServiceVersion)
	}
	return flags
}

// fill returns the connection with what it lacks from another one. An account is taken as a whole. An endpoint alone takes
// the login of the same account, so that a command that names its vault and has no secret works beside one.
func (c connection) fill(from connection) connection {
	if !c.hasAccount() || !c.hasSecret() && from.hasSecret() && c.account() == from.account() {
		c.Endpoint, c.ConnectionString = from.Endpoint, from.ConnectionString
	}
	c.Prefix = cmp.Or(c.Prefix, from.Prefix)
	c.ServiceVersion = cmp.Or(c.ServiceVersion, from.ServiceVersion)
	return c
}

// open opens a vault that should have containers.
func (a *app) open(ctx context.Context, c connection, options ...azblob.Options) (*azblob.Vault, error) {
	s := new(site)
	v, err := a.openNew(ctx, c, append(options, azblob.Options{Observer: azblob.Tee(a.observer(), s.observer())})...)
	if err != nil {
		return nil, err
	}
	c, _ = a.resolve(c) // it was resolved before
	s.vault, s.prefix, s.place = v, c.Prefix, c.String()
	a.sites = append(a.sites, s)
	return v, nil
}

// openNew opens a vault that may have no containers, without plugins: requests and responses stay as they are stored.
func (a *app) openNew(ctx context.Context, c connection, options ...azblob.Options) (*azblob.Vault, error) {
	c, err := a.resolve(c)
	if err != nil {
		return nil, err
	}
	v, login, err := c.dial(ctx, &a.outage, nil, slices.Concat([]azblob.Options{{Observer: a.observer()}}, a.options, options))
	if err != nil {
		return nil, err
	}
	a.login = login
	a.vaults, a.places = append(a.vaults, v), append(a.places, c.String())
	return v, nil
}

// observer returns the observer of all vaults of the run.
func (a *app) observer() azblob.Observer {
	return azblob.Tee(a.meter.observer(), a.outage.observer(), a.unlogged())
}

// dial opens the vault with the plugins of a registry, which may be nil. login is what makes the tokens of its
// requests, or nil if they have none.
func (c connection) dial(ctx context.Context, o *outage, reg *registry.Register, options []azblob.Options) (v *azblob.Vault, login azcore.TokenCredential, err error) {
	options = slices.Concat([]azblob.Options{{ClientOptions: policy.ClientOptions{APIVersion: c.ServiceVersion}}}, options)
	if c.ConnectionString != "" {
		v, err = azblob.NewFromConnectionString(ctx, c.Prefix, c.ConnectionString, reg, merge.Fields(options...))
		return v, nil, err
	}
	if c.hasSignature() {
		v, err = azblob.NewFromURL(ctx, c.Prefix, c.Endpoint, reg, merge.Fields(options...))
		return v, nil, err
	}
	cred, err := azidentity.NewDefaultAzureCredential(nil)
	if err != nil {
		return nil, nil, fmt.Errorf("log in: %w", err)
	}
	v, err = azblob.New(ctx, c.Prefix, c.Endpoint, watchedLogin{cred, o}, reg, merge.Fields(options...))
	return v, cred, err
}

// service returns a client of the account, to remove containers. Vaults have their own.
func (c connection) service(network policy.Transporter) (*service.Client, error) {
	options := &service.ClientOptions{ClientOptions: policy.ClientOptions{Transport: network}}
	if c.fields()["usedevelopmentstorage"] != "" {
		login, _, _ := strings.Cut(emulator.New(emulator.Options{NoLog: true}).ConnectionString(), "BlobEndpoint=")
		c.ConnectionString = login + "BlobEndpoint=http://127.0.0.1:10000/" + emulator.DefaultAccount
	}
	if c.ConnectionString != "" {
		return service.NewClientFromConnectionString(c.ConnectionString, options)
	}
	if c.hasSignature() {
		return service.NewClientWithNoCredential(c.Endpoint, options)
	}
	cred, err := azidentity.NewDefaultAzureCredential(nil)
	if err != nil {
		return nil, fmt.Errorf("log in: %w", err)
	}
	return service.NewClient(c.Endpoint, cred, options)
}

// String names the vault without any secret.
func (c connection) String() string { return c.account() + ", prefix " + c.Prefix }

// account names the account without any secret.
func (c connection) account() string {
	if c.Endpoint != "" {
		return withoutQuery(c.Endpoint)
	}
	fields := c.fields()
	switch {
	case fields["usedevelopmentstorage"] != "":
		return "the emulator on this machine"
	case fields["blobendpoint"] != "":
		return withoutQuery(fields["blobendpoint"])
	case fields["endpointsuffix"] == "":
		fields["endpointsuffix"] = "core.windows.net"
	}
	return "https://" + fields["accountname"] + ".blob." + fields["endpointsuffix"]
}

// withoutQuery returns an endpoint without its query, which may have a signature.
func withoutQuery(endpoint string) string {
	endpoint, _, _ = strings.Cut(endpoint, "?")
	return strings.TrimSuffix(endpoint, "/")
}

// login says how the connection logs in.
func (c connection) login() string {
	switch {
	case c.hasSignature(), c.fields()["sharedaccesssignature"] != "":
		return "shared access signature"
	case c.Endpoint != "":
		return "identity of the environment"
	}
	return "account key"
}

// hasSignature reports whether the endpoint has a shared access signature.
func (c connection) hasSignature() bool {
	u, err := url.Parse(c.Endpoint)
	return err == nil && u.Query().Has("sig")
}

// fields returns the fields of the connection string. Upper and lower case in their names are the same.
func (c connection) fields() map[string]string {
	fields := map[string]string{}
	for field := range strings.SplitSeq(c.ConnectionString, ";") {
		name, value, _ := strings.Cut(field, "=")
		fields[strings.ToLower(strings.TrimSpace(name))] = strings.TrimSpace(value)
	}
	return fields
}
