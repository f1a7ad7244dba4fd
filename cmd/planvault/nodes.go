package main

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/fleet"
)

// nodesCommand shows the members of the fleet.
func (a *app) nodesCommand() *cobra.Command {
	var o *order[nodeRow]
	var again repeat
	c := a.onVault("nodes", "Show the nodes of the fleet, and how many open plans each owns",
		func(ctx context.Context, v *azblob.Vault, _ []string) error {
			return a.repeat(ctx, again, func(ctx context.Context) error { return a.nodes(ctx, v, o) })
		})
	o = addSort(c.Flags(), a.nodeColumns(), "sort the nodes")
	again.addFlags(c.Flags())
	return c
}

// nodes prints the nodes.
func (a *app) nodes(ctx context.Context, v *azblob.Vault, o *order[nodeRow]) error {
	i, err := a.inspect(ctx, v, fleet.InspectOptions{Older: readNone})
	if err != nil {
		return err
	}
	rows := nodeRows(i)
	o.sort(rows)
	if err := newColumns(a, a.nodeColumns()).print(rows); err != nil {
		return err
	}
	if a.found() {
		a.remark("%s, %s.", alive(i), plural(len(i.Plans), "open plan"))
	}
	return nil
}

// nodeRow is a node in the output of nodes.
type nodeRow struct {
	ID               uuid.UUID `json:"id" help:"the node's ID"`
	Name             string    `json:"name,omitempty" help:"its name"`
	State            string    `json:"state" help:"alive, silent or gone"`
	HeartbeatSeconds *float64  `json:"heartbeatSeconds,omitempty" help:"the time since it renewed its record"`
	Renewed          time.Time `json:"renewed,omitzero" help:"when that was, by the store's clock"`
	TTLSeconds       float64   `json:"ttlSeconds,omitempty" help:"how long it may be silent before it counts as dead"`
	Started          time.Time `json:"started,omitzero" help:"when it joined, by its own clock"`
	Plans            int       `json:"plans" help:"how many open plans it owns"`
	Phase            string    `json:"phase,omitempty" help:"whether it takes plans, if it does not work as usual"`
	Trouble          string    `json:"trouble,omitempty" help:"what hinders it"`
}

// nodeRows returns the members and the owners that are gone, in the order of their IDs.
func nodeRows(i fleet.Inspection) (rows []nodeRow) {
	for _, m := range i.Members {
		silence, state := m.Silence.Seconds(), fleet.OwnerStateSilent
		if m.Alive {
			state = fleet.OwnerStateAlive
		}
		rows = append(rows, nodeRow{m.Member.ID, m.Member.Name, string(state), &silence, m.Member.Renewed.UTC(), m.Member.TTL.Seconds(), m.Member.Started.UTC(), m.Plans, string(m.Member.Phase), m.Member.Trouble})
	}
	for id, plans := range i.Gone() {
		rows = append(rows, nodeRow{ID: id, State: string(fleet.OwnerStateGone), Plans: plans})
	}
	slices.SortFunc(rows, func(a, b nodeRow) int { return cmp.Compare(a.ID.String(), b.ID.String()) })
	return rows
}

// nodeColumns are the columns of nodes. What is not known is a dash.
func (a *app) nodeColumns() []column[nodeRow] {
	return []column[nodeRow]{
		idColumn("NODE", func(r nodeRow) uuid.UUID { return r.ID }),
		{title: "NAME", cell: func(r nodeRow) string { return orDash(printable(r.Name, 40)) }, compare: by(func(r nodeRow) string { return r.Name }), least: 8},
		{title: "STATE", cell: func(r nodeRow) string { return r.State }, compare: by(func(r nodeRow) string { return r.State })},
		{title: ">HEARTBEAT", cell: func(r nodeRow) string { return secondsOrDash(r.HeartbeatSeconds) }, compare: by(nodeRow.silence)},
		{title: ">TTL", cell: nodeRow.ttl, compare: by(func(r nodeRow) float64 { return r.TTLSeconds })},
		{title: "STARTED", cell: func(r nodeRow) string { return a.stamp(r.Started) }, compare: byTime(func(r nodeRow) time.Time { return r.Started })},
		{title: ">PLANS", cell: func(r nodeRow) string { return count(r.Plans) }, compare: by(func(r nodeRow) int { return r.Plans })},
	}
}

// silence returns the seconds since the last heartbeat. An owner without a record has been silent for longest.
func (r nodeRow) silence() float64 {
	if r.HeartbeatSeconds == nil {
		return math.Inf(1)
	}
	return *r.HeartbeatSeconds
}

func (r nodeRow) ttl() string {
	if r.TTLSeconds == 0 {
		return "-"
	}
	return seconds(r.TTLSeconds)
}
