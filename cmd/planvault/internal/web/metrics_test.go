package web_test

import (
	"maps"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/planvault/azblob/cmd/planvault/internal/web"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// TestMetrics compares the answer to Prometheus with the gauges that docs/operating.md lists for fleets, and checks
// values, hostile names and an outage.
func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		s := web.New(store, web.Options{Vault: `my"vault`})
		store.add(t, "waits", workflow.NotStarted)
		store.add(t, "runs", workflow.Running) // an engine without a fleet began it
		const key = "k\"} 1\\"
		store.keyed(t, "has a turn", key, workflow.Running)
		store.keyed(t, "waits for a turn", key, workflow.NotStarted)
		time.Sleep(time.Hour)
		hostile := store.join(t, "x\"} 1\nazblob_fleet_open{} 7\\")
		if _, err := store.PutNote(t.Context(), storage.Note{Name: "copy-west", Text: []byte(`{"caughtUp":"` + time.Now().UTC().Add(-time.Minute).Format(time.RFC3339) + `"}`)}); err != nil {
			t.Fatal(err)
		}
		w := get(t, s, "/metrics")
		if kind := w.Header().Get("Content-Type"); w.Code != http.StatusOK || kind != "text/plain; version=0.0.4; charset=utf-8" {
			t.Fatalf("the answer is %d, %s", w.Code, kind)
		}
		const vault = `{db_namespace="my\"vault"`
		got := map[string]bool{}
		for line := range strings.Lines(w.Body.String()) {
			got[strings.TrimSuffix(line, "\n")] = true
		}
		for _, want := range []string{
			"azblob_fleet_open" + vault + "} 4",
			"azblob_fleet_asleep" + vault + "} 1",
			"azblob_fleet_waiting" + vault + "} 1",
			"azblob_fleet_wait_oldest_seconds" + vault + "} 3600",
			"azblob_fleet_stuck" + vault + `,azblob_stuck_reason="not-picked-up"} 1`,
			"azblob_fleet_stuck" + vault + `,azblob_stuck_reason="unclaimed"} 2`,
			"azblob_fleet_stuck" + vault + `,azblob_stuck_reason="no-progress"} 0`,
			"azblob_fleet_members" + vault + `,azblob_member_state="alive"} 1`,
			"azblob_fleet_node_plans" + vault + `,azblob_fleet_node="` + hostile.ID.String() + `",azblob_node_name="x\"} 1\\nazblob_fleet_open{} 7\\"} 0`,
			"azblob_fleet_key_waiting" + vault + `,azblob_key_name="k\"} 1\\",azblob_key_kind="key"} 1`,
			"azblob_fleet_key_holders" + vault + `,azblob_key_name="k\"} 1\\",azblob_key_kind="key"} 1`,
			"azblob_fleet_copy_lag_seconds" + vault + `,azblob_copy_name="west"} 60`,
		} {
			if !got[want] {
				t.Errorf("there is no %s in\n%s", want, w.Body)
			}
		}

		page, err := os.ReadFile("../../../../docs/operating.md")
		must(t, err)
		documented := map[string]string{} // the labels, by name
		for _, row := range regexp.MustCompile("(?m)^\\| `(azblob\\.fleet[a-z.]+)` \\| gauge \\| (\\S+) \\| (.*?) ?\\|").FindAllStringSubmatch(string(page), -1) {
			name := row[1] + map[string]string{"s": "_seconds"}[row[2]]
			documented[strings.ReplaceAll(name, ".", "_")] = strings.Trim(strings.NewReplacer(".", "_", "`", "", ",", "").Replace("db.namespace "+row[3]), " ")
		}
		shown := map[string]string{}
		for line := range got {
			if m := regexp.MustCompile(`^(\w+)\{`).FindStringSubmatch(line); m != nil {
				var names []string
				for _, l := range regexp.MustCompile(`[{,](\w+)="`).FindAllStringSubmatch(line, -1) {
					names = append(names, l[1])
				}
				shown[m[1]] = strings.Join(names, " ")
			}
		}
		if !maps.Equal(shown, documented) {
			t.Errorf("shown are %v, documented %v", shown, documented)
		}

		store.fail(errOutage)
		time.Sleep(time.Minute)
		if w := get(t, s, "/metrics"); w.Code != http.StatusServiceUnavailable || strings.Contains(w.Body.String(), "azblob_fleet") {
			t.Errorf("in an outage the answer is %d: %s", w.Code, w.Body)
		}
	})
}
