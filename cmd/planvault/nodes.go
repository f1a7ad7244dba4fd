package main

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/fleet"
)

// nodesCommand shows the members of the fleet.
func (a *app) nodesCommand() *cobra.Command {
	return a.onVault("nodes", "Show the nodes of the fleet, and how many open plans each owns",
		func(ctx context.Context, v *azblob.Vault, _ []string) error {
			i, err := a.inspect(ctx, v, fleet.InspectOptions{Older: readNone})
			if err != nil {
				return err
			}
			if err := printTable(a, nodeRows(i), nodeRow.cells, "NODE", "NAME", "STATE", ">HEARTBEAT", ">TTL", "STARTED", ">PLANS"); err != nil {
				return err
			}
			if a.found() {
				a.remark("%s, %s.", alive(i), plural(len(i.Plans), "open plan"))
			}
			return nil
		})
}

// nodeRow is a node in the output of nodes.
type nodeRow struct {
	ID               uuid.UUID `json:"id"`
	Name             string    `json:"name,omitempty"`
	State            string    `json:"state"`
	HeartbeatSeconds *float64  `json:"heartbeatSeconds,omitempty"`
	Renewed          time.Time `json:"renewed,omitzero"`
	TTLSeconds       float64   `json:"ttlSeconds,omitempty"`
	Started          time.Time `json:"started,omitzero"`
	Plans            int       `json:"plans"`
	Phase            string    `json:"phase,omitempty"`
	Trouble          string    `json:"trouble,omitempty"`
}

// nodeRows returns the members and the owners that are gone, in the order of their IDs.
func nodeRows(i fleet.Inspection) (rows []nodeRow) {
	for _, m := range i.Members {
		silence, state := m.Silence.Seconds(), fleet.OwnerSilent
		if m.Alive {
			state = fleet.OwnerAlive
		}
		rows = append(rows, nodeRow{m.ID, m.Name, string(state), &silence, m.Renewed.UTC(), m.TTL.Seconds(), m.Started.UTC(), m.Plans, string(m.Phase), m.Trouble})
	}
	gone := map[uuid.UUID]int{}
	for _, p := range i.Plans {
		if p.OwnerState == fleet.OwnerGone && memberOf(i, p.Owner) == nil {
			gone[p.Owner]++
		}
	}
	for id, plans := range gone {
		rows = append(rows, nodeRow{ID: id, State: string(fleet.OwnerGone), Plans: plans})
	}
	slices.SortFunc(rows, func(a, b nodeRow) int { return cmp.Compare(a.ID.String(), b.ID.String()) })
	return rows
}

// cells returns the columns of a node that are not known as dashes.
func (r nodeRow) cells() []string {
	heartbeat, ttl := "-", "-"
	if r.HeartbeatSeconds != nil {
		heartbeat = seconds(*r.HeartbeatSeconds)
	}
	if r.TTLSeconds != 0 {
		ttl = seconds(r.TTLSeconds)
	}
	return []string{r.ID.String(), orDash(printable(r.Name, 40)), r.State, heartbeat, ttl, stamp(r.Started), count(r.Plans)}
}
