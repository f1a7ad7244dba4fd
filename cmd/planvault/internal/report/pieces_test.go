package report_test

import (
	"errors"
	"fmt"
	"html"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/planvault/azblob/cmd/planvault/internal/report"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/workflow"
)

// TestPieces shows a plan of 2,400 actions in pieces. The page has what failed, and leads to all actions, each of which is in
// one piece.
func TestPieces(t *testing.T) {
	p, now := plantest.Sized(2, 1, 1200), time.Now()
	for o := range workflow.Walk(p) {
		*o.Header().State = workflow.State{Status: workflow.Completed, Start: now, End: now.Add(time.Second)}
	}
	bad := p.Blocks[1].Sequences[0].Actions[777]
	bad.State.Status = workflow.Failed
	p.Blocks[1].State.Status, p.Blocks[1].Sequences[0].State.Status = workflow.Failed, workflow.Failed
	show := func(group string, from int) string {
		var b strings.Builder
		o := report.Options{Piece: group, From: from, PieceURL: func(group string, from int) string { return fmt.Sprintf("/piece?%s&%d", group, from) }}
		if err := report.Write(&b, p, o); err != nil {
			t.Fatalf("%s from %d: %v", group, from, err)
		}
		return b.String()
	}
	action := regexp.MustCompile(`<details class="node action[^>]*>\s*<summary>.*\s*<div class="body" id="(\w+)"`)
	link := regexp.MustCompile(`<a href="/piece\?(\w+)&amp;(\d+)">([^<]*)`)
	page := show("", 0)
	if n := len(action.FindAllString(page, -1)); n != 1 || len(page) > 30_000 || !strings.Contains(page, html.EscapeString(bad.Name)) {
		t.Errorf("the page has %d actions and %d bytes", n, len(page))
	}
	for _, part := range strings.Split(page, "<summary")[1:] {
		if summary, _, _ := strings.Cut(part, "</summary>"); strings.Contains(summary, "<a ") {
			t.Errorf("a summary has a link, so that a click may mean both: %s", summary)
		}
	}
	found := map[string]int{}
	for _, l := range link.FindAllStringSubmatch(page, -1) {
		for group, from := l[1], 0; group != ""; {
			piece := show(group, from)
			for _, a := range action.FindAllStringSubmatch(piece, -1) {
				found[a[1]]++
			}
			group = ""
			for _, next := range link.FindAllStringSubmatch(piece, -1) {
				if next[3] == "Later" {
					group = next[1]
					fmt.Sscan(next[2], &from)
				}
			}
		}
	}
	for anchor, n := range found {
		if n != 1 {
			t.Errorf("action %s is in %d pieces", anchor, n)
		}
	}
	if len(found) != 2400 || found[action.FindStringSubmatch(page)[1]] != 1 {
		t.Errorf("the pieces have %d actions", len(found))
	}
	for _, o := range []report.Options{{Piece: "n1"}, {Piece: "none"}, {Piece: "n2", From: 1200}} {
		o.PieceURL = func(string, int) string { return "" }
		if err := report.Write(io.Discard, p, o); !errors.Is(err, report.ErrNoPiece) {
			t.Errorf("%s from %d: %v", o.Piece, o.From, err)
		}
	}
}
