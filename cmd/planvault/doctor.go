package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/internal/firsthour"
	"github.com/planvault/azblob/internal/secrets"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// doctor is a run of planvault doctor.
type doctor struct {
	a         *app
	v         *azblob.Vault
	readOnly  bool
	probes    int
	firstHour bool
	ramp      bool
	table     *table[finding]
	bad       bool // a problem was found
	lists     bool // the login may list
}

// finding is what one check found.
type finding struct {
	Check   string `json:"check" help:"what was looked at"`
	Result  string `json:"result" help:"ok, warning, problem or unknown"`
	Finding string `json:"finding" help:"what was found"`
	Advice  string `json:"advice,omitempty" help:"what to do"`
}

// The results of checks. A fact is unknown if the login may not ask for it, or the service does not tell it.
const (
	resultOK      = "ok"
	resultWarning = "warning"
	resultProblem = "problem"
	resultUnknown = "unknown"
)

// doctorCommand finds out what is wrong with the account, the login and this machine.
func (a *app) doctorCommand() *cobra.Command {
	x := doctor{a: a}
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Say what is wrong with the account, the login or this machine",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			switch {
			case x.firstHour:
				return a.tryFirstHour(c.Context(), x.ramp)
			case x.ramp:
				return usageError("--ramp needs --first-hour")
			}
			return x.run(c.Context())
		},
	}
	c.Flags().BoolVar(&x.readOnly, "read-only", false, "the login needs no rights to write and delete")
	c.Flags().IntVar(&x.probes, "probes", 50, "send this `NUMBER` of cheap requests to see how busy the service is")
	c.Flags().BoolVar(&x.firstHour, "first-hour", false, "try what only a real account can settle, in containers of its own")
	c.Flags().BoolVar(&x.ramp, "ramp", false, "with --first-hour, write until the service refuses a write")
	return c
}

// checkLimit bounds each check.
const checkLimit = 10 * time.Second

// run makes all checks, and prints what was found, also if it is interrupted.
func (x *doctor) run(ctx context.Context) error {
	if x.probes < 0 {
		return usageError("--probes must not be negative")
	}
	v, err := x.a.open(ctx, x.a.connection)
	if err != nil {
		return err
	}
	x.v = v
	x.table = newTable(x.a, func(f finding) []string {
		return []string{f.Result, f.Check, f.Finding}
	}, "RESULT", "CHECK", "FINDING")
	steps := []func(context.Context) (goOn bool){x.reach, x.rights, x.vault, x.busy, x.account, x.secrets}
	p := x.a.progress("doctor", "step", len(steps)).then(untouched)
	for i, step := range steps {
		if !step(ctx) || ctx.Err() != nil {
			break
		}
		p.at(i + 1)
	}
	p.end()
	x.a.sites = nil // what is to say about the vault was said
	if err := x.table.end(); err != nil {
		return err
	}
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("the doctor did not finish: %w", context.Cause(ctx))
	case x.bad:
		return errFound
	}
	return nil
}

// say adds what a check found. In a table, what to do about it follows in lines of its own, and all lines fit the width.
func (x *doctor) say(check, result, found, advice string) {
	x.bad = x.bad || result == resultProblem
	if x.a.output == outputJSON {
		_ = x.table.add(finding{check, result, found, advice}) // a failure to write is that of the end
		return
	}
	if found = printable(found, 0); advice != "" {
		found += "\n→ " + printable(advice, 0)
	}
	const besides = len("warning") + 2 + len("container restore") + 2 // what stands beside a finding
	for text := range strings.SplitSeq(found, "\n") {
		for line := range strings.SplitSeq(wrap(text, x.a.narrow(besides)), "\n") {
			_ = x.table.add(finding{Check: check, Result: result, Finding: line})
			check, result = "", ""
		}
	}
}

// reach checks whether the service answers, and this machine's clock. It reports whether the login may read.
func (x *doctor) reach(ctx context.Context) (goOn bool) {
	report, err := x.v.Ping(ctx, azblob.PingOptions{})
	if ctx.Err() != nil {
		return false
	}
	var noToken interface{ NonRetriable() } // azcore's mark for errors of credentials
	switch {
	case errors.As(err, &noToken):
		x.say("log in", resultProblem, storage.Detail(err), "log in with az login, set the environment variables of an identity, or give --connection-string")
		return false
	case errors.Is(err, storage.ErrUnavailable), err != nil && report.Server == "":
		x.say("reach", resultProblem, storage.Detail(err), "")
		return false
	}
	x.say("reach", resultOK, fmt.Sprintf("%s answers in %s", cmp.Or(report.Server, "the service"), span(report.Latency)), "")
	x.say(clockFinding(report.Skew))
	if err != nil {
		x.say("read", resultProblem, storage.Detail(err), "")
		return false
	}
	x.say("read", resultOK, "the login may read blobs", "")
	return true
}

// clockFinding judges how far this machine's clock is ahead of the service's.
func clockFinding(skew time.Duration) (check, result, found, advice string) {
	found = fmt.Sprintf("this machine's clock is %s ahead of the service's", span(skew))
	if skew < 0 {
		found = fmt.Sprintf("this machine's clock is %s behind the service's", span(-skew))
	}
	switch off := skew.Abs(); {
	case off >= 15*time.Minute:
		return "clock", resultProblem, found, "set the clock: signed requests are refused from 15 minutes on, and plans are filed under the wrong time"
	case off >= time.Minute:
		return "clock", resultWarning, found, "set the clock: it decides the day and the order of the plans that are created here"
	case off < 2*time.Second:
		found = "this machine's clock agrees with the service's"
	}
	return "clock", resultOK, found, ""
}

// rights checks what the login may do.
func (x *doctor) rights(ctx context.Context) (goOn bool) {
	check := func(name, may string, ask func(context.Context) error) {
		ctx, cancel := context.WithTimeout(ctx, checkLimit)
		defer cancel()
		if err := ask(ctx); err != nil {
			x.say(name, resultProblem, storage.Detail(err), "")
		} else {
			x.say(name, resultOK, "the login may "+may, "")
		}
	}
	if !x.readOnly {
		check("write", "write blobs", func(ctx context.Context) error { _, err := x.v.Ping(ctx, azblob.PingOptions{Writes: true}); return err })
		check("delete", "delete blobs", func(ctx context.Context) error {
			_, err := x.v.Ping(ctx, azblob.PingOptions{Deletes: true})
			return err
		})
	}
	var newest error // of the first plan that is listed
	check("list", "list containers and blobs", func(ctx context.Context) error {
		for r := range search(ctx, x.v, storage.Filters{Limit: 1}) {
			newest = r.Err
			break
		}
		if errors.Is(newest, storage.ErrCorrupt) || errors.Is(newest, storage.ErrSchema) { // of the plan, which check reports
			return nil
		}
		x.lists = newest == nil
		return newest
	})
	if errors.Is(newest, storage.ErrForeign) {
		x.say("prefix", resultWarning, fmt.Sprintf("plan %s was written by another program", planOfError(newest)), "no vault changes its plans: give each program a prefix of its own")
	}
	return ctx.Err() == nil
}

// vault checks whether the prefix has containers, and looks for those of a first hour.
func (x *doctor) vault(ctx context.Context) (goOn bool) {
	limited, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	for _, s := range x.a.sites {
		if !x.lists || x.a.allowEmpty {
			continue
		}
		if err := s.missing(limited); err != nil {
			x.say("vault", resultProblem, storage.Detail(err), "")
		}
	}
	if !x.lists {
		return ctx.Err() == nil
	}
	prefixes, _ := x.v.Admin().Prefixes(limited) // the login may list
	for _, p := range prefixes {
		if firsthour.Made(p.Prefix) {
			x.say("first hour", resultWarning, p.Prefix+": "+leftover, sweeping)
		}
	}
	return ctx.Err() == nil
}

// probesAtOnce is how many probes are under way at a time.
const probesAtOnce = 8

// busy sends cheap requests and counts those that the service refuses because it is busy.
func (x *doctor) busy(ctx context.Context) (goOn bool) {
	if x.probes == 0 {
		return true
	}
	slowed := x.a.meter.traffic().askedToSlow
	latencies := make([]time.Duration, x.probes)
	errs := make([]error, x.probes)
	next := make(chan int)
	var workers sync.WaitGroup
	for range min(probesAtOnce, x.probes) {
		workers.Go(func() {
			for i := range next {
				began := time.Now()
				_, errs[i] = x.v.Ping(ctx, azblob.PingOptions{})
				latencies[i] = time.Since(began)
			}
		})
	}
	for i := range x.probes {
		next <- i
	}
	close(next)
	workers.Wait()
	if ctx.Err() != nil {
		return false
	}
	x.say(busyFinding(x.probes, x.a.meter.traffic().askedToSlow-slowed, errs, latencies))
	return true
}

// busyFinding judges the answers to probes, of which some were refused because the service is busy.
func busyFinding(probes, refused int, errs []error, latencies []time.Duration) (check, result, found, advice string) {
	failed := slices.DeleteFunc(slices.Clone(errs), func(err error) bool { return err == nil })
	slices.Sort(latencies)
	found = fmt.Sprintf("the service refused %s of %s with 503 or 429 (%.3g%%); median %s, slowest %s", count(refused), plural(probes, "request"),
		100*float64(refused)/float64(probes), span(latencies[len(latencies)/2]), span(latencies[len(latencies)-1]))
	if others := len(failed) - refused; others > 0 {
		found += fmt.Sprintf("; %d failed otherwise", others)
	}
	switch {
	case len(failed) == 0:
		return "busy", resultOK, found, ""
	case refused == 0:
		return "busy", resultProblem, found + ", for example: " + storage.Detail(failed[0]), "look at the network and at proxies between this machine and the account"
	case 10*len(failed) >= probes:
		return "busy", resultProblem, found, "the account is over its limit, or the service has an outage: look at its metrics, and send fewer requests"
	}
	return "busy", resultWarning, found, "vaults wait and try again, so that calls are slower; if it lasts for minutes, the account is too small"
}

// account reports what the account is.
func (x *doctor) account(ctx context.Context) (goOn bool) {
	limited, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	r, _ := x.v.Admin().Account(limited) // what it does not know says why
	if ctx.Err() != nil {
		return false
	}
	r.Unknown["containers"] = errContainersUntold
	for _, fact := range []struct {
		check, field string
		judged       finding
	}{
		{"kind", "Kind", kindFinding(r.Kind)},
		{"namespace", "Hierarchical", namespaceFinding(r.Hierarchical)},
		{"soft delete", "SoftDelete", softDeleteFinding(r.SoftDelete)},
		{"container restore", "containers", finding{}},
		{"versioning", "Versioning", versioningFinding(r.Versioning)},
		{"redundancy", "SKU", judged(resultOK, redundancy(r.SKU), "")},
	} {
		if why := r.Unknown[fact.field]; why != nil {
			x.say(fact.check, resultUnknown, storage.Detail(why), "")
			continue
		}
		x.say(fact.check, fact.judged.Result, fact.judged.Finding, fact.judged.Advice)
	}
	return true
}

// errContainersUntold is why it is unknown how long deleted containers are kept.
var errContainersUntold = errors.New("the Blob service does not tell this; ask Azure Resource Manager: az storage account blob-service-properties show")

// judged returns what a check of a fact found.
func judged(result, found, advice string) finding {
	return finding{Result: result, Finding: found, Advice: advice}
}

func kindFinding(kind string) finding {
	switch kind {
	case "StorageV2":
		return judged(resultOK, kind+": general-purpose v2", "")
	case "BlockBlobStorage":
		return judged(resultOK, kind+": premium block blobs, with other prices", "")
	}
	return judged(resultWarning, kind, "vaults are made for general-purpose v2 accounts: upgrade the account")
}

func namespaceFinding(hierarchical bool) finding {
	if hierarchical {
		return judged(resultWarning, "hierarchical (Data Lake Storage)", "it works; listings of large days cost more, and a flat account is better for a new vault")
	}
	return judged(resultOK, "flat", "")
}

func softDeleteFinding(days int) finding {
	switch {
	case days == 0:
		return judged(resultOK, "off: what is deleted is gone", "")
	case days > 7:
		return judged(resultWarning, fmt.Sprintf("on, for %d days", days), "each update and delete keeps a copy that is billed: a week is enough to notice a wrong deletion")
	}
	return judged(resultOK, fmt.Sprintf("on, for %s; each update and delete keeps a copy that is billed", plural(days, "day")), "")
}

func versioningFinding(on bool) finding {
	if on {
		return judged(resultWarning, "on: each update keeps a copy that is billed, and each node of a fleet 8,640 a day", "add a lifecycle rule that deletes previous versions after a day, or switch versioning off")
	}
	return judged(resultOK, "off when the vault's newest blobs were written", "")
}

// redundancy explains a SKU.
func redundancy(sku string) string {
	_, kind, _ := strings.Cut(sku, "_")
	switch kind {
	case "LRS":
		return sku + ": three copies in one data center"
	case "ZRS":
		return sku + ": copies in three zones of one region"
	case "GRS", "GZRS":
		return sku + ": also copies in a second region, which can't be read before a failover"
	case "RAGRS", "RAGZRS":
		return sku + ": also copies in a second region, which can be read"
	}
	return sku
}

// The doctor looks for secrets in the newest plans, and names as many fields.
const (
	plansForSecrets  = 10
	suspectsReported = 5
)

// secrets looks for fields of requests and responses that look like secrets and have no tag. Running plans are left out,
// because to read one takes a request for each of its actions.
func (x *doctor) secrets(ctx context.Context) (goOn bool) {
	if !x.lists {
		return ctx.Err() == nil
	}
	limited, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	found := map[string]bool{}
	for r := range search(limited, x.v, storage.Filters{Limit: plansForSecrets}) {
		if r.Err != nil || r.Result.State.Status == workflow.Running {
			continue
		}
		if p, err := x.v.Read(limited, r.Result.ID); err == nil { // check reports plans that can't be read
			noteSuspects(p.Redacted(), found)
		}
	}
	names := slices.Sorted(maps.Keys(found))
	if len(names) == 0 {
		return ctx.Err() == nil
	}
	more := ""
	if n := len(names) - suspectsReported; n > 0 {
		names, more = names[:suspectsReported], fmt.Sprintf("; and %d more", n)
	}
	x.say("secrets", resultWarning, "fields that look like secrets are shown: "+strings.Join(names, "; ")+more, `add the tag vault:"secret" to the fields, unless they hold none`)
	return ctx.Err() == nil
}

// noteSuspects adds the fields of a redacted plan that look like secrets, with their plugins.
func noteSuspects(p *workflow.Plan, found map[string]bool) {
	note := func(a *workflow.Action, root string, v any) {
		text, _ := v.(json.RawMessage)
		for _, path := range secrets.Suspects(root, text) {
			found["plugin "+a.Plugin+" "+path] = true
		}
	}
	for o := range workflow.Walk(p) {
		if a, ok := o.(*workflow.Action); ok {
			note(a, "/req", a.Req)
			for _, t := range a.Attempts {
				note(a, "/resp", t.Resp)
			}
		}
	}
}
