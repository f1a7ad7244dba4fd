package web

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/planvault/azblob/cmd/planvault/internal/human"
	"github.com/planvault/azblob/fleet"
)

// metrics answers Prometheus with the gauges of a look. They have the names that package azblobotel gives them. While
// looks fail it answers 503, so that no old figures are taken for present ones.
func (s *Server) metrics(w http.ResponseWriter, r *http.Request) {
	now, err := s.now(r.Context())
	switch {
	case err != nil: // the viewer has left
	case now.inspection == nil || now.Failure != failure{}:
		http.Error(w, now.Failure.Err, http.StatusServiceUnavailable)
	default:
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		_, _ = w.Write([]byte(exposition{vault: s.o.Vault}.gauges(now.inspection.Gauges())))
	}
}

// exposition writes Prometheus's text format.
type exposition struct{ vault string }

func (e exposition) gauges(g fleet.Gauges) string {
	var b strings.Builder
	b.WriteString(e.gauge("azblob_fleet_open", "Plans that are open.", e.series(float64(g.Open))))
	b.WriteString(e.gauge("azblob_fleet_waiting", "Open plans that have not begun.", e.series(float64(g.Waiting))))
	b.WriteString(e.gauge("azblob_fleet_asleep", "Open plans that need no node now: they sleep, wait for a turn, or an engine of another kind places them.", e.series(float64(g.Asleep))))
	b.WriteString(e.gauge("azblob_fleet_unread", "Open plans that may be stuck and were not read yet.", e.series(float64(g.Unread))))
	b.WriteString(e.gauge("azblob_fleet_wait_oldest_seconds", "For how long the plan has waited that has not begun for longest.", e.series(g.OldestWait.Seconds())))
	var stuck, plans, copies, waiting, holders []string
	for _, reason := range fleet.Reasons() {
		stuck = append(stuck, e.series(float64(g.Stuck[reason]), "azblob_stuck_reason", string(reason)))
	}
	for _, m := range g.Members {
		plans = append(plans, e.series(float64(m.Plans), "azblob_fleet_node", m.Member.ID.String(), "azblob_node_name", m.Member.Name))
	}
	for _, c := range g.Copies {
		copies = append(copies, e.series(c.Lag.Seconds(), "azblob_copy_name", c.Name))
	}
	shown := map[string]bool{}
	for _, k := range g.Keys {
		labels := []string{"azblob_key_name", k.Name, "azblob_key_kind", k.Kind()}
		if this := e.series(0, labels...); !shown[this] { // a name may be cut
			shown[this] = true
			waiting = append(waiting, e.series(float64(k.Waiting), labels...))
			holders = append(holders, e.series(float64(k.Holders), labels...))
		}
	}
	b.WriteString(e.gauge("azblob_fleet_key_waiting", "Open plans that wait for a turn for a key, of the ten keys with most.", waiting...))
	b.WriteString(e.gauge("azblob_fleet_key_holders", "Plans that have a turn for such a key.", holders...))
	b.WriteString(e.gauge("azblob_fleet_stuck", "Open plans that make no progress.", stuck...))
	b.WriteString(e.gauge("azblob_fleet_members", "Members of the fleet.",
		e.series(float64(g.Alive), "azblob_member_state", "alive"), e.series(float64(g.Dead), "azblob_member_state", "dead")))
	b.WriteString(e.gauge("azblob_fleet_node_plans", "Open plans that a node owns.", plans...))
	b.WriteString(e.gauge("azblob_fleet_copy_lag_seconds", "How far a copy of the vault is behind.", copies...))
	return b.String()
}

// gauge returns a metric with its series.
func (e exposition) gauge(name, about string, series ...string) string {
	text := fmt.Sprintf("# HELP %s %s\n# TYPE %s gauge\n", name, about, name)
	for _, s := range series {
		text += name + s + "\n"
	}
	return text
}

// escape escapes the value of a label.
var escape = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

// maxLabel is the number of characters to which the values of labels are cut.
const maxLabel = 120

// series returns the labels, given as names and values, and the value of a series.
func (e exposition) series(value float64, labels ...string) string {
	text := `{db_namespace="` + escape.Replace(e.vault) + `"`
	for i := 0; i+1 < len(labels); i += 2 {
		text += fmt.Sprintf(`,%s="%s"`, labels[i], escape.Replace(human.Line(labels[i+1], maxLabel)))
	}
	return text + "} " + strconv.FormatFloat(value, 'g', -1, 64)
}
