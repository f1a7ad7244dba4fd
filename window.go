package azblob

import (
	"bytes"
	"cmp"
	"context"
	"iter"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/storage"
)

// The service lists names in ascending order, and listings want the newest plan first. Names sort by the IDs in
// them, and IDs by their time, so a day is read in windows, from its end backwards. A listing with a delimiter names
// the minutes of a day that have plans, or the milliseconds of a minute. A window takes as many of them as should fit
// on a page.

// window is a range of one day's IDs.
type window struct {
	day
	from, to uuid.UUID // to is the first ID after the window
	start    uuid.UUID // where the part of the day begins that is wanted at all
	// limit is the size of a page. A window is read for about one page, and the rest is another window's. An unbounded
	// window is read to its end, in pages of this size.
	limit     int
	unbounded bool
}

// candidate is a plan that a listing leads to, before it is known to be one.
type candidate struct {
	planBlobs
	result    storage.ListResult
	truncated bool  // name and description are too long for metadata: the entry has them whole
	err       error // why the plan can't be read
}

// reading is what was read of a window.
type reading struct {
	plans []candidate // in ascending order
	blobs int         // how many blobs there are in the part that was read
	to    uuid.UUID   // the end of the window, or the first ID that did not fit on the page
	// ignored says that the service does not know where to begin a listing. Nothing was read.
	ignored bool
}

// reader reads one directory of the vault's days.
type reader interface {
	read(ctx context.Context, w window) (reading, error)
	// groups returns the minutes of a window that have plans, in ascending order, or its milliseconds if the window
	// lies within a minute. It may return others, too.
	groups(ctx context.Context, w window) ([]group, error)
}

// group is a minute or a millisecond that has plans. Its bounds are keys.
type group struct{ from, size uint64 }

func (g group) fine() bool { return g.size == aMillisecond }

// firstID returns an ID that sorts before those of a time, and after those of earlier milliseconds. The nearest time that a
// UUIDv7 can hold stands for a time that it can't.
func firstID(t time.Time) uuid.UUID {
	const last = 1<<48 - 1
	var ms uint64
	switch { // Go has times whose milliseconds overflow
	case t.After(time.UnixMilli(last)):
		ms = last
	case t.After(time.UnixMilli(0)):
		ms = uint64(t.UnixMilli())
	}
	return idOf(ms * aMillisecond)
}

func less(a, b uuid.UUID) bool { return bytes.Compare(a[:], b[:]) < 0 }

func later(a, b uuid.UUID) uuid.UUID {
	if less(a, b) {
		return b
	}
	return a
}

func (w window) wholeDay() bool { return w.from == firstID(w.date) }

// overlap is how much of a group lies in the window.
func (w window) overlap(g group) float64 {
	from, to := max(g.from, keyOf(w.from)), min(g.from+g.size, keyOf(w.to))
	if to <= from { // the window ends or begins within the last key
		return 1
	}
	return float64(to - from)
}

// within returns those of the groups that reach into the window.
func (w window) within(groups []group) []group {
	i, _ := slices.BinarySearchFunc(groups, w.from, func(g group, from uuid.UUID) int { return cmp.Compare(g.from+g.size-1, keyOf(from)) })
	j, _ := slices.BinarySearchFunc(groups, w.to, func(g group, to uuid.UUID) int {
		if less(idOf(g.from), to) {
			return -1
		}
		return 1
	})
	return groups[i:max(i, j)]
}

// end returns where a group ends in the window.
func (w window) end(g group) uuid.UUID {
	if end := idOf(g.from + g.size); less(end, w.to) {
		return end
	}
	return w.to
}

// until returns the window, cut off at now if now lies in the group.
func (w window) until(g group, now time.Time) window {
	if present := firstID(now); less(idOf(g.from), present) && less(present, w.end(g)) && less(w.from, present) {
		w.to = present
	}
	return w
}

// scan reads parts of days, at most one of each day, and yields their plans, newest first.
type scan struct {
	reader
	page  int // how many blobs a window should hold
	ahead int // how many windows are read at once
	// limit is how many plans are wanted; 0 for all. If aimed is set, the reader returns no plan that is not wanted,
	// and no more is read than should hold them. Otherwise the number of windows that are read at once grows with the
	// number of those that were used.
	limit int
	aimed bool
	now   time.Time // an estimate, which decides what to ask for and not what is found

	yield   func(candidate, error) bool
	readers sync.WaitGroup
	turns   chan struct{} // one for each request under way
	used    int           // windows
	yielded int           // plans
	vain    int           // windows and days without plans
	perDay  float64       // how many blobs a day is expected to hold; infinite if unknown
	// over is the container whose rest is skipped, because a listing of it failed or all of it was read. One is enough:
	// days are finished one after the other.
	over    string
	ignored bool // the service does not know where to begin a listing
}

// task is a window that is read.
type task struct {
	window
	groups   []group  // those that reach into the window; nil if they are unknown
	density  *density // of the groups
	expected float64  // how many blobs the window should hold

	done chan struct{} // closed when got and err are set
	got  reading
	err  error
}

const (
	// perPlan is how many blobs a plan has in plans/: an entry and an object.
	perPlan = 2
	// reserve is the part of a page that a window should fill, because pages may hold a little more than expected.
	reserve = 0.93
	// spare is how many pages a window may fill that has others around it.
	spare = 4
	// surplus is how much more than what is wanted a window should hold, because it may hold a little less.
	surplus = 1.4
	// growth is how much the density may change from a window to the next.
	growth = 16
)

// run yields the plans. An error comes in place of what is left of its day; the other days follow. Breaking off ends
// the requests under way.
func (s *scan) run(ctx context.Context, days []window) iter.Seq2[candidate, error] {
	return func(yield func(candidate, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer s.readers.Wait()
		defer cancel()
		s.yield, s.perDay, s.turns = yield, math.Inf(1), make(chan struct{}, max(1, s.ahead))
		s.each(ctx, s.days(ctx, days))
	}
}

// each reads windows, some of them ahead of their turn, and yields their plans. What does not fit on the page of a window
// is read by an each of its own, before the window's plans are yielded; the windows ahead wait meanwhile, and hold what
// they have read. It returns false when no more plans are wanted.
func (s *scan) each(ctx context.Context, tasks iter.Seq[*task]) bool {
	next, stop := iter.Pull(tasks)
	defer stop()
	var ahead []*task
	for {
		for s.more(ahead) {
			t, ok := next()
			if !ok {
				break
			}
			s.start(ctx, t)
			ahead = append(ahead, t)
		}
		if len(ahead) == 0 {
			return true
		}
		t := ahead[0]
		ahead = ahead[1:]
		if <-t.done; t.container != s.over && !s.finish(ctx, t) {
			return false
		}
	}
}

// more reports whether another window should be read at once with those that are.
func (s *scan) more(ahead []*task) bool {
	switch {
	case len(ahead) == 0:
		return true
	case len(ahead) >= s.ahead:
		return false
	case s.aimed:
		wanted := perPlan * float64(s.limit-s.yielded+s.vain)
		for _, t := range ahead {
			wanted -= t.expected
		}
		return wanted > 0
	}
	return s.limit == 0 || len(ahead) < s.used
}

func (s *scan) start(ctx context.Context, t *task) {
	t.done = make(chan struct{})
	if t.err != nil {
		close(t.done)
		return
	}
	s.readers.Go(func() {
		defer close(t.done)
		t.got, t.err = s.inTurn(ctx, t.window)
	})
}

// inTurn reads a window when fewer requests are under way than may be.
func (s *scan) inTurn(ctx context.Context, w window) (reading, error) {
	s.turns <- struct{}{}
	defer func() { <-s.turns }()
	return s.read(ctx, w)
}

// finish yields the plans of a window. What did not fit on its page comes first.
func (s *scan) finish(ctx context.Context, t *task) bool {
	if t.err == nil && t.got.ignored {
		s.readWhole(ctx, t)
	}
	if t.err != nil {
		s.over = t.container
		return s.yield(candidate{}, t.err)
	}
	s.used++
	if t.got.to != t.to {
		if !s.each(ctx, s.overflow(ctx, t)) {
			return false
		}
		if t.container == s.over {
			return true
		}
	}
	s.learn(t)
	if len(t.got.plans) == 0 {
		s.vain++
	}
	for _, p := range slices.Backward(t.got.plans) {
		s.yielded++
		if !s.yield(p, nil) {
			return false
		}
	}
	return true
}

// readWhole reads a window from the beginning of its day, where services begin that don't know startFrom, together with
// what is left of the day.
func (s *scan) readWhole(ctx context.Context, t *task) {
	s.ignored, s.over = true, t.container
	whole := t.window
	whole.from, whole.limit, whole.unbounded = firstID(t.date), blob.MaxPage, true
	t.got, t.err = s.inTurn(ctx, whole)
	t.got.plans = slices.DeleteFunc(t.got.plans, func(p candidate) bool { return less(p.keys.plan, t.start) })
}

// days yields the first windows of each day.
func (s *scan) days(ctx context.Context, days []window) iter.Seq[*task] {
	return func(yield func(*task) bool) {
		for _, d := range days {
			d.start, d.limit = d.from, s.page
			if s.ignored {
				d.limit, d.unbounded = blob.MaxPage, true
			}
			tasks := s.whole
			if !s.unmapped(d) {
				tasks = s.mapped
			}
			for t := range tasks(ctx, d) {
				if !yield(t) {
					return
				}
			}
		}
	}
}

// unmapped reports whether a day is read without asking for its minutes: because it should fit on a page, or because all
// of its plans may be wanted anyway.
func (s *scan) unmapped(w window) bool {
	return !s.aimed || s.ignored || s.perDay*w.share(s.now)*surplus <= float64(s.page)
}

// whole yields a window that fits.
func (s *scan) whole(_ context.Context, w window) iter.Seq[*task] {
	return slices.Values([]*task{{window: w, density: &density{}, expected: max(perPlan, s.perDay*w.share(s.now))}})
}

// mapped asks for the minutes of a day, and yields the windows that they are cut into, or the day as a whole if they say
// that it fits.
func (s *scan) mapped(ctx context.Context, w window) iter.Seq[*task] {
	groups, err := s.groupsOf(ctx, w)
	if err != nil {
		return slices.Values([]*task{{window: w, err: err}})
	}
	if len(groups) == 0 {
		if s.vain++; s.vain > 1 { // not only today has none
			s.perDay = 0
		}
	}
	d := &density{perMinute: estimate(groups, w, 4*s.limit)}
	if d.perMinute > 0 {
		if s.perDay = d.expect(w, groups...) / w.share(s.now); s.unmapped(w) {
			return s.whole(ctx, w)
		}
	} else if len(groups) < 3 { // a day that has just begun
		d.perMinute = perPlan
	}
	return s.cut(ctx, w, groups, d)
}

// cut yields the windows of a range whose groups are known, newest first. Each is as wide as the density says by then.
// Minutes of unknown density are asked for their milliseconds.
func (s *scan) cut(ctx context.Context, w window, groups []group, d *density) iter.Seq[*task] {
	return func(yield func(*task) bool) {
		groups := w.within(groups)
		for len(groups) > 0 && less(w.from, w.to) && w.container != s.over {
			last := len(groups) - 1
			if g := groups[last]; d.perMinute == 0 && !g.fine() {
				minute := w
				minute.from, minute.to = later(w.from, idOf(g.from)), w.end(g)
				fine, err := s.groupsOf(ctx, minute)
				if err != nil {
					yield(&task{window: w, err: err})
					return
				}
				d.count(g, fine)
				groups = slices.Concat(groups[:last], fine)
				continue
			}
			t := &task{window: w, density: d}
			if !s.aimed {
				t.limit = spare * s.page
			}
			t.from, t.expected = s.begin(w, groups, d)
			t.groups = t.within(groups)
			w.to = t.from
			if len(t.groups) == 1 && t.groups[0].fine() {
				t.to, t.limit, t.unbounded = t.end(t.groups[0]), blob.MaxPage, true
			}
			groups = w.within(groups)
			if !yield(t) {
				return
			}
		}
	}
}

// begin returns where the last window of a range should begin, and how many blobs it should hold.
func (s *scan) begin(w window, groups []group, d *density) (from uuid.UUID, expected float64) {
	aim := reserve * float64(s.page)
	if s.aimed {
		// One more, because the range may end before the plan of its last group.
		aim = min(aim, perPlan*(surplus*float64(max(1, s.limit-s.yielded))+1))
	}
	for _, g := range slices.Backward(groups) {
		n := d.expect(w, g)
		switch {
		case expected >= aim, g.fine() && expected > 0 && expected+n > aim:
			return from, expected
		case !g.fine() && expected+n > aim:
			passed := w.until(g, s.now)
			part := max(1, (aim-expected)/n*passed.overlap(g))
			return later(w.from, idOf(keyOf(passed.end(g))-uint64(part))), aim
		}
		from, expected = later(w.from, idOf(g.from)), expected+n
	}
	return from, expected
}

// overflow yields the windows of what did not fit on the page of a window. The page tells how dense they are, unless they
// lie within a minute that has more than another page.
func (s *scan) overflow(ctx context.Context, t *task) iter.Seq[*task] {
	if t.groups == nil {
		if t.groups, t.err = s.groupsOf(ctx, t.window); t.err != nil {
			return slices.Values([]*task{{window: t.window, err: t.err}})
		}
	}
	read, rest := t.window, t.window
	read.to, rest.from = t.got.to, t.got.to
	d := *t.density
	d.learn(read, t.groups, t.got.blobs)
	if left := rest.within(t.groups); len(left) == 1 && !left[0].fine() && (s.aimed || d.expect(rest, left...) > float64(s.page)) {
		d = density{}
	}
	return s.cut(ctx, rest, t.groups, &d)
}

// learn takes in how dense a window was.
func (s *scan) learn(t *task) {
	read := t.window
	read.to = t.got.to
	switch {
	case t.groups == nil:
		s.perDay = float64(t.got.blobs) / t.share(s.now)
	case s.aimed && t.got.blobs == 0:
		*t.density = density{} // the plans of the minute lie elsewhere in it: its milliseconds will tell
	default:
		t.density.learn(read, t.groups, t.got.blobs)
	}
}

func (s *scan) groupsOf(ctx context.Context, w window) ([]group, error) {
	s.turns <- struct{}{}
	defer func() { <-s.turns }()
	groups, err := s.reader.groups(ctx, w)
	return w.within(groups), err
}

// share returns the part of a day that lies in a window and before now.
func (w window) share(now time.Time) float64 {
	from, to := keyOf(w.from), min(keyOf(w.to), keyOf(firstID(now)))
	if to <= from { // written by a clock ahead
		to = keyOf(w.to)
	}
	return float64(max(1, to-from)) / aDay
}

// density is how many blobs a minute that has plans holds, and a millisecond; 0 if unknown.
type density struct{ perMinute, perMillisecond float64 }

// expect returns how many blobs groups should hold in a window.
func (d *density) expect(w window, groups ...group) (n float64) {
	for _, g := range groups {
		if g.fine() {
			n += max(perPlan, d.perMillisecond) * w.overlap(g) / aMillisecond
		} else {
			n += d.perMinute * w.overlap(g) / aMinute
		}
	}
	return n
}

// estimate returns how many blobs a minute of the latest groups holds, by how many minutes among them have no plans. It
// returns 0 if all of them have, because that tells nothing.
func estimate(groups []group, w window, latest int) (perMinute float64) {
	if len(groups) == 0 {
		return 0
	}
	from := keyOf(w.from)
	if earlier := len(groups) - latest; earlier > 0 {
		groups = groups[earlier:]
		from = groups[0].from
	}
	n := float64(len(groups))
	minutes := float64(groups[len(groups)-1].from/aMinute-from/aMinute) + 1
	if n >= minutes {
		return 0
	}
	return -perPlan * math.Log(1-n/minutes) * minutes / n
}

// count takes in the milliseconds of a minute that have plans. The last of them tells how much of the minute has passed,
// or was wanted if a filter cuts it, unless there are very few.
func (d *density) count(g group, fine []group) {
	passed := float64(aMinute)
	if n := len(fine); n > 2 {
		passed = float64(fine[n-1].from + aMillisecond - g.from)
	}
	d.perMinute = max(perPlan, perPlan*float64(len(fine))*aMinute/passed)
}

// learn takes in how many blobs the groups of a window hold.
func (d *density) learn(w window, groups []group, blobs int) {
	var minutes, milliseconds float64
	for _, g := range w.within(groups) {
		if g.fine() {
			milliseconds++
		} else {
			minutes += w.overlap(g) / aMinute
		}
	}
	switch {
	case milliseconds > 0:
		d.perMillisecond = float64(blobs) / milliseconds
	case minutes > 0:
		now := max(perPlan, float64(blobs)/minutes)
		if was := d.perMinute; was > 0 {
			now = min(max(now, was/growth), was*growth)
		}
		d.perMinute = now
	}
}
