package azblob

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// What may be concluded from the blobs of a plan that is not as it should be. Recovery and Create decide by the same table,
// and Check names problems by it.

// sight is what was seen of an entry or an object.
type sight int

const (
	absent sight = iota
	unreadable
	notStarted
	running
	final
)

// sightOf reads the status in a blob's metadata.
func sightOf(item *blob.Item) sight {
	if item == nil {
		return absent
	}
	s, err := listedState(item.Metadata)
	switch {
	case err != nil:
		return unreadable
	case s.Status.Final():
		return final
	case s.Status == workflow.NotStarted:
		return notStarted
	}
	return running
}

// signs are what diagnose decides by.
type signs struct {
	entry, object sight
	// marker and deleteMarker say whether they are there.
	marker, deleteMarker bool
	// marked says that the plans of the day have markers while they are open.
	marked bool
	// young says that something of the plan was written so recently that its writer may still be at work; youngDelete says it
	// of the delete marker alone.
	young, youngDelete bool
	// thorough is RecoverOptions.Thorough.
	thorough bool
	// parts says that there are sub-objects, or that they were not looked for.
	parts bool
}

// finding is what is wrong with a plan, and so what to do about it.
type finding int

const (
	// Nothing is wrong: the plan is final, or open.
	settledPlan finding = iota
	openPlan
	// tooYoung: a writer may still be at work.
	tooYoung
	// remains of a Create or a Delete: to be removed.
	remains
	// lostObject and lostEntry: the rest of the plan is there, so no crash of ours left it. The entry can be restored.
	lostObject
	lostEntry
	restorableEntry
	// unreadableState: metadata that can't be read.
	unreadableState
	// leftDelete: a delete marker on a whole plan, of a Delete that did not come to its commit.
	leftDelete
	// unsettledPlan: a completion that did not come to the object.
	unsettledPlan
	// leftMarker: a completion that did not come to the marker.
	leftMarker
	// setBack: a final object beside an entry that is not.
	setBack
	// lostMarker: an open plan without one.
	lostMarker
	// unverified: a plan whose sub-objects have to be looked for.
	unverified
)

// diagnose is the table of decisions. It rests on two orders: Create writes the object last, and Delete writes a delete
// marker and then removes the object first. So an entry that has moved on from NotStarted without object and delete marker,
// and an object without entry, come from no crash.
func diagnose(s signs) finding {
	if s.entry == absent || s.object == absent {
		return diagnoseHalf(s)
	}
	switch {
	case s.deleteMarker && s.youngDelete:
		return tooYoung
	case s.deleteMarker:
		return leftDelete
	case s.entry == unreadable || s.object == unreadable:
		return unreadableState
	case s.entry == final && s.object == final && s.marker:
		return leftMarker
	case s.entry == final && s.object == final && s.thorough:
		return unverified
	case s.entry == final && s.object == final:
		return settledPlan
	case s.entry == final:
		return unsettledPlan
	case s.object == final:
		return setBack
	case s.thorough && s.marked && !s.marker:
		return lostMarker
	case s.entry == notStarted || s.thorough:
		return unverified
	}
	return openPlan
}

// diagnoseHalf is the part of the table for plans without entry or object.
func diagnoseHalf(s signs) finding {
	switch {
	case s.young:
		return tooYoung
	case s.object != absent:
		// A late copy of Create's last request leaves an object, too. It is not final, and nothing else of its plan is there: no
		// marker, which an open plan has, or where it may have none, no sub-objects.
		whole := s.object == final || s.object != unreadable && (s.marker || !s.marked && s.parts)
		if s.thorough && whole && !s.deleteMarker {
			return restorableEntry
		}
		return lostEntry
	case s.entry == unreadable:
		return unreadableState
	case (s.entry == running || s.entry == final) && !s.deleteMarker:
		return lostObject
	}
	return remains
}

// suspect is a plan that may need something, as it was found in a listing.
type suspect struct {
	keys keys
	// marker and deleteMarker are nil when they are not there.
	marker, deleteMarker *blob.Item
	// parts are listed by a thorough Recovery only, which listed says.
	parts  []blob.Item
	listed bool
	// marked says that the day's open plans have markers.
	marked bool
	// seen is the service's time when the plan was found; zero where no listing told of it. Ages are taken at it and not at the
	// later looks at the plan's blobs, which may be far apart: what was written between them is new, however old it has become.
	seen time.Time
}

// condition is a suspect with what a look at it has shown.
type condition struct {
	suspect
	now   stored
	grace time.Duration // to wait for
	found finding
}

// examine looks at a plan and says what is wrong with it. Where entry or object are not there it asks twice, unless the plan
// is too young to be touched anyway.
func (v *Vault) examine(ctx context.Context, s suspect, thorough bool) (condition, error) {
	c := condition{suspect: s}
	var err error
	if c.grace, err = v.graceOf(s.marker, s.deleteMarker); err != nil {
		return c, at("read metadata of marker", s.keys.marker(), err)
	}
	if c.now, err = v.look(ctx, "look for plan", s.keys); err != nil {
		return c, err
	}
	if item := c.now.any(); c.seen.IsZero() && item != nil {
		c.seen = item.Seen
	}
	c.found = diagnose(c.signs(thorough))
	if c.now.committed() || c.found == tooYoung {
		return c, nil
	}
	err = v.confirm(ctx, &c)
	return c, err
}

// confirm asks a second time for a plan that is not whole. A Create, a Delete or a withdrawal may have begun since the plan was
// listed; each of them writes a marker before all else.
func (v *Vault) confirm(ctx context.Context, c *condition) error {
	lost := c.found != remains
	if lost || c.marker == nil && c.deleteMarker == nil {
		since, err := v.suspectOf(ctx, c.suspect.keys)
		if err != nil {
			return err
		}
		if !sameBlob(since.marker, c.marker) || !sameBlob(since.deleteMarker, c.deleteMarker) {
			c.found = tooYoung
			return nil
		}
	}
	if err := v.confirmGone(ctx, c.suspect.keys, c.now.missing()...); err != nil {
		return err
	}
	if !lost {
		return nil
	}
	// The blobs that were there must still be there, unchanged. Otherwise a Delete has finished in the meantime.
	again, err := v.look(ctx, "confirm", c.suspect.keys)
	if err == nil && !(sameBlob(again.entry, c.now.entry) && sameBlob(again.object, c.now.object)) {
		c.found = tooYoung
	}
	return err
}

// sameBlob says whether two looks at a blob found the same version, or both found none.
func sameBlob(a, b *blob.Item) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.ETag == b.ETag
}

func (c condition) signs(thorough bool) signs {
	s := signs{
		entry: sightOf(c.now.entry), object: sightOf(c.now.object),
		marker: c.marker != nil, deleteMarker: c.deleteMarker != nil, marked: c.marked,
		youngDelete: young(c.deleteMarker, c.seen, c.grace), thorough: thorough,
		parts: len(c.parts) > 0 || !c.listed,
	}
	for _, item := range c.blobs() {
		s.young = s.young || young(item, c.seen, c.grace)
	}
	return s
}

func (c condition) blobs() []*blob.Item {
	b := belongings{stored: c.now, marker: c.marker, deleteMarker: c.deleteMarker, parts: c.parts}
	return b.all()
}

// wait says for how long the plan is still too young to be touched.
func (c condition) wait() time.Duration {
	var newest time.Time
	for _, item := range c.blobs() {
		if item.LastModified.After(newest) {
			newest = item.LastModified
		}
	}
	return newest.Add(c.grace).Add(margin(c.grace)).Add(time.Second).Sub(c.seen)
}

// String says what is wrong.
func (c condition) String() string {
	switch c.found {
	case remains:
		switch {
		case c.now.entry != nil:
			return "an entry without object: a create or delete was broken off"
		case c.marker == nil && c.deleteMarker == nil:
			return "sub-objects without a plan"
		}
		return "markers without a plan: a create or delete was broken off"
	case lostObject:
		return "an entry without object that is no remains of a create or delete: the object was lost from outside"
	case lostEntry, restorableEntry:
		return "an object without entry: the entry was lost from outside, or the object came late"
	case unreadableState:
		return "metadata that can't be read"
	case leftDelete:
		return "a delete marker on a whole plan: a delete was broken off before it began"
	case unsettledPlan:
		return "a final entry beside an object that is not: the last update was broken off"
	case leftMarker:
		return "a marker on a plan that is final: its last update was broken off"
	case setBack:
		return "a final object beside an entry that is not"
	case lostMarker:
		return "an open plan without a marker"
	}
	return ""
}

// err is the error of what can't be mended; nil for all other findings. It says what helps.
func (c condition) err() error {
	keys := c.suspect.keys
	switch c.found {
	case lostObject:
		return &storage.Error{Doing: "look for object", Blob: keys.object().String(), Err: fmt.Errorf("%w: it is missing beside an entry that was in use: restore the blob from a backup, or Delete the plan", storage.ErrCorrupt)}
	case lostEntry, restorableEntry:
		remedy := "Delete removes what is there"
		if diagnose(c.signs(true)) == restorableEntry {
			remedy = "Recover with Thorough restores it"
		}
		return &storage.Error{Doing: "look for entry", Blob: keys.entry().String(), Err: fmt.Errorf("%w: it is missing beside its object: %s", storage.ErrCorrupt, remedy)}
	case unreadableState:
		ref, item := keys.entry(), c.now.entry
		if sightOf(item) != unreadable {
			ref, item = keys.object(), c.now.object
		}
		_, err := listedState(item.Metadata)
		return at("read metadata", ref, err)
	}
	return nil
}

// suspectOf lists the markers of one plan.
func (v *Vault) suspectOf(ctx context.Context, keys keys) (suspect, error) {
	s := suspect{keys: keys, marked: true}
	prefix := openDir + keys.plan.String()
	for page, err := range v.client.List(ctx, keys.container, blob.ListOptions{Prefix: prefix, Metadata: true}) {
		if blob.Is(err, blob.AbsentContainer) {
			break
		}
		if err != nil {
			return s, at("list markers", keys.at(prefix), err)
		}
		for _, item := range page.Items {
			if s.seen.IsZero() {
				s.seen = item.Seen
			}
			switch item.Name {
			case keys.marker().Name:
				s.marker = &item
			case keys.deleteMarker().Name:
				s.deleteMarker = &item
			}
		}
	}
	return s, nil
}

// clear removes the remains of a plan: sub-objects, entry, markers. Each goes only in the version that was seen, so that what
// another process has begun with the same ID meanwhile stays. The sub-objects are listed again before anything that leads to
// them goes.
func (v *Vault) clear(ctx context.Context, c condition) error {
	keys := c.suspect.keys
	items, err := v.listParts(ctx, keys, kinds[:])
	if err != nil {
		return err
	}
	for _, item := range items {
		if _, err := c.old(item); err != nil {
			return err
		}
	}
	if err := v.removeParts(ctx, keys, targetsOf(items)); err != nil {
		return err
	}
	if err := v.confirmParts(ctx, keys, c.old); err != nil {
		return err
	}
	if c.now.entry != nil {
		if err := v.remove(ctx, "remove entry", keys, keys.entry(), blob.IfMatch(c.now.entry.ETag)); err != nil {
			return err
		}
	}
	// A marker that has changed is that of a Create which has begun since: all that was seen is gone.
	if err := v.removeMarker(ctx, keys, keys.marker(), c.marker); err != nil && !outrun(err) {
		return err
	}
	if err := v.removeMarker(ctx, keys, keys.deleteMarker(), c.deleteMarker); err != nil && !outrun(err) {
		return err
	}
	return nil
}

// targetsOf names blobs for removal, each in the version that was listed.
func targetsOf(items []blob.Item) []blob.Target {
	targets := make([]blob.Target, len(items))
	for i, item := range items {
		targets[i] = blob.Target{Name: item.Name, ETag: item.ETag}
	}
	return targets
}

// outrun says of an error that somebody else was faster: what was to be changed or removed has changed, or is gone.
func outrun(err error) bool {
	return errors.Is(err, storage.ErrConflict) || errors.Is(err, storage.ErrNotFound) && !errors.Is(err, storage.ErrCorrupt)
}

// old says that a sub-object was there when the plan was found. One that was written since is the work of another Create of the
// ID, or of a late request: what was read is no longer so, and the rest must go on leading to it.
func (c condition) old(item blob.Item) (bool, error) {
	if item.LastModified.Before(c.seen) {
		return true, nil
	}
	return false, at("remove sub-objects", c.suspect.keys.at(item.Name), fmt.Errorf("%w: it is new", storage.ErrConflict))
}

// removeMarker removes a marker in the version that was listed; nil stands for none. The error is ErrNotFound where somebody
// else has removed it.
func (v *Vault) removeMarker(ctx context.Context, keys keys, ref blob.Ref, listed *blob.Item) error {
	if listed == nil {
		return nil
	}
	err := v.client.Delete(ctx, ref, blob.IfMatch(listed.ETag))
	if blob.Is(err, blob.Absent, blob.AbsentContainer) {
		if err := v.confirmGone(ctx, keys, ref); err != nil {
			return err
		}
		return at("remove marker", ref, fmt.Errorf("%w: somebody else removed it", storage.ErrNotFound))
	}
	return at("remove marker", ref, err)
}
