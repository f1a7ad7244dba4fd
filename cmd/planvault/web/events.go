package web

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"time"
)

const (
	// beat is the time between two signs of life. Without any for three of them, a page says that it is stale.
	beat = 15 * time.Second
	// writeLimit is how long one event may take to leave.
	writeLimit = 30 * time.Second
)

// change is the data of an event: what differs between two states.
type change struct {
	Now   time.Time         `json:"now"`             // the store's clock
	Title *string           `json:"title,omitempty"` // what precedes the title of the window, if that changed
	Lists map[string]list   `json:"lists,omitempty"` // by the ID of the element that has the rows
	Texts map[string]string `json:"texts,omitempty"` // by the ID of the element, as HTML
}

// list is what changed in a list.
type list struct {
	Order []string          `json:"order,omitzero"` // the keys of all rows, if their order changed
	Rows  map[string]string `json:"rows,omitempty"` // the rows that changed, by their keys, as HTML
}

// row is a row of a list.
type row interface {
	comparable
	key() string
}

// differ returns what changed in a list. render returns a row as HTML.
func differ[R row](before, after []R, render func(R) string) (l list, changed bool) {
	old := map[string]R{}
	for _, r := range before {
		old[r.key()] = r
	}
	l.Rows = map[string]string{}
	for _, r := range after {
		if was, there := old[r.key()]; !there || was != r {
			l.Rows[r.key()] = render(r)
		}
	}
	if keys := keysOf(after); !slices.Equal(keys, keysOf(before)) {
		l.Order = keys
	}
	return l, l.Order != nil || len(l.Rows) > 0
}

func keysOf[R row](rows []R) []string {
	keys := make([]string, len(rows))
	for i, r := range rows {
		keys[i] = r.key()
	}
	return keys
}

// changeOf returns the change from one state to another. It is everything for a viewer who has seen nothing: before is nil.
func (s *Server) changeOf(before, after *state) change {
	all := before == nil
	if all {
		before = &state{}
	}
	c := change{Now: after.clock(), Lists: map[string]list{}, Texts: map[string]string{}}
	planRow := func(r planRow) string { return s.fragment("plan-row", after, r) }
	if l, changed := differ(before.stuck, after.stuck, planRow); changed {
		c.Lists["stuck"] = l
	}
	if l, changed := differ(before.open, after.open, planRow); changed {
		c.Lists["open"] = l
	}
	if l, changed := differ(before.members, after.members, func(r memberRow) string { return s.fragment("member-row", after, r) }); changed {
		c.Lists["members"] = l
	}
	if all || before.counts != after.counts {
		c.Title = new(after.counts.title())
		c.Texts["alarm"] = s.fragment("alarm", after, after.counts)
		c.Texts["counts"] = s.fragment("counts", after, after.counts)
		c.Texts["hidden"] = s.fragment("hidden", after, after.counts)
	}
	if all || before.failure != after.failure {
		c.Texts["failure"] = s.fragment("failure", after, after.failure)
	}
	return c
}

// events sends the open plans and the fleet to a viewer, and then what changes, until the viewer leaves or the server
// closes.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	if s.viewers.Add(1) > int64(s.o.MaxViewers) {
		defer s.viewers.Add(-1)
		w.Header().Set("Retry-After", "60")
		http.Error(w, "too many viewers", http.StatusServiceUnavailable)
		return
	}
	defer s.viewers.Add(-1)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	if r.Method == http.MethodHead {
		return
	}
	out := stream{w: w, control: http.NewResponseController(w)}
	_ = s.follow(r.Context(), out) // the viewer has left, or the server closes
}

// follow sends changes as they come, and signs of life between them.
func (s *Server) follow(ctx context.Context, out stream) error {
	var seen *state
	if err := out.send("retry: 3000\n\n"); err != nil {
		return err
	}
	alive := time.NewTicker(beat)
	defer alive.Stop()
	sign := func() error { return out.event(": alive\nevent: beat", change{Now: s.clock()}) }
	for {
		look, leave := s.looks.join(ctx, struct{}{})
		err := rest(ctx, look.done, alive.C, sign)
		leave()
		if err == nil {
			err = look.err
		}
		if err != nil {
			return err
		}
		if next := look.value; seen == nil || !next.same(seen) {
			if err := out.event("event: change", s.changeOf(seen, next)); err != nil {
				return err
			}
			seen = next
		}
		if err := rest(ctx, time.After(time.Until(look.expires)), alive.C, sign); err != nil {
			return err
		}
	}
}

// rest waits until something is done, and calls sign at each beat meanwhile.
func rest[T any](ctx context.Context, done <-chan T, beats <-chan time.Time, sign func() error) error {
	for {
		select {
		case <-done:
			return nil
		case <-beats:
			if err := sign(); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// stream is an answer that does not end.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

// event sends an event with some fields and c as its data.
func (o stream) event(fields string, c change) error {
	data, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return o.send(fields + "\ndata: " + string(data) + "\n\n")
}

func (o stream) send(text string) error {
	if err := o.control.SetWriteDeadline(time.Now().Add(writeLimit)); err != nil {
		return err
	}
	if _, err := io.WriteString(o.w, text); err != nil {
		return err
	}
	return o.control.Flush()
}

// fragment renders a part of a page.
func (s *Server) fragment(name string, at *state, data any) string {
	var b bytes.Buffer
	if err := s.pages.ExecuteTemplate(&b, name, part{at.clock(), data}); err != nil {
		panic(err) // the templates and their data are ours
	}
	return b.String()
}
