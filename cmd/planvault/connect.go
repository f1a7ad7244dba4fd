package main

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/spf13/pflag"

	"github.com/planvault/azblob"
)

// connection says where a vault is and how to log in. Its JSON is that of a profile.
type connection struct {
	Endpoint         string `json:"endpoint,omitempty"`
	ConnectionString string `json:"connectionString,omitempty"`
	Prefix           string `json:"prefix,omitempty"`

	profile string
	kind    string // what its flags begin with: "" or "to-"
}

// addFlags adds the flags of a connection. All of them begin with kind.
func (c *connection) addFlags(flags *pflag.FlagSet, kind string) {
	c.kind = kind
	flags.StringVar(&c.Endpoint, kind+"endpoint", "", "blob endpoint `URL`, such as https://account.blob.core.windows.net; a URL with a shared access signature logs in with that, any other with the identity of the environment (azidentity)")
	flags.StringVar(&c.ConnectionString, kind+"connection-string", "", "connection string `TEXT` of the account, or UseDevelopmentStorage=true for an emulator on this machine")
	flags.StringVar(&c.Prefix, kind+"prefix", "", "`NAME` of the vault: what its containers' names begin with")
	flags.StringVar(&c.profile, kind+"profile", "", "take what the flags leave out from the profile `NAME`, which planvault profile keeps")
}

// resolve returns the connection that flags, profile and environment name. Flags come before the profile that
// --profile names, the environment before the profile "default".
func (a *app) resolve(c connection) (connection, error) {
	profiles, err := a.readProfiles()
	if err != nil {
		return c, err
	}
	chosen := c.profile
	if chosen == "" && c.kind == "" {
		chosen = a.getenv("PLANVAULT_PROFILE")
	}
	if chosen != "" {
		p, ok := profiles[chosen]
		if !ok {
			return c, usageError("there is no profile %q in %s; planvault profile list shows them", chosen, a.profilePath())
		}
		c = c.fill(p)
	}
	if c.kind == "" {
		c = c.fill(a.environment()).fill(profiles["default"])
	}
	switch {
	case c.Endpoint == "" && c.ConnectionString == "":
		return c, usageError("no account: give --%sendpoint or --%sconnection-string, or a profile (planvault help connect)", c.kind, c.kind)
	case c.Prefix == "":
		return c, usageError("no vault: give --%sprefix, the name with which the vault's containers begin", c.kind)
	case c.Endpoint != "" && c.ConnectionString != "":
		return c, usageError("--%sendpoint and --%sconnection-string exclude each other", c.kind, c.kind)
	}
	return c, nil
}

// environment returns the connection of the environment.
func (a *app) environment() connection {
	c := connection{Endpoint: a.getenv("PLANVAULT_ENDPOINT"), ConnectionString: a.getenv("PLANVAULT_CONNECTION_STRING"), Prefix: a.getenv("PLANVAULT_PREFIX")}
	if c.Endpoint == "" && c.ConnectionString == "" {
		c.ConnectionString = a.getenv("AZURE_STORAGE_CONNECTION_STRING")
	}
	return c
}

// fill returns the connection with what it lacks from another one. An account is taken as a whole.
func (c connection) fill(from connection) connection {
	if c.Endpoint == "" && c.ConnectionString == "" {
		c.Endpoint, c.ConnectionString = from.Endpoint, from.ConnectionString
	}
	if c.Prefix == "" {
		c.Prefix = from.Prefix
	}
	return c
}

// open opens a vault without plugins: requests and responses stay as they are stored.
func (a *app) open(ctx context.Context, c connection) (*azblob.Vault, error) {
	c, err := a.resolve(c)
	if err != nil {
		return nil, err
	}
	v, err := c.dial(ctx, append([]azblob.Option{azblob.WithObserver(a.meter.observer())}, a.options...))
	if err != nil {
		return nil, err
	}
	a.vaults = append(a.vaults, v)
	return v, nil
}

func (c connection) dial(ctx context.Context, options []azblob.Option) (*azblob.Vault, error) {
	if c.ConnectionString != "" {
		return azblob.NewFromConnectionString(ctx, c.Prefix, c.ConnectionString, nil, options...)
	}
	if u, err := url.Parse(c.Endpoint); err == nil && u.Query().Has("sig") {
		return azblob.NewFromURL(ctx, c.Prefix, c.Endpoint, nil, options...)
	}
	cred, err := azidentity.NewDefaultAzureCredential(nil)
	if err != nil {
		return nil, fmt.Errorf("log in: %w", err)
	}
	return azblob.New(ctx, c.Prefix, c.Endpoint, cred, nil, options...)
}

// String names the vault without any secret.
func (c connection) String() string {
	if c.Endpoint != "" {
		endpoint, _, _ := strings.Cut(c.Endpoint, "?")
		return strings.TrimSuffix(endpoint, "/") + ", prefix " + c.Prefix
	}
	fields := map[string]string{"EndpointSuffix": "core.windows.net"}
	for field := range strings.SplitSeq(c.ConnectionString, ";") {
		name, value, _ := strings.Cut(field, "=")
		fields[strings.TrimSpace(name)] = value
	}
	where := fields["BlobEndpoint"]
	switch {
	case fields["UseDevelopmentStorage"] != "":
		where = "the emulator on this machine"
	case where == "":
		where = "https://" + fields["AccountName"] + ".blob." + fields["EndpointSuffix"]
	}
	return where + ", prefix " + c.Prefix
}
