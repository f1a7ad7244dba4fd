package report

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/planvault/azblob/plugins"
	"github.com/planvault/azblob/workflow"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestTicks(t *testing.T) {
	for _, test := range []struct {
		from time.Duration // after noon
		long time.Duration
		want string
	}{
		{0, 10 * time.Millisecond, "12:00:00 .002 .004 .006 .008 .010"},
		{990 * time.Millisecond, 20 * time.Millisecond, "12:00:00.990 .995 12:00:01 .005 .010"},
		{300 * time.Millisecond, 5 * time.Second, "12:00:01 12:00:02 12:00:03 12:00:04 12:00:05"},
		{7 * time.Second, 4 * time.Minute, "12:01 12:02 12:03 12:04"},
		{11 * time.Hour, 5 * time.Hour, "23:00 03-02 00:00 01:00 02:00 03:00 04:00"},
		{0, 50 * day, "2026-03-02 2026-03-09 2026-03-16 2026-03-23 2026-03-30 2026-04-06 2026-04-13 2026-04-20"},
	} {
		s := scale{noon.Add(test.from), noon.Add(test.from + test.long)}
		var got []string
		for _, tick := range s.ticks(8) {
			got = append(got, tick.Label)
			if tick.X < 0 || tick.X > 100 {
				t.Errorf("%v: a tick at %v", test.long, tick.X)
			}
		}
		if strings.Join(got, " ") != test.want {
			t.Errorf("%v after noon, %v: %s\nwant %s", test.from, test.long, strings.Join(got, " "), test.want)
		}
	}
}

// TestTicksOfAnyLength checks that each length of time has some ticks, but not too many.
func TestTicksOfAnyLength(t *testing.T) {
	for long := 10 * time.Millisecond; long < 80*365*day; long += long / 7 {
		if n := len(scale{noon, noon.Add(long)}.ticks(8)); n < 2 || n > 8 {
			t.Errorf("%v: %d ticks", long, n)
		}
	}
}

// attempts returns the node of an action with attempts that last a second each, with the outcomes as letters: f is
// failed, s succeeded, i interrupted. An o is an attempt in progress at the end.
func attempts(letters string, from time.Time) *Node {
	a := &workflow.Action{State: workflow.State{Status: workflow.Completed, Start: from}}
	at := from
	for _, l := range letters {
		t := workflow.Attempt{Start: at, End: at.Add(time.Second)}
		switch l {
		case 'f':
			t.Err = &plugins.Error{Message: "no"}
		case 'i':
			t.End = time.Time{}
		case 'o':
			t.End, a.State.Status = time.Time{}, workflow.Running
		}
		a.Attempts = append(a.Attempts, t)
		at = at.Add(time.Second)
	}
	a.State.End = at
	p := &workflow.Plan{State: workflow.State{Status: workflow.Running}, Blocks: []*workflow.Block{{Sequences: []*workflow.Sequence{{Actions: []*workflow.Action{a}}}}}}
	return NewOutline(p, at).Children[0].Children[0].Children[0]
}

func TestBars(t *testing.T) {
	for _, test := range []struct {
		letters string
		long    time.Duration // of the timeline
		want    string
	}{
		{"", time.Minute, ""},
		{"s", 10 * time.Second, "0+10 attempt 1: succeeded, 1s"},
		{"fs", 10 * time.Second, "0+10 attempt 1: failed, 1s; 10+10 attempt 2: succeeded, 1s"},
		{"io", 10 * time.Second, "0+10 attempt 1: interrupted; 10+10 attempt 2: running, 1s"},
		{"ffff", 10 * time.Second, "0+10 attempt 1: failed, 1s; 10+10 attempt 2: failed, 1s; 20+10 attempt 3: failed, 1s; 30+10 attempt 4: failed, 1s"},
		{"ffffs", 1000 * time.Second, "0+0.4 attempts 1 to 4: failed; 0.4+0.1 attempt 5: succeeded, 1s"},
		{strings.Repeat("f", 5000) + "i", 5001 * time.Second, "0+99.98 attempts 1 to 5000: failed; 99.98+0.02 attempt 5001: interrupted"},
	} {
		var got []string
		for _, b := range (scale{noon, noon.Add(test.long)}).bars(attempts(test.letters, noon)) {
			got = append(got, fmt.Sprintf("%.4g+%.2g %s", b.X, b.W, b.Text))
		}
		want := strings.Replace(test.want, "99.98 attempts", "1e+02 attempts", 1)
		if strings.Join(got, "; ") != want {
			t.Errorf("%.9s: %s\nwant %s", test.letters, strings.Join(got, "; "), want)
		}
	}
}

// TestAbsurdTimes checks that a few wrong times don't spoil the scale for all others.
func TestAbsurdTimes(t *testing.T) {
	for _, wrong := range []time.Time{{}, time.Unix(-1, 0), noon.Add(-48 * time.Hour), noon.Add(48 * time.Hour), time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)} {
		p := &workflow.Plan{ID: workflow.NewV7At(noon), State: workflow.State{Status: workflow.Completed, Start: noon, End: noon.Add(time.Hour)}}
		p.Blocks = []*workflow.Block{{State: workflow.State{Status: workflow.Completed, Start: wrong, End: wrong}}}
		s, ok := newScale(NewOutline(p, noon.Add(2*time.Hour)), noon.Add(2*time.Hour))
		if !ok || !s.from.Equal(noon) || !s.to.Equal(noon.Add(time.Hour)) {
			t.Errorf("%v: the scale is %v", wrong, s)
		}
		if x := s.at(wrong); x != 0 && x != 100 {
			t.Errorf("%v is at %v", wrong, x)
		}
	}
}

func TestNoTimes(t *testing.T) {
	if s, ok := newScale(NewOutline(nil, noon), noon); ok {
		t.Errorf("an empty plan has the scale %v", s)
	}
	p := &workflow.Plan{State: workflow.State{Status: workflow.Completed, Start: noon, End: noon}}
	if s, ok := newScale(NewOutline(p, noon), noon); !ok || s.to.Sub(s.from) != 10*time.Millisecond {
		t.Errorf("a plan that took no time has the scale %v, %t", s, ok)
	}
}
