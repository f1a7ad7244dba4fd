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

// logCommand shows who changed the vault.
func (a *app) logCommand() *cobra.Command {
	var f storage.AuditFilters
	var made period
	c := a.onVault("log [ID|DAY]", "Show who changed the vault with this tool, and why, newest first",
		func(ctx context.Context, v *azblob.Vault, args []string) (err error) {
			for _, arg := range args {
				if f.Day, err = storage.ParseDay(arg); err == nil {
					continue
				}
				if _, _, err := parseIDOrEnd("plan", arg); err != nil {
					return usageError("%q is neither a day nor the ID of a plan", printable(arg, 50))
				}
				if f.Plan, _, err = a.findPlan(ctx, v, arg); err != nil {
					return err
				}
			}
			f.After, f.Before = made.from(time.Now())
			return a.log(ctx, v.Control(), f)
		})
	c.Args = cobra.MaximumNArgs(1)
	c.Flags().IntVar(&f.Limit, "limit", 20, "the most changes to show, a `NUMBER`; 0 for all")
	made.addFlags(c.Flags(), "made", "changes made")
	return c
}

// auditRow is a change in the log.
type auditRow struct {
	ID     uuid.UUID   `json:"id" help:"the ID of the record"`
	At     time.Time   `json:"at" help:"when the change began"`
	What   string      `json:"what" help:"the command"`
	By     string      `json:"by" help:"who did it, as they said"`
	Why    string      `json:"why,omitempty" help:"why"`
	Plans  []uuid.UUID `json:"plans,omitempty" help:"the plans that it is about"`
	From   string      `json:"from,omitempty" help:"the first day that it is about"` // a day
	To     string      `json:"to,omitempty" help:"the last one"`
	Detail string      `json:"detail,omitempty" help:"the flags"`
	// Result is "began" of a change that is not known to have ended.
	Result string    `json:"result" help:"how it ended; began if that is not known"`
	Stored time.Time `json:"stored" help:"when the record was stored, by the service's clock"`
}

func auditRowOf(d storage.AuditEntry) auditRow {
	row := auditRow{d.ID, utc(d.By.At), d.What, d.By.By, d.By.Why, d.Plans, "", "", d.Detail, d.Result, utc(d.Stored)}
	if !d.From.IsZero() {
		row.From, row.To = d.From.String(), d.To.String()
	}
	if row.Result == "" {
		row.Result = "began"
	}
	return row
}

// about says what the change was about, by the text of a plan's ID.
func (r auditRow) about(text func(uuid.UUID) string) string {
	var words []string
	if len(r.Plans) > 0 {
		words = append(words, text(r.Plans[0]))
	}
	if len(r.Plans) > 1 {
		words = append(words, "and "+count(len(r.Plans)-1)+" more")
	}
	switch {
	case r.From != r.To:
		words = append(words, r.From+".."+r.To)
	case r.From != "":
		words = append(words, r.From)
	}
	return strings.Join(append(words, r.Detail), " ")
}

// logColumns are the columns of log. The short table has no more than the first word of a result: done, failed or began.
func (a *app) logColumns() []column[auditRow] {
	text := func(title string, least int, cell func(auditRow) string) column[auditRow] {
		return column[auditRow]{title: title, least: least, cell: func(r auditRow) string { return printable(cell(r), 0) }}
	}
	result := text("RESULT", 0, func(r auditRow) string { return r.Result })
	result.short = func(r auditRow) string {
		word, _, _ := strings.Cut(r.Result, ":")
		return printable(word, 10)
	}
	about := text("ABOUT", 16, func(r auditRow) string { return r.about(uuid.UUID.String) })
	about.short = func(r auditRow) string { return printable(r.about(shortID), 0) }
	return []column[auditRow]{
		{title: "TIME", cell: func(r auditRow) string { return a.stamp(r.At) }},
		text("WHAT", 8, func(r auditRow) string { return r.What }),
		text("BY", 10, func(r auditRow) string { return r.By }),
		result, about,
		text("WHY", 12, func(r auditRow) string { return r.Why }),
	}
}

// log prints audit entries. Those that can't be read are an error, below the others.
func (a *app) log(ctx context.Context, v storage.Control, f storage.AuditFilters) error {
	found, unreadable := storage.Collect(v.AuditEntries(ctx, f))
	if unreadable != nil && len(found) == 0 {
		return unreadable
	}
	var rows []auditRow
	for _, d := range found {
		rows = append(rows, auditRowOf(d))
	}
	if err := newColumns(a, a.logColumns()).print(rows); err != nil {
		return err
	}
	return unreadable
}
