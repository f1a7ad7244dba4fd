package mirror_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/hooked"
	"github.com/planvault/azblob/internal/vaulttest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/memvault"
	"github.com/planvault/azblob/storage/mirror"
	"github.com/planvault/azblob/workflow"
)

// pause and signal name the notes of package fleet.
func pause(p *workflow.Plan) string { return fmt.Sprintf("pause-%x", p.ID[:]) }

func signal(p *workflow.Plan, number int) string {
	return fmt.Sprintf("signal-%x-%04d", p.ID[:], number)
}

// putNote stores a note, in place of one that is there.
func putNote(t *testing.T, v storage.Vault, name, text string) {
	t.Helper()
	c := vaulttest.Offered[storage.Control](v)
	there, err := c.FindNote(t.Context(), name)
	if err == nil || errors.Is(err, storage.ErrNotFound) {
		_, err = c.PutNote(t.Context(), storage.Note{Name: name, Text: []byte(text), Version: there.Version})
	}
	must(t, err)
}

func dropNote(t *testing.T, v storage.Vault, name string) {
	t.Helper()
	c := vaulttest.Offered[storage.Control](v)
	n, err := c.FindNote(t.Context(), name)
	if err == nil {
		err = c.RemoveNote(t.Context(), name, n.Version)
	}
	must(t, err)
}

// notes returns the pauses and signals of a vault.
func notes(t *testing.T, v storage.Vault) (list []string) {
	t.Helper()
	c := vaulttest.Offered[storage.Control](v)
	r, err := c.Roster(t.Context())
	must(t, err)
	for _, n := range r.Notes {
		if strings.HasPrefix(n.Name, "pause-") || strings.HasPrefix(n.Name, "signal-") {
			n, err := c.FindNote(t.Context(), n.Name)
			must(t, err)
			list = append(list, n.Name+" "+string(n.Text))
		}
	}
	return list
}

// tally counts the rosters of a vault, and its calls for pauses and signals.
func tally(v storage.Vault, calls map[string]int) storage.Vault {
	var mu sync.Mutex
	return hooked.Wrap(v, func(c *hooked.Call) error {
		mu.Lock()
		defer mu.Unlock()
		if c.Op == "Roster" || strings.HasPrefix(c.Note.Name, "pause-") || strings.HasPrefix(c.Note.Name, "signal-") {
			calls[c.Op]++
		}
		return c.Do()
	})
}

// mirrors are the two ways to bring a copy up to date.
var mirrors = map[string]func(w *world, from, to storage.Vault) error{
	"run": func(w *world, from, to storage.Vault) error {
		_, err := mirror.Run(w.t.Context(), mirror.Pair{Source: from, Copy: to}, mirror.Options{By: by, Concurrency: 1})
		return err
	},
	"follow": func(w *world, from, to storage.Vault) error { return w.follow(from, to, 1, mirror.FollowOptions{}) },
}

// eachMirror runs a test for each of them.
func eachMirror(t *testing.T, test func(t *testing.T, w *world, to *memvault.Vault, mirrored func(from, to storage.Vault) error)) {
	for name, mirrored := range mirrors {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 1)
				test(t, w, memvault.New(nil, memvault.Options{}), func(from, to storage.Vault) error { return mirrored(w, from, to) })
			})
		})
	}
}

// TestNotes mirrors pauses and signals as they come, change and go. What has not changed takes no request, and other notes are
// not copied.
func TestNotes(t *testing.T) {
	eachMirror(t, func(t *testing.T, w *world, to *memvault.Vault, mirrored func(from, to storage.Vault) error) {
		p, waits := created(t, w.from, workflow.Running), created(t, w.from, workflow.NotStarted)
		steps := []struct {
			what   string
			happen func()
			copied int
			gone   int
		}{
			{"a pause and signals", func() {
				putNote(t, w.from, pause(waits), `{"by":"ana"}`)
				putNote(t, w.from, signal(p, 1), `{"name":"go","payload":[1, 2]}`)
				putNote(t, w.from, signal(p, 2), `{"name":"go"}`)
				putNote(t, w.from, "another-pause", `{}`)
			}, 3, 0},
			{"nothing", func() {}, 0, 0},
			{"another pause", func() {
				dropNote(t, w.from, pause(waits))
				putNote(t, w.from, pause(waits), `{"by":"eve"}`)
				putNote(t, w.from, signal(p, 3), `{"name":"more"}`)
			}, 2, 0},
			{"a resume", func() { dropNote(t, w.from, pause(waits)) }, 0, 1},
			{"an end", func() {
				moveOn(t, w.from, p, workflow.Completed)
				for i := range 3 {
					dropNote(t, w.from, signal(p, i+1))
				}
			}, 0, 3},
		}
		for _, step := range steps {
			step.happen()
			time.Sleep(time.Minute)
			source, replica := map[string]int{}, map[string]int{}
			must(t, mirrored(tally(w.from, source), tally(to, replica)))
			if got, want := notes(t, to), notes(t, w.from); !slices.Equal(got, want) {
				t.Errorf("%s: the copy has %q, and the source %q", step.what, got, want)
			}
			if source["Roster"] != 1 || source["FindNote"] != step.copied+step.gone || replica["PutNote"] != step.copied || replica["RemoveNote"] != step.gone {
				t.Errorf("%s: the source has %v, and the copy %v", step.what, source, replica)
			}
			equal(t, w.from, to)
		}
	})
}

// TestNotesOfADryRun counts the notes that a run would copy and remove.
func TestNotesOfADryRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, to := memvault.New(nil, memvault.Options{}), memvault.New(nil, memvault.Options{})
		p := created(t, from, workflow.Running)
		time.Sleep(time.Hour)
		late := created(t, from, workflow.Running)
		putNote(t, from, signal(p, 1), `{"name":"go"}`)
		putNote(t, from, pause(late), `{}`)
		before := mirror.Options{Before: time.Now().Add(-time.Minute)}
		for _, o := range []struct {
			mirror.Options
			want int
		}{{mirror.Options{DryRun: true}, 2}, {before, 1}, {mirror.Options{DryRun: true}, 1}, {mirror.Options{}, 1}, {mirror.Options{}, 0}} {
			if r := run(t, from, to, o.Options); r.Notes != o.want {
				t.Errorf("%+v: %+v", o, r)
			}
		}
		dropNote(t, from, signal(p, 1))
		for _, o := range []mirror.Options{{DryRun: true}, {}} {
			if r := run(t, from, to, o); r.Notes != 1 {
				t.Errorf("%+v: %+v", o, r)
			}
		}
	})
}

// TestPlansKnowTheirNotes pauses a plan, or signals it, while a mirror runs, at each of its calls, and stops the mirror at each
// later one. A plan of the copy never has seen a pause or a signal that the copy lacks.
func TestPlansKnowTheirNotes(t *testing.T) {
	type kind struct {
		mirror string
		seen   func(t *testing.T, v storage.Vault, p *workflow.Plan)
	}
	for name, k := range map[string]kind{"a pause, run": {"run", seesPause}, "a pause, follow": {"follow", seesPause}, "a signal, run": {"run", seesSignal}, "a signal, follow": {"follow", seesSignal}} {
		mirrored := mirrors[k.mirror]
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for begins := 1; begins < 30; begins += efforttest.Pick(6, 1, 1) {
					for dies := begins; dies < 36; dies++ {
						w, to := newWorld(t, 1), memvault.New(nil, memvault.Options{})
						p := created(t, w.from, workflow.Running)
						must(t, mirrored(w, w.from, to))
						putNote(t, w.from, pause(&workflow.Plan{ID: workflow.NewV7()}), `{}`) // is copied once
						calls := 0
						hook := func(c *hooked.Call) error {
							if calls++; calls == begins {
								k.seen(t, w.from, p)
							}
							if calls >= dies {
								return errDied
							}
							err := c.Do()
							if errors.Is(err, storage.ErrExists) {
								t.Errorf("%s is made again", c.Op)
							}
							return err
						}
						_ = mirrored(w, hooked.Wrap(w.from, hook), hooked.Wrap(to, hook))
						knowsNotes(t, to, p.ID)
						if calls >= begins && calls < dies {
							break // it does not come to more calls
						}
					}
				}
			})
		})
	}
}

// seesPause stores a pause, and then that its plan has seen it.
func seesPause(t *testing.T, v storage.Vault, p *workflow.Plan) {
	t.Helper()
	putNote(t, v, pause(p), `{"by":"ana"}`)
	p.Epoch, p.WakeAt, p.LastSignal = 1, time.Now().Add(time.Hour).UTC(), 1
	p.Paused = workflow.Attribution{By: "ana", At: time.Now().UTC()}
	update(t, v, p)
}

// seesSignal stores a signal, and then that an action of its plan has seen it.
func seesSignal(t *testing.T, v storage.Vault, p *workflow.Plan) {
	t.Helper()
	putNote(t, v, signal(p, 1), `{"name":"go"}`)
	a := p.Blocks[0].Sequences[0].Actions[0]
	a.State.Status = workflow.Running
	a.Attempts = []workflow.Attempt{{Start: time.Now(), Later: &workflow.Later{At: time.Now().Add(time.Hour), LastSignal: 1}}}
	update(t, v, a)
}

// knowsNotes checks that a vault has the notes that a plan has seen.
func knowsNotes(t *testing.T, v *memvault.Vault, id uuid.UUID) {
	t.Helper()
	p := read(t, v, id)
	there := strings.Join(notes(t, v), "\n")
	if p.Paused.By != "" && !strings.Contains(there, pause(p)) {
		t.Error("the copy of the plan is paused, and its pause was lost")
	}
	if l := p.Blocks[0].Sequences[0].Actions[0].Later(); l != nil && !strings.Contains(there, signal(p, l.LastSignal)) {
		t.Error("the copy of the plan has seen a signal that was lost")
	}
}

// TestNotesAndBudget ends a run before it has come to a plan that has ended. The plan's signal stays until then.
func TestNotesAndBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, to := memvault.New(nil, memvault.Options{}), memvault.New(nil, memvault.Options{})
		ends := created(t, from, workflow.Running)
		putNote(t, from, signal(ends, 1), `{"name":"go"}`)
		run(t, from, to, mirror.Options{})
		moveOn(t, from, ends, workflow.Completed)
		dropNote(t, from, signal(ends, 1))
		for range 3 {
			created(t, from, workflow.NotStarted)
		}
		slow := hooked.Wrap(from, func(c *hooked.Call) error { time.Sleep(time.Second); return c.Do() })
		for more := true; more; {
			more = run(t, slow, to, mirror.Options{Budget: time.Second, Concurrency: 1}).More
			if gone := len(notes(t, to)) == 0; gone != (read(t, to, ends.ID).State.Status == workflow.Completed) {
				t.Errorf("gone is %t, and there is more: %t", gone, more)
			}
		}
	})
}

// TestNotesStay meets a plan that can't be brought up to date and has ended in the source, and a roster that misses a note. The
// notes stay in the copy, and those of other plans go.
func TestNotesStay(t *testing.T) {
	eachMirror(t, func(t *testing.T, w *world, to *memvault.Vault, mirrored func(from, to storage.Vault) error) {
		bad, missed, other := created(t, w.from, workflow.Running), created(t, w.from, workflow.Running), created(t, w.from, workflow.Running)
		for _, p := range []*workflow.Plan{bad, missed, other} {
			putNote(t, w.from, pause(p), `{"by":"ana"}`)
		}
		must(t, mirrored(w.from, to))
		time.Sleep(time.Minute)
		moveOn(t, w.from, bad, workflow.Stopped)
		dropNote(t, w.from, pause(bad))
		dropNote(t, w.from, pause(other))
		_ = mirrored(hooked.Wrap(w.from, func(c *hooked.Call) error {
			if c.Op == "Read" && c.ID == bad.ID {
				return &storage.Error{Op: "Read", Plan: c.ID, Err: storage.ErrCorrupt}
			}
			err := c.Do()
			c.Roster.Notes = slices.DeleteFunc(c.Roster.Notes, func(n storage.Note) bool { return n.Name == pause(missed) })
			return err
		}), to)
		want := []string{pause(bad) + ` {"by":"ana"}`, pause(missed) + ` {"by":"ana"}`}
		if got := notes(t, to); !slices.Equal(got, want) {
			t.Errorf("the copy has %q, want %q", got, want)
		}
	})
}

// TestNotesOfAPromotedCopy promotes the copy when the mirror reads a note that is to be copied, or looks whether one is gone.
// Neither changes anything in the copy any more.
func TestNotesOfAPromotedCopy(t *testing.T) {
	for _, when := range []string{"it comes", "it goes"} {
		t.Run(when, func(t *testing.T) {
			eachMirror(t, func(t *testing.T, w *world, to *memvault.Vault, mirrored func(from, to storage.Vault) error) {
				p := created(t, w.from, workflow.Running)
				if when == "it goes" {
					putNote(t, w.from, pause(p), `{}`)
				}
				must(t, mirrored(w.from, to))
				was := notes(t, to)
				if when == "it goes" {
					dropNote(t, w.from, pause(p))
				} else {
					putNote(t, w.from, pause(p), `{}`)
				}
				source := hooked.Wrap(w.from, hooked.On("FindNote", func(c *hooked.Call) error {
					if c.Note.Name == pause(p) {
						must(t, mirror.Promote(t.Context(), to, by))
					}
					return c.Do()
				}))
				if err := mirrored(source, to); !errors.Is(err, mirror.ErrPromoted) {
					t.Error(err)
				}
				if got := notes(t, to); !slices.Equal(got, was) {
					t.Errorf("the promoted copy has %q, after %q", got, was)
				}
			})
		})
	}
}
