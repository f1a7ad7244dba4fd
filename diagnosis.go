package azblob

import (
	"context"
	"time"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// What may be concluded from the blobs of a plan that is not as it should be. Recovery and Create decide by the same table,
// and Check names problems by it.

// sight is what was seen of an entry or an object.
type blobStatus int

const (
	absent blobStatus = iota
	unreadable
	notStarted
	running
	final
)

// sightOf reads the status in a blob's metadata.
func blobStatusOf(item *blob.Item) blobStatus {
	if item == nil {
		return absent
	}
	s, err := parseState(item.Metadata)
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
	entry, object blobStatus
	// marker and deleteMarker say whether they are there.
	marker, deleteMarker bool
	// marked says that the plans of the day have markers while they are open.
	marked bool
	// young says that something of the plan was written so recently that its writer may still be at work; youngDelete says it
	// of the delete marker alone.
	recent, recentDelete bool
	// thorough is RecoverOptions.Thorough.
	thorough bool
	// parts says that there are sub-objects, or that they were not looked for.
	parts bool
}

// finding is what is wrong with a plan, and so what to do about it.
type finding int

const (
	// Nothing is wrong: the plan is final, or open.
	finalPlan finding = iota
	openPlan
	// tooRecent: a writer may still be at work.
	tooRecent
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
	// unfinalized: a completion that did not come to the object.
	unfinalized
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
		return diagnoseIncomplete(s)
	}
	switch {
	case s.deleteMarker && s.recentDelete:
		return tooRecent
	case s.deleteMarker:
		return leftDelete
	case s.entry == unreadable || s.object == unreadable:
		return unreadableState
	case s.entry == final && s.object == final && s.marker:
		return leftMarker
	case s.entry == final && s.object == final && s.thorough:
		return unverified
	case s.entry == final && s.object == final:
		return finalPlan
	case s.entry == final:
		return unfinalized
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
func diagnoseIncomplete(s signs) finding {
	switch {
	case s.recent:
		return tooRecent
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

// diagnosis is a candidate with what a look at its entry and object has shown.
type diagnosis struct {
	planBlobs
	grace   time.Duration // how long to wait before anything is removed
	finding finding
}

// examine looks at a plan and says what is wrong with it. Where entry or object are not there it asks twice, unless the plan
// is too young to be touched anyway.
func (v *Vault) examine(ctx context.Context, b planBlobs, thorough bool) (diagnosis, error) {
	c := diagnosis{planBlobs: b}
	var err error
	if c.grace, err = v.graceOf(b.marker, b.deleteMarker); err != nil {
		return c, blobError("read metadata of marker", b.keys.marker(), err)
	}
	now, err := v.headPlan(ctx, "look for plan", b.keys)
	if err != nil {
		return c, err
	}
	c.entry, c.object = now.entry, now.object
	if item := c.entryOrObject(); c.seen.IsZero() && item != nil {
		c.seen = item.Seen
	}
	c.finding = diagnose(c.signs(thorough))
	if c.committed() || c.finding == tooRecent {
		return c, nil
	}
	err = v.confirm(ctx, &c)
	return c, err
}

// confirm asks a second time for a plan that is not whole. A Create, a Delete or a withdrawal may have begun since the plan was
// listed; each of them writes a marker before all else.
func (v *Vault) confirm(ctx context.Context, c *diagnosis) error {
	lost := c.finding != remains
	if lost || c.marker == nil && c.deleteMarker == nil {
		since, err := v.listMarkers(ctx, c.keys)
		if err != nil {
			return err
		}
		if !sameBlob(since.marker, c.marker) || !sameBlob(since.deleteMarker, c.deleteMarker) {
			c.finding = tooRecent
			return nil
		}
	}
	if err := v.confirmGone(ctx, c.keys, c.missing()...); err != nil {
		return err
	}
	if !lost {
		return nil
	}
	// The blobs that were there must still be there, unchanged. Otherwise a Delete has finished in the meantime.
	again, err := v.headPlan(ctx, "confirm", c.keys)
	if err == nil && !(sameBlob(again.entry, c.entry) && sameBlob(again.object, c.object)) {
		c.finding = tooRecent
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

func (c diagnosis) signs(thorough bool) signs {
	s := signs{
		entry: blobStatusOf(c.entry), object: blobStatusOf(c.object),
		marker: c.marker != nil, deleteMarker: c.deleteMarker != nil, marked: c.marked,
		recentDelete: recent(c.deleteMarker, c.seen, c.grace), thorough: thorough,
		parts: len(c.parts) > 0 || !c.partsListed,
	}
	for _, item := range c.all() {
		s.recent = s.recent || recent(item, c.seen, c.grace)
	}
	return s
}

// wait says for how long the plan is still too young to be touched.
func (c diagnosis) wait() time.Duration {
	var newest time.Time
	for _, item := range c.all() {
		if item.LastModified.After(newest) {
			newest = item.LastModified
		}
	}
	return newest.Add(c.grace).Add(margin(c.grace)).Add(time.Second).Sub(c.seen)
}

// String says what is wrong.
func (c diagnosis) String() string {
	switch c.finding {
	case remains:
		switch {
		case c.entry != nil:
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
	case unfinalized:
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
func (c diagnosis) err() error {
	keys := c.keys
	switch c.finding {
	case lostObject:
		return vaultError("look for object", keys.object(), "%w: it is missing beside an entry that was in use: restore the blob from a backup, or Delete the plan", storage.ErrCorrupt)
	case lostEntry, restorableEntry:
		remedy := "Delete removes what is there"
		if diagnose(c.signs(true)) == restorableEntry {
			remedy = "Recover with Thorough restores it"
		}
		return vaultError("look for entry", keys.entry(), "%w: it is missing beside its object: %s", storage.ErrCorrupt, remedy)
	case unreadableState:
		ref, item := keys.entry(), c.entry
		if blobStatusOf(item) != unreadable {
			ref, item = keys.object(), c.object
		}
		_, err := parseState(item.Metadata)
		return blobError("read metadata", ref, err)
	}
	return nil
}
