package main

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/workflow"
)

// ending returns an ID of a time with some last digits.
func ending(ago time.Duration, end string) uuid.UUID {
	id := workflow.NewV7At(time.Now().Add(-ago)).String()
	return uuid.MustParse(id[:len(id)-len(end)] + end)
}

// TestShortIDs names plans by their last digits.
func TestShortIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(pageTime))
		s := newStage(t)
		const aDay = 24 * time.Hour
		young := s.store(t, ending(6*aDay, "aaaa0001"), workflow.Completed, "young").ID.String()
		s.store(t, ending(8*aDay, "aaaa0002"), workflow.Completed, "old")
		open := s.store(t, ending(90*aDay, "bbbb0003"), workflow.Running, "open\x1b").ID.String()
		s.store(t, ending(time.Hour, "1cccc0004"), workflow.Completed, "one")
		s.store(t, ending(200*aDay, "2cccc0004"), workflow.NotStarted, "two")
		s.store(t, ending(time.Hour, "aaaa00010005"), workflow.Completed, "digits in the middle")
		node := s.join(t, "host").ID().String()
		for _, c := range []struct {
			args string
			code int
			out  string // in what is printed
		}{
			{"show aaaa0001", exitDone, young},
			{"show AAAA-0001", exitDone, young},
			{"get " + young[20:], exitDone, young},
			{"report aaaa0001 -o -", exitDone, young},
			{"show bbbb0003", exitDone, open},
			{"list --page aaaa0001", exitDone, "aaaa0002"},
			{"list bbbb0003 aaaa0001 --wide", exitDone, open},
			{"show aaaa0002", exitFound, "no plan ends in aaaa0002 among the open plans and those of the last 7 days; the whole ID, which --wide shows, always works"},
			{"show cccc0004", exitUsage, "2 plans end in cccc0004: give more digits, or the whole ID"},
			{"show cccc0004", exitUsage, "cccc0004  two\n"},
			{"show 2cccc0004", exitDone, "two"},
			{"stop bbbb0003", exitFound, "plan " + open + `  open\x1b` + "\n"},
			{"fork aaaa0001 --from-start --dry-run", exitDone, "plan " + young + "  young\n"},
			{"takeover bbbb0003 --evict " + node[28:], exitFailed, "plan " + open},
			{"takeover bbbb0003 --evict 00000000", exitFound, "no node ends in 00000000 among the members of the fleet"},
			{"show aaa0001", exitUsage, "or its last 8 digits or more"},
			{"show nightly1", exitUsage, "is not the ID of a plan"},
			{"purge aaaa0001 --yes", exitUsage, "is not the ID of a plan"},
		} {
			s.says(t, c.code, c.out, strings.Fields(c.args)...)
		}
		s.server.ResetRequests()
		s.run(t.Context(), "show", young)
		for _, r := range s.server.Requests() {
			if r.Op == emulator.ListBlobs || r.Op == emulator.ListContainers {
				t.Errorf("a whole ID is looked for: %v", r)
			}
		}
	})
}
