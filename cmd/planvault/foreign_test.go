package main

import (
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/planvault/azblob/internal/vaulttest"
	"github.com/planvault/azblob/workflow"
)

// TestForeign runs each command that counts or changes plans on a day of which another program has the newest plans. The
// command tells them apart, recommends no removal, and changes none of them.
func TestForeign(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		day := vaulttest.DaysAgo(3)
		s.store(t, workflow.NewV7At(day), workflow.Completed, "nightly")
		others := vaulttest.PutForeign(s.server, day, 2)
		id := others.Plan.String()
		time.Sleep(time.Hour)
		bundle := filepath.Join(t.TempDir(), "bundle")
		for _, test := range []struct {
			code       int
			args, want string
		}{
			{exitDone, "list", "left out 1 plan written by another program"},
			{exitDone, "list --output json", "left out 1 plan written by another program"},
			{exitDone, "count", "1\nplanvault: left out 1 plan written by another program"},
			{exitDone, "count --output json", `{"plans":1,"foreign":1}`},
			{exitDone, "count --by status", "left out 1 plan written by another program"},
			{exitDone, "stats", "1 foreign"},
			{exitDone, "check", "0 problems in 1 day, 1 plan, "},
			{exitDone, "check", "; 4 plans written by another program, which no vault changes"},
			{exitDone, "check --output json", `"foreign":4,"problems":[]`},
			{exitDone, "stuck", ""}, // in a day of the vault, only markers lead to open plans
			{exitDone, "doctor --wide", "plan " + id + " was written by another program"},
			{exitDone, "recover --thorough --yes", "; 4 plans written by another program, left alone"},
			{exitDone, "recover --catalogue --yes", "another program wrote plan "},
			{exitFailed, "show " + id, "written by another program"},
			{exitDone, "purge --yes " + id, "left out 1 plan written by another program"},
			{exitFailed, "get " + id, "written by another program"},
			{exitDone, "export -o " + bundle, "left out 1 plan written by another program"},
			{exitDone, "mirror --dry-run --to-prefix copy --to-connection-string " + s.server.ConnectionString(), ", 1 written by another program"},
			{exitDone, "purge --created-before 1d --yes", "left out 1 plan written by another program"},
			{exitDone, "expire --older-than 1d --yes", "foreign  "},
		} {
			r := s.run(t.Context(), strings.Fields(test.args)...)
			if text := r.stdout + r.stderr; r.code != test.code || !strings.Contains(text, test.want) || strings.Contains(text, "delete the plan") {
				t.Errorf("planvault %s: exit code %d, want %d and %q\n%s", test.args, r.code, test.code, test.want, text)
			}
			if changed := others.Changed(); len(changed) > 0 {
				t.Fatalf("planvault %s changed %v", test.args, changed)
			}
		}
	})
}
