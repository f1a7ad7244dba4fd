package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/internal/firsthour"
	"github.com/planvault/azblob/internal/price"
)

// tryFirstHour tries on the account what only a real account can settle, and prints what each probe finds.
func (a *app) tryFirstHour(ctx context.Context, ramp bool) error {
	where := a.connection
	where.Prefix = "first-hour" // and what each run adds to it
	c, err := a.resolve(where)
	if err != nil {
		return err
	}
	probe, err := c.prober()
	if err != nil {
		return err
	}
	a.places = append(a.places, c.String())
	if ramp {
		what := fmt.Sprintf("up to %s in up to %s", plural(firsthour.RampWrites, "write"), span(firsthour.RampTime))
		most := price.Tally{azblob.ClassWrite: firsthour.RampWrites}
		if err := a.confirm(ctx, change{doing: "ramp", what: what, requests: most}); err != nil {
			return err
		}
	}
	a.remark("The containers of the first hour begin with %s- and are removed at the end.", where.Prefix)
	a.grace.Store(int64(firsthour.ClearLimit + interruptGrace))
	p := a.progress("first hour", "probe", firsthour.Count()).then("what it made is removed, unless it is named here")
	count := a.meter.observer().Request
	probe.Transport, probe.Ramp = a.transport, ramp
	probe.Sent = func(class string) { count(ctx, azblob.RequestEvent{Class: azblob.Class(class)}) }
	probe.Swept = func(prefix string, left error) {
		if left == nil {
			fmt.Fprintf(a.stderr, "planvault: the containers of %s are removed: a first hour that was killed had left them\n", prefix)
		} else {
			fmt.Fprintf(a.stderr, "planvault: containers of %s stay: another first hour is at work, or they can't be removed: %s\n", prefix, left)
		}
	}
	verdicts := map[string]int{}
	err = firsthour.Run(ctx, probe, func(f firsthour.Finding) error {
		verdicts[f.Verdict]++
		p.step()
		return a.print(f, func(w io.Writer) { a.writeFinding(w, f) })
	})
	p.end()
	if left, ok := errors.AsType[*firsthour.LeftError](err); ok && ctx.Err() != nil { // the exit code 130 says no error
		a.complain(left)
	}
	if err != nil {
		return err
	}
	different := verdicts[firsthour.Differs]
	err = a.summarize(fmt.Sprintf("%d as expected, %d different, %d not tried",
		verdicts[firsthour.AsExpected], different, verdicts[firsthour.NotTried]))
	if err == nil && different > 0 {
		return errFound
	}
	return err
}

// prober returns the account to probe.
func (c connection) prober() (probe firsthour.Config, err error) {
	probe = firsthour.Config{ConnectionString: c.ConnectionString, Endpoint: c.Endpoint, Version: c.ServiceVersion}
	if c.ConnectionString == "" && !c.hasSignature() {
		if probe.Credential, err = azidentity.NewDefaultAzureCredential(nil); err != nil {
			err = fmt.Errorf("log in: %w", err)
		}
	}
	return probe, err
}

// writeFinding writes what a probe found, in lines that fit the terminal.
func (a *app) writeFinding(w io.Writer, f firsthour.Finding) {
	width := helpWidth
	if a.stdoutIsTerm {
		width, _ = a.terminalSize()
	}
	for _, row := range [][2]string{
		{fmt.Sprintf("%2d %s", f.Number, f.Verdict), f.Tried},
		{"   expected", f.Expected},
		{"   seen", f.Summary(false)},
		{"   if not", f.Breaks},
	} {
		label := row[0]
		for line := range strings.SplitSeq(wrap(printable(row[1], 0), width-labelWidth), "\n") {
			fmt.Fprintf(w, "%-*s%s\n", labelWidth, label, line)
			label = ""
		}
	}
}

// labelWidth is how many columns stand before the texts of a finding.
const labelWidth = len("13 as expected  ")
