package main

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/cmd/planvault/internal/human"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// who is what the flags say about who changes a vault, and why.
type who struct{ as, reason string }

// signed adds the flags that say who makes a change, and why, to a command.
func (a *app) signed(c *cobra.Command) *cobra.Command {
	addText(c.Flags(), "as", "`NAME` of who makes the change, for the log (default: that of the login, or user@host)", &a.who.as, workflow.MaxBy)
	addText(c.Flags(), "reason", "`TEXT` that says why, for the log", &a.who.reason, workflow.MaxWhy)
	act := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		a.told = toldOf(c, a.args)
		return act(c, args)
	}
	return c
}

// addText adds a flag of one line of text, of so many bytes at most.
func addText(flags *pflag.FlagSet, name, usage string, into *string, most int) {
	flags.Func(name, usage, func(text string) error {
		text = strings.TrimSpace(text)
		if err := workflow.CheckAttribution(workflow.Attribution{Why: text}); err != nil || len(text) > most || text == "" {
			return fmt.Errorf("give one line of 1 to %d bytes", most)
		}
		*into = text
		return nil
	})
}

// toldOf returns the flags of a command's own among arguments. Those that select a vault, which may have secrets, are not
// among them.
func toldOf(c *cobra.Command, args []string) string {
	own := c.LocalNonPersistentFlags()
	var told []string
	for i := 0; i < len(args) && args[i] != "--"; i++ {
		name, isFlag := strings.CutPrefix(args[i], "--")
		name, value, _ := strings.Cut(name, "=")
		f := c.Flags().Lookup(name)
		if !isFlag || f == nil {
			continue
		}
		arg := args[i]
		if f.NoOptDefVal == "" && value == "" && i+1 < len(args) && !strings.HasSuffix(arg, "=") {
			i++
			value = args[i]
			arg += " " + value
		}
		switch name { // requests and results may hold secrets
		case "request":
			action, _, _ := strings.Cut(value, "=")
			arg = "--request " + action + "=…"
		case "result":
			arg = "--result …"
		}
		if own.Lookup(name) != nil && name != "as" && name != "reason" && !strings.HasPrefix(name, "to-") {
			told = append(told, arg)
		}
	}
	return strings.Join(told, " ")
}

// attributionOf returns who makes a change, and why.
func (a *app) attributionOf(ctx context.Context) workflow.Attribution {
	if a.who.as == "" {
		a.who.as = clip(cmp.Or(a.loginName(ctx), a.userName()), workflow.MaxBy)
	}
	return workflow.Attribution{By: a.who.as, Why: a.who.reason}
}

// submits returns a context for the creation of plans by whoever makes a change, from this process's user and host, unless
// they are all that is known of who it is.
func (a *app) submits(ctx context.Context) context.Context {
	actor := workflow.Actor{By: a.attributionOf(ctx).By, From: clip(a.userName(), workflow.MaxBy)}
	if actor.From == actor.By {
		actor.From = ""
	}
	return storage.WithActor(ctx, actor)
}

// asks returns who makes a change of a vault, and why, for the library, which keeps the log. It is an error if there should be a
// vault and is none.
func (a *app) asks(ctx context.Context, v storage.Vault) (workflow.Attribution, error) {
	return a.attributionOf(ctx), a.expectVault(ctx, v)
}

// auditEntry makes a change, and has it in the log with the flags that were given.
func (a *app) auditEntry(ctx context.Context, v storage.Vault, d storage.AuditEntry, do func(ctx context.Context) error) error {
	if err := a.expectVault(ctx, v); err != nil {
		return err
	}
	d.By, d.Detail = a.attributionOf(ctx), strings.TrimSpace(d.Detail+" "+a.told)
	return storage.Audit(ctx, v, d, do)
}

// unlogged returns an observer that says that the log could not be written. The change is made all the same.
func (a *app) unlogged() azblob.Observer {
	return azblob.Observer{OperationStart: func(ctx context.Context, o azblob.Operation) (context.Context, func(azblob.OperationEnd)) {
		return ctx, func(e azblob.OperationEnd) {
			if o.Name == "Record" && e.Err != nil && !errors.Is(e.Err, context.Canceled) {
				a.complain(fmt.Errorf("the log does not have all of this change, which was made all the same: %w", e.Err))
			}
		}
	}}
}

// about returns the audit entry of a change of these plans.
func about(what string, plans ...uuid.UUID) storage.AuditEntry {
	return storage.AuditEntry{What: what, Plans: plans}
}

// clip returns one printable line of a text, of so many bytes at most.
func clip(text string, most int) string {
	text = strings.TrimSpace(human.Line(strings.ToValidUTF8(text, "\ufffd"), 0))
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-len("…")], "") + "…"
}

// userName returns the user and the host of this process.
func (a *app) userName() string {
	if a.whoami == nil {
		return ""
	}
	return a.whoami()
}

// userAtHost returns the name of the process's user, and that of the machine.
func userAtHost() string {
	name := os.Getenv("USER")
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	host, _ := os.Hostname()
	return name + "@" + host
}

// storageScope is what tokens for the Blob service are asked for.
const storageScope = "https://storage.azure.com/.default"

// loginName returns the name that the token of the login tells, or "". The login keeps its token, so that asking for it
// sends nothing once the vault has sent a request.
func (a *app) loginName(ctx context.Context) string {
	if a.login == nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	token, err := a.login.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{storageScope}})
	if err != nil {
		return ""
	}
	return nameIn(token)
}

// nameIn returns the name in an access token, or "". The token is not verified: whoever has it may say anything, and the
// service alone decides what it allows.
func nameIn(token azcore.AccessToken) string {
	parts := strings.Split(token.Token, ".")
	if len(parts) != 3 || len(parts[1]) > 64<<10 {
		return ""
	}
	text, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(parts[1], "="))
	if err != nil {
		return ""
	}
	var claims struct {
		UPN    string `json:"upn"`
		Unique string `json:"unique_name"`
		App    string `json:"app_displayname"`
		AppID  string `json:"appid"`
		Object string `json:"oid"`
	}
	if json.Unmarshal(text, &claims) != nil {
		return ""
	}
	return clip(cmp.Or(claims.UPN, claims.Unique, claims.App, claims.AppID, claims.Object), workflow.MaxBy)
}
