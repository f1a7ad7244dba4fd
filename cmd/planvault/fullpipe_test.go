package main

import (
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// narrow is a pipe or a disk that takes a number of bytes and then fails.
type narrow struct {
	left int
	err  error
}

func (n *narrow) Write(b []byte) (int, error) {
	taken := min(n.left, len(b))
	if n.left -= taken; taken < len(b) {
		return taken, n.err
	}
	return taken, nil
}

// TestResultsAreNotLost: a command that could not write all of its results says so, wherever the disk was full. It ends
// quietly if it was the reader who has closed the pipe.
func TestResultsAreNotLost(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	s := newStage(t)
	for n, status := range []workflow.Status{workflow.NotStarted, workflow.Running, workflow.Completed} {
		s.store(t, planID(n*24*60), status, "plan")
	}
	if _, err := s.vault.Control().AddMember(t.Context(), storage.Member{ID: planID(0), Started: time.Now(), TTL: time.Minute}); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{
		"list", "count", "count --by status", "stuck", "stuck --all", "nodes", "stats", "check", "doctor --probes 0", "version",
		"purge --status completed --dry-run", "expire --older-than 2d --dry-run", "recover --catalogue --dry-run", "hold 2025-10-20 --dry-run",
	} {
		for _, form := range []string{"table", "json"} {
			args := append(strings.Fields(command), "--output", form)
			t.Run(strings.Join(args, " "), func(t *testing.T) {
				done := s.run(t.Context(), args...)
				whole := len(done.stdout)
				last := whole - 1
				if args[0] == "doctor" {
					last -= whole / 8 // the time that a request takes has more or fewer digits
				}
				for _, left := range []int{0, whole / 2, last} {
					for _, failure := range []error{syscall.ENOSPC, syscall.EPIPE} {
						r := s.runAs(t.Context(), func(p *process) { p.stdout = &narrow{left, failure} }, args...)
						want, says := done.code, ""
						switch {
						case errors.Is(failure, syscall.ENOSPC):
							want, says = exitFailed, "no space left"
						case args[0] == "list", args[0] == "stats":
							want = exitDone
						}
						if r.code != want || (says == "") != (r.stderr == "") || !strings.Contains(r.stderr, says) {
							t.Errorf("%v after %d of %d bytes: %+v", failure, left, whole, r)
						}
					}
				}
			})
		}
	}
}

// TestClosedPipeDoesNotEndChanges: a bulk change whose reader has gone is made as a whole.
func TestClosedPipeDoesNotEndChanges(t *testing.T) {
	for _, form := range []string{"table", "json"} {
		s := newStage(t)
		for n := range 3 {
			s.store(t, planID(n*24*60), workflow.Completed, "plan")
		}
		closed := func(p *process) { p.stdout = &narrow{0, syscall.EPIPE} }
		r := s.runAs(t.Context(), closed, "hold", "2025-10-20..2025-10-25", "--yes", "--output", form)
		held, err := s.vault.Admin().Holds(t.Context())
		if err != nil || len(held) != 3 || r.code != exitDone {
			t.Errorf("%s: %d days are held, %+v: %v", form, len(held), r, err)
		}
	}
}
