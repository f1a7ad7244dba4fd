package azblob

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/retention"
	"github.com/planvault/azblob/workflow"
)

// ExpiredDay is what became of a day that was to be dropped.
type ExpiredDay struct {
	Day    storage.Day
	Result ExpireResult
	// Open is the number of plans that are open, or that somebody is changing, and Plans has the first ten of
	// them. Both are set for [ExpireOpen] only, but Plans names a plan of another program for [ExpireForeign].
	Open  int
	Plans []uuid.UUID
	// Err says why the day could not be dropped. It is set for [ExpireFailed] only.
	Err error
}

// ExpireResult says what became of a day.
type ExpireResult string

// The results. A later Expire tries again to drop the days that were skipped.
const (
	ExpireDropped  ExpireResult = "dropped"  // in a dry run: it would be
	ExpireOpen     ExpireResult = "open"     // skipped: a plan is not final, or somebody is changing a final one
	ExpireHeld     ExpireResult = "held"     // skipped: the day is held
	ExpireBusy     ExpireResult = "busy"     // skipped: another Expire is at work on it, or died less than a minute ago
	ExpireUnmarked ExpireResult = "unmarked" // skipped: this code did not make the container, so open plans may have no markers
	ExpireForeign  ExpireResult = "foreign"  // skipped: another program has written plans in it
	ExpireFailed   ExpireResult = "failed"
)

// expiry is the expiry of one day.
type expiry struct {
	*store
	day day
	// empty says that the day is young, so it is dropped only if nothing is stored in it.
	empty bool
	// verify says not to trust the day's catalogue about plans of other programs.
	verify bool
	// policy says which final plans must stay, and reach which statuses it may remove. Without a reach, all final plans may
	// go.
	policy retention.Policy
	reach  retention.Reach
	result ExpiredDay
}

// expireMixed is the result of a day that has a final plan that must stay.
const expireMixed ExpireResult = "mixed"

// lease decides about a day by the list of the days.
func (x *expiry) lease() (ExpireResult, error) {
	switch {
	case !x.day.marked:
		return ExpireUnmarked, nil
	case x.day.lease == blob.LeasedForever:
		return ExpireHeld, nil
	case x.day.lease == blob.LeasedForATime:
		return ExpireBusy, nil
	case x.day.lease == blob.LeaseUnknown:
		return "", vaultError("look for lease", blob.Ref{Container: x.day.container}, "%w: the service does not tell whether the day is held, such as for a signature of one container", storage.ErrDenied)
	}
	return ExpireDropped, nil
}

// unclaimed decides about a day by its lease, and by the plans of other programs in it.
func (x *expiry) unclaimed(ctx context.Context) (ExpireResult, error) {
	result, err := x.lease()
	if err == nil && result == ExpireDropped && !x.empty && (x.verify || !x.day.hinted) {
		return x.foreignPlans(ctx)
	}
	return result, err
}

// content decides about a day by what is stored in it. The day is dropped only if two listings agree.
func (x *expiry) content(ctx context.Context) (ExpireResult, error) {
	dir := openDir
	if x.empty {
		dir = ""
	}
	for _, size := range pageSizes() {
		if result, err := x.contentBy(ctx, dir, size); err != nil || result != ExpireDropped {
			return result, err
		}
		// A plan that was stored before the mark, and has no marker any more, is listed now.
		if mixed, err := x.mixed(ctx, size); err != nil || mixed {
			return expireMixed, err
		}
	}
	return ExpireDropped, nil
}

// mixed reports whether one look at the day shows a final plan that must stay by the policy. If some statuses must stay at
// any age, so must anything that is not a whole plan.
func (x *expiry) mixed(ctx context.Context, size int) (bool, error) {
	switch x.reach {
	case retention.ReachFinished:
		return x.listMixed(ctx, size)
	case retention.ReachFinal:
		recent, err := x.recent(ctx, x.policy, x.reach, x.day, size)
		return recent > 0, err
	}
	return false, nil
}

// recent returns how many plans of a day are of a status within reach but ended too late. The catalogue of the day mostly
// shows that with one request; without one, the plans are listed.
func (s *store) recent(ctx context.Context, p retention.Policy, reach retention.Reach, d day, size int) (n int, err error) {
	f := storage.Filters{ByStatus: reach.Statuses(), EndedAfter: d.seen}
	for _, status := range f.ByStatus {
		if end := p.EndedBefore(status, d.seen); end.Before(f.EndedAfter) {
			f.EndedAfter = end.Add(-1)
		}
	}
	for c, err := range (search{s, f, true}).list(ctx, []day{d}, s.pages(size)) {
		if err != nil {
			return 0, err
		}
		if c.err == nil && isRecent(p, c.result.State, d) {
			n++
		}
	}
	return n, nil
}

// isRecent reports whether a policy keeps a final plan of a day because of when it ended.
func isRecent(p retention.Policy, s workflow.State, d day) bool {
	return !s.End.IsZero() && !s.End.Before(p.EndedBefore(s.Status, d.seen))
}

// listMixed is mixed by a listing with pages of a size.
func (x *expiry) listMixed(ctx context.Context, size int) (bool, error) {
	var last uuid.UUID // of an entry
	ref := blob.Ref{Container: x.day.container, Name: plansDir}
	for item, err := range x.listPages(ctx, "look for plans to keep", ref, blob.ListOptions{MaxResults: size, Metadata: true}) {
		if err != nil {
			return false, err
		}
		name, ok := parseName(item.Name)
		switch {
		case !ok, name.role != roleEntry && name.plan != last:
			return true, nil
		case name.role == roleEntry:
			last = name.plan
			r, _, err := x.format.parseMetadata(item.Metadata, name.plan, typeEntry)
			if err != nil || !slices.Contains(x.reach.Statuses(), r.State.Status) || isRecent(x.policy, r.State, x.day) {
				return true, nil
			}
		}
	}
	return false, nil
}

// contentBy is content by one listing with pages of a size.
func (x *expiry) contentBy(ctx context.Context, dir string, size int) (ExpireResult, error) {
	x.result.Open, x.result.Plans = 0, nil
	var last uuid.UUID
	ref := blob.Ref{Container: x.day.container, Name: dir}
	for item, err := range x.listPages(ctx, "look for open plans", ref, blob.ListOptions{MaxResults: size}) {
		switch {
		case err != nil:
			return "", err
		case item.Name == droppingName, x.empty && item.Name == catalogueName:
			continue
		case x.empty:
			return ExpireOpen, nil
		}
		// A stray under open/ counts as an open plan: somebody had a reason to write it.
		name, ok := parseName(item.Name)
		if ok && name.plan == last {
			continue // another marker of it
		}
		last = name.plan
		if x.result.Open++; ok && len(x.result.Plans) < firstPlans {
			x.result.Plans = append(x.result.Plans, name.plan)
		}
	}
	if x.result.Open > 0 {
		return ExpireOpen, nil
	}
	return ExpireDropped, nil
}

// foreignPlans decides about a day by the plans of other programs in it. The day is dropped only if two listings show none;
// the builder of a catalogue has seen as much. This comes before the lease, which would end before a large day is listed.
func (x *expiry) foreignPlans(ctx context.Context) (ExpireResult, error) {
	ref := blob.Ref{Container: x.day.container, Name: plansDir}
	for _, size := range pageSizes() {
		for item, err := range x.listPages(ctx, "look for plans of other programs", ref, blob.ListOptions{MaxResults: size, Metadata: true}) {
			if blob.Is(err, blob.AbsentContainer) {
				return x.gone(ctx)
			}
			if err != nil {
				return "", err
			}
			if name, ok := parseName(item.Name); ok && isForeign(item.Metadata) {
				x.result.Plans = []uuid.UUID{name.plan}
				return ExpireForeign, nil
			}
		}
	}
	return ExpireDropped, nil
}

// dropLease is how long the lease of an expiry lasts, which is more than its requests take.
const dropLease = time.Minute

// drop is the order of requests that drops a day. Before it looks for open plans, it writes a mark that every Create in this
// day looks for after writing its marker: one of the two sees the other. The lease is the fence. While it is active, no
// other Expire works on the day and nobody removes the mark. The removal of the container names the lease, so it has no
// effect if it comes late.
func (x *expiry) drop(ctx context.Context) (ExpireResult, error) {
	container := x.day.container
	mark := droppingOf(container)
	cond := blob.IfNew
	p, err := x.client.Head(ctx, mark)
	switch {
	case err == nil:
		cond = blob.IfMatch(p.ETag) // of an Expire that did not finish
	case blob.Is(err, blob.AbsentContainer):
		return x.gone(ctx)
	case !blob.Is(err, blob.Absent):
		return "", blobError("look for expiry", mark, err)
	}
	lease := uuid.NewString()
	switch err := x.client.AcquireLease(ctx, container, lease, dropLease); {
	case blob.Is(err, blob.Leased):
		return x.leased(ctx)
	case blob.Is(err, blob.AbsentContainer):
		return x.gone(ctx)
	case err != nil:
		return "", deniedLease(blobError("acquire lease", blob.Ref{Container: container}, forgetUnknown(err)))
	}
	// From here on, a failure leaves the lease and the mark for at most a minute.
	etag, err := x.client.Put(ctx, mark, nil, markerMetadata(uuid.NewString(), x.grace), cond)
	if err != nil {
		x.giveUp(ctx, lease, "")
		if blob.Is(err, blob.Mismatch) {
			return ExpireBusy, nil // the lease was over, and another Expire has begun
		}
		return "", blobError("write mark of expiry", mark, forgetUnknown(err))
	}
	if found, err := x.content(ctx); err != nil || found != ExpireDropped {
		x.giveUp(ctx, lease, etag)
		return found, err
	}

	// The commit point. If the container may be removed, the lease and the mark are left.
	err = x.client.DeleteContainer(ctx, container, lease)
	switch {
	case err == nil:
		x.containers.forget(container)
		return ExpireDropped, nil
	case blob.Is(err, blob.AbsentContainer): // an earlier attempt has removed it
		found, err := x.gone(ctx)
		if err != nil {
			x.giveUp(ctx, lease, etag)
		}
		return found, err
	case blob.Is(err, blob.Leased):
		x.giveUp(ctx, lease, etag)
		return ExpireBusy, nil // the lease was over, so no earlier attempt takes effect any more
	case blob.IsUnknown(err):
	default:
		x.giveUp(ctx, lease, etag)
	}
	return "", deniedLease(blobError("remove container", blob.Ref{Container: container}, err))
}

// leased decides about a day that somebody else has leased.
func (x *expiry) leased(ctx context.Context) (ExpireResult, error) {
	c, err := x.client.HeadContainer(ctx, x.day.container)
	switch {
	case blob.Is(err, blob.Absent, blob.AbsentContainer):
		return x.gone(ctx)
	case err != nil:
		return "", blobError("look for lease", blob.Ref{Container: x.day.container}, err)
	case c.Lease == blob.LeasedForever:
		return ExpireHeld, nil
	}
	return ExpireBusy, nil
}

// gone decides about a day whose container is absent by one response.
func (x *expiry) gone(ctx context.Context) (ExpireResult, error) {
	if err := x.confirmDropped(ctx, x.day.container); err != nil {
		return "", err
	}
	return ExpireDropped, nil
}

// giveUp releases the lease and then removes the mark, in the version that this Expire wrote. In the opposite
// order, a removal of the container that is still under way could drop a plan that was created in between. What
// can't be removed is left to Recovery.
func (x *expiry) giveUp(ctx context.Context, lease, mark string) {
	err := x.client.ReleaseLease(ctx, x.day.container, lease)
	if mark == "" || err != nil && !blob.Is(err, blob.Leased) {
		return
	}
	_ = x.client.Delete(ctx, droppingOf(x.day.container), blob.IfMatch(mark))
}

// firstPlans is how many plans a report names.
const firstPlans = 10
