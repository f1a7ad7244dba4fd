// Package report shows a plan to people: [Write] makes a self-contained HTML page of it, and [NewOutline] the
// tree that the page and other displays draw. The plan may hold anything, and may come from any vault.
package report

import (
	"bufio"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"errors"
	"html/template"
	"io"
	"math"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/workflow"
)

// Options say how [Write] shows a plan. The zero value makes a page that stands alone.
type Options struct {
	// Now is the time up to which the page draws what is running. Default: time.Now().
	Now time.Time
	// Site is the site of which the page is a part. Default: none.
	Site *Site
	// PlanURL returns the address of another plan's page, for the plan that this one was forked from. Default: the
	// page has the plan's ID without a link.
	PlanURL func(id uuid.UUID) string
	// OwnerName is the name of the node that owns the plan. Default: the page has its ID alone.
	OwnerName string
	// Stuck says why the plan is stuck. Default: the page does not say that it is.
	Stuck string
	// Turn says for which turn the plan waits. Default: the page does not say that it does.
	Turn string
	// Commands are commands for a shell that the reader may want to run. Default: none.
	Commands []Command
	// Scripts are the addresses of scripts that a server adds, on its own origin, to keep the page of an open plan
	// fresh and to copy texts. Default: the page has no script and allows none.
	Scripts []string
	// PieceURL returns the address of a page with some actions of a group, the first of which is number from. With it, the
	// page of a plan with more than 1,000 actions has those that failed or run, and leads to the others. Default: the page
	// has all actions.
	PieceURL func(group string, from int) string
	// Piece is the group of which the page shows 500 actions, and From the number of the first one, from 0. Default: the
	// page shows the whole plan.
	Piece string
	From  int
	// Reveal shows the secrets of the plan. Default: it is shown as Plan.Redacted returns it.
	Reveal bool
}

// Site is what surrounds a page that a server shows.
type Site struct {
	Name  string // of the vault
	Home  string // an address
	Find  string // the address of a search; its field is find
	Found string // what was looked for
	Links []Link
}

// Link is a link of a page.
type Link struct {
	Text, URL string
	Here      bool // it leads to the page itself
}

// Command is a command for a shell, and when to run it.
type Command struct{ When, Line string }

//go:embed page.html
var pageHTML string

//go:embed site.html
var siteHTML string

//go:embed tokens.css
var tokensCSS string

//go:embed base.css
var baseCSS string

//go:embed page.css
var layoutCSS string

var pageCSS = Style() + layoutCSS

// Style returns the CSS that the page of a plan has in common with other pages: its colors, light and dark, as custom
// properties, and what surrounds the content.
func Style() string { return tokensCSS + baseCSS }

// Templates returns the templates that the page of a plan has in common with other pages: "site" shows a [Site], and
// "command" a [Command].
func Templates() *template.Template {
	return template.Must(template.New("shared").Funcs(template.FuncMap{
		"pct":  percent,
		"line": func(s string) string { return line(s, maxTitle) },
	}).Parse(siteHTML))
}

// Policy returns the Content-Security-Policy of a page that [Write] makes with these options. The page states it
// in a meta element, too.
func Policy(o Options) string {
	sum := sha256.Sum256([]byte(pageCSS))
	policy := "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; base-uri 'none'; form-action "
	if o.Site != nil && o.Site.Find != "" {
		policy += "'self'"
	} else {
		policy += "'none'"
	}
	if len(o.Scripts) > 0 {
		policy += "; script-src 'self'; connect-src 'self'"
	}
	return policy
}

// ErrNoPiece is the error of a page whose plan has no such group or action.
var ErrNoPiece = errors.New("the plan has no such actions")

// Write writes a plan as one HTML page that needs no script and loads nothing. The plan needs no particular
// content: whatever is missing or absurd is shown as such. Write fails when w does, and with [ErrNoPiece].
func Write(w io.Writer, plan *workflow.Plan, o Options) error {
	if o.Now.IsZero() {
		o.Now = time.Now()
	}
	page, err := newPage(plan, o)
	if err != nil {
		return err
	}
	buffered := bufio.NewWriter(w)
	if err := pageTemplate.Execute(buffered, page); err != nil {
		return err
	}
	return buffered.Flush()
}

var pageTemplate = template.Must(Templates().New("page").Parse(pageHTML))

// percent writes a place on the timeline. A hundredth of a percent is a tenth of a pixel.
func percent(v float64) string { return strconv.FormatFloat(math.Round(v*100)/100, 'f', -1, 64) + "%" }
