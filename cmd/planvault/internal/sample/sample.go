// Package sample has plans of all states, such as a company's releases and nightly work leave them, for a first look at
// the tool and for its documentation.
package sample

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// Vault is what [Store] needs of a vault.
type Vault interface {
	storage.Restorer
	Control() storage.Control
}

// alive is the name of the node that is alive, and interval the time between its heartbeats.
const (
	alive    = "node-a"
	interval = 30 * time.Second
)

// Beat renews the record of node a when a heartbeat is due. Where the vault is suspended, the node leaves. Beat reports whether
// there is a node a; call it every few seconds.
func Beat(ctx context.Context, v storage.Control) bool {
	r, err := v.Roster(ctx)
	i := slices.IndexFunc(r.Members, func(m storage.Member) bool { return m.Name == alive })
	switch {
	case err != nil:
	case i < 0:
		return false
	case slices.ContainsFunc(r.Notes, func(n storage.Note) bool { return n.Name == storage.NoteSuspended }):
		_ = v.RemoveMember(ctx, r.Members[i].ID, r.Members[i].Version)
	case r.Now.Sub(r.Members[i].Renewed) >= interval:
		_, _ = v.RenewMember(ctx, r.Members[i])
	}
	return true
}

// Store stores the plans of [At], and the records of the nodes that own those that are open. Node a is alive as
// long as [Beat] is called, node b falls silent at once, and node c is gone. It returns the number of plans.
func Store(ctx context.Context, v Vault, now time.Time) (int, error) {
	for _, m := range []storage.Member{
		{ID: node(now, 'a'), Name: alive, Started: began(now, 'a'), TTL: 10 * interval},
		{ID: node(now, 'b'), Name: "node-b", Started: began(now, 'b'), TTL: time.Second},
	} {
		if _, err := v.Control().AddMember(ctx, m); err != nil {
			return 0, err
		}
	}
	plans := At(now)
	for _, p := range plans {
		if err := v.Restore(ctx, p); err != nil {
			return 0, err
		}
	}
	return len(plans), nil
}

// At returns the plans as they are at a time, newest first. The same time gives the same plans, with the same IDs.
func At(now time.Time) []*workflow.Plan {
	now = now.UTC().Truncate(time.Second)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	stopped := release("web", "1.8.9", nil)
	stopped.stop = true
	plans := []*workflow.Plan{
		// Open plans, as they are now or were when their owner died.
		release("web", "1.9.0", nil).play(ago(90*time.Second), now, node(now, 'a')),
		release("search", "4.12.0", nil).play(ago(9*time.Minute), ago(8*time.Minute), node(now, 'b')),
		story{name: "rotate certificates", descr: "waits for an engine"}.block("certificates", sequence{"all", acts{{name: "renew", plugin: "vault", takes: time.Minute}}}).play(ago(26*time.Minute), ago(time.Hour), uuid.Nil),
		release("checkout", "2.0.1", nil).play(ago(52*time.Minute), ago(50*time.Minute), node(now, 'c')),
		story{name: "migrate invoices", descr: "hangs in an action"}.block("export", sequence{"europe", acts{
			{name: "snapshot", plugin: "sql", takes: 40 * time.Second}, {name: "copy tables", plugin: "sql", takes: 100 * time.Hour}, {name: "compare", plugin: "sql", takes: time.Minute},
		}}).play(ago(3*time.Hour), now, node(now, 'a')),
		// Final plans that somebody may ask about.
		release("checkout", "2.0.0", failing).play(ago(5*time.Hour), now, uuid.Nil),
		stopped.play(ago(7*time.Hour), now, uuid.Nil),
	}
	for n := range 24 { // three days of what goes well
		at := ago(time.Duration(8+3*n) * time.Hour)
		p := nightly(n)
		if n%3 == 1 {
			p = release("web", fmt.Sprintf("1.8.%d", 8-n/3), nil)
		}
		plans = append(plans, p.play(at, now, uuid.Nil))
	}
	return plans
}

// release is a story of a build, a canary and three regions.
func release(service, version string, canary acts) story {
	if canary == nil {
		canary = acts{{name: "install", plugin: "deploy", takes: 9 * time.Second}, {name: "watch the errors", plugin: "metrics", takes: 30 * time.Second}}
	}
	s := story{name: "release " + service + " " + version, descr: "build it, try it on a canary, roll it out", group: service}.
		block("build", sequence{"binary", acts{{name: "compile", plugin: "command", takes: 21 * time.Second}, {name: "unit tests", plugin: "command", takes: 33 * time.Second}}}).
		block("canary", sequence{"canary-1", canary})
	var regions []sequence
	for n, region := range []string{"eu-west", "us-east", "asia-south"} {
		regions = append(regions, sequence{region, acts{
			{name: "drain", plugin: "balancer", takes: time.Duration(4+n) * time.Second},
			{name: "install", plugin: "deploy", takes: time.Duration(25+9*n) * time.Second},
			{name: "warm the cache", plugin: "command", takes: 12 * time.Second, failures: []string{"the cache is cold"}[:n%2]},
			{name: "undrain", plugin: "balancer", takes: 3 * time.Second},
		}})
	}
	return s.block("roll out", regions...)
}

// failing is a canary that does not come up.
var failing = acts{
	{name: "install", plugin: "deploy", takes: 9 * time.Second},
	{name: "watch the errors", plugin: "metrics", takes: 20 * time.Second, broken: true, failures: []string{
		"4.1% of requests failed; 1% is allowed", "3.8% of requests failed; 1% is allowed", "4.4% of requests failed; 1% is allowed",
	}},
}

// nightly is a story of one block.
func nightly(n int) story {
	return story{name: "nightly report", descr: "all regions, one after the other"}.block("report", sequence{"reports", acts{
		{name: "collect", plugin: "sql", takes: time.Duration(40+n) * time.Second},
		{name: "render", plugin: "command", takes: 8 * time.Second},
		{name: "send", plugin: "mail", takes: 2 * time.Second},
	}})
}

// node returns the ID of a node. Node c joined first, and is the only one without a record.
func node(now time.Time, letter byte) uuid.UUID {
	return idAt(began(now, letter), 0xfff0+uint32(letter))
}

func began(now time.Time, letter byte) time.Time {
	return now.Truncate(time.Second).Add(-4*time.Hour - time.Duration(letter-'a')*time.Minute)
}
