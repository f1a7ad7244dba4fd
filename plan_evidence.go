package azblob

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// What the blobs of a plan say about it. Recovery, Create and Delete decide by the same table, and Check
// names problems by it.

// blobStatus is what was seen of an entry or an object: whether it exists, and the status in its metadata.
type blobStatus int

const (
	absent  blobStatus = iota
	foreign            // another program wrote it
	unreadable
	notStarted
	running
	final
)

// blobStatusOf reads the status in a blob's metadata.
func blobStatusOf(item *blob.Item) blobStatus {
	if item == nil {
		return absent
	}
	s, err := parseState(item.Metadata)
	switch {
	case errors.Is(err, storage.ErrForeign):
		return foreign
	case err != nil:
		return unreadable
	case s.Status.Final():
		return final
	case s.Status == workflow.NotStarted:
		return notStarted
	}
	return running
}

// restored reports whether an entry is as Restore wrote it.
func restored(entry *blob.Item) bool { return entry != nil && entry.Metadata[metaRestored] != "" }

// copied reports whether an entry or an object has the mark of a copy.
func copied(item *blob.Item) bool { return item != nil && item.Metadata[metaCopied] != "" }

// signs are what diagnose decides by.
type signs struct {
	entry, object blobStatus
	// marker and deleteMarker say whether these exist.
	marker, deleteMarker bool
	// marked says that the day's open plans have markers.
	marked bool
	// recent says that some blob of the plan is recent; recentDelete says it of the delete marker alone.
	recent, recentDelete bool
	// thorough is RepairOptions.Thorough.
	thorough bool
	// parts says that there are sub-objects, or that nobody looked for them.
	parts bool
	// unmarkedParts says that no vault may have written some of the sub-objects that were looked for.
	unmarkedParts bool
	// restored says that Restore wrote the entry, and nobody has updated it since.
	restored bool
}

// finding is what is wrong with a plan. It determines the repair.
type finding int

const (
	// finalPlan and openPlan: nothing is wrong.
	finalPlan finding = iota
	openPlan
	// foreignPlan: another program wrote it, so it is left alone.
	foreignPlan
	// tooRecent: another process may be at work on the plan.
	tooRecent
	// remains: a Create or Delete did not finish. They are to be removed.
	remains
	// lostObject and lostEntry: the rest of the plan is there, so no crash of a vault can be the cause.
	lostObject
	lostEntry
	// restorableEntry: an entry is lost, and can be restored from the object.
	restorableEntry
	// unreadableState: the metadata of the entry or the object can't be read.
	unreadableState
	// leftDelete: the delete marker of a Delete that did not commit, on a whole plan.
	leftDelete
	// unfinalized: an update to a final status that did not write the object.
	unfinalized
	// leftMarker: an update to a final status that did not remove the marker.
	leftMarker
	// setBack: a final object beside an entry that is not final.
	setBack
	// lostMarker: an open plan has no marker.
	lostMarker
	// unverified: a whole plan whose sub-objects a thorough Repair looks for.
	unverified
)

// diagnose is the table of decisions in docs/protocol.md. It rests on two orders: Create writes the object
// last, and Delete writes a delete marker before it removes the object. If an entry has moved on from
// NotStarted and there is neither object nor delete marker, or if there is an object without an entry, no
// crash is the cause. A Restore writes its entry like Create, but with any status; it writes a marker first.
func diagnose(s signs) finding {
	if s.entry == foreign || s.object == foreign {
		return foreignPlan
	}
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
	case s.thorough:
		return unverified
	}
	return openPlan
}

// diagnoseIncomplete is the part of the table for plans that lack the entry or the object.
func diagnoseIncomplete(s signs) finding {
	switch {
	case s.recent:
		return tooRecent
	case s.object != absent:
		// A late copy of Create's last request leaves an object, too. Such an object is not final and is
		// alone: it has no marker, as an open plan has, or in a day without markers, no sub-objects.
		whole := s.object == final || s.object != unreadable && (s.marker || !s.marked && s.parts)
		if s.thorough && whole && !s.deleteMarker {
			return restorableEntry
		}
		return lostEntry
	case s.entry == unreadable:
		return unreadableState
	case (s.entry == running || s.entry == final) && !s.deleteMarker && !(s.restored && s.marker):
		return lostObject
	case s.unmarkedParts:
		return foreignPlan
	}
	return remains
}

// diagnosis is what is wrong with a candidate, after a look at its entry and object.
type diagnosis struct {
	planBlobs
	grace   time.Duration // the longest of all that count for the plan
	finding finding
}

// examine looks at the entry and the object of a candidate and diagnoses it. It looks twice if one of them is
// absent, unless the plan is recent and will be left alone anyway. It doesn't look at a plan of another program, nor at
// an open plan that a listing has shown whole: a listing may show that nothing is to be done, but leads to no repair.
func (s planStore) examine(ctx context.Context, b planBlobs, thorough bool) (diagnosis, error) {
	d := diagnosis{planBlobs: b}
	var err error
	if d.grace, err = s.graceOf(b.marker, b.deleteMarker); err != nil {
		return d, blobError("read metadata of marker", b.keys.marker(), err)
	}
	switch d.finding = diagnose(d.signs(false)); {
	case d.finding == foreignPlan, !thorough && d.finding == openPlan:
		return d, nil
	}
	now, err := s.headPlan(ctx, "look for plan")
	if err != nil {
		return d, err
	}
	d.entry, d.object = now.entry, now.object
	if item := d.entryOrObject(); d.seen.IsZero() && item != nil {
		d.seen = item.Seen
	}
	d.finding = diagnose(d.signs(thorough))
	if d.committed() || d.finding == tooRecent || d.finding == foreignPlan {
		return d, nil
	}
	err = s.confirm(ctx, &d)
	return d, err
}

// confirm looks a second time at a plan that lacks the entry or the object. A Create, a Delete or a
// withdrawal may have begun since the plan was listed; each of them writes a marker first.
func (s planStore) confirm(ctx context.Context, d *diagnosis) error {
	lost := d.finding != remains
	if lost || d.marker == nil && d.deleteMarker == nil {
		since, err := s.listMarkers(ctx)
		if err != nil {
			return err
		}
		if !sameBlob(since.marker, d.marker) || !sameBlob(since.deleteMarker, d.deleteMarker) {
			d.finding = tooRecent
			return nil
		}
	}
	if err := s.confirmGone(ctx, d.missing()...); err != nil {
		return err
	}
	if !lost {
		return nil
	}
	// The blobs that were there must still be there, unchanged. If not, a Delete has finished in the
	// meantime.
	again, err := s.headPlan(ctx, "confirm")
	if err == nil && !(sameBlob(again.entry, d.entry) && sameBlob(again.object, d.object)) {
		d.finding = tooRecent
	}
	return err
}

// sameBlob reports whether two looks at a blob found the same version, or both found none.
func sameBlob(a, b *blob.Item) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.ETag == b.ETag
}

func (d diagnosis) signs(thorough bool) signs {
	s := signs{
		entry: blobStatusOf(d.entry), object: blobStatusOf(d.object),
		marker: d.marker != nil, deleteMarker: d.deleteMarker != nil, marked: d.marked,
		recentDelete: recent(d.deleteMarker, d.seen, d.grace), thorough: thorough,
		parts: len(d.parts) > 0 || !d.partsListed, restored: restored(d.entry),
		unmarkedParts: slices.ContainsFunc(d.parts, func(item blob.Item) bool { return !hasMarks(item.Metadata) }),
	}
	for _, item := range d.all() {
		s.recent = s.recent || recent(item, d.seen, d.grace)
	}
	return s
}

// wait returns how long the plan will remain recent, at least a second.
func (d diagnosis) wait() time.Duration {
	var newest time.Time
	for _, item := range d.all() {
		if item.LastModified.After(newest) {
			newest = item.LastModified
		}
	}
	return max(time.Second, newest.Add(d.grace+margin(d.grace)+time.Second).Sub(d.seen))
}

// String says what is wrong; "" if nothing is.
func (d diagnosis) String() string {
	switch d.finding {
	case remains:
		switch {
		case d.entry != nil:
			return "an entry without object: a create or delete did not finish"
		case d.marker == nil && d.deleteMarker == nil:
			return "sub-objects without a plan"
		}
		return "markers without a plan: a create or delete did not finish"
	case lostObject:
		return "an entry without object that no create or delete left: the object was lost from outside"
	case lostEntry, restorableEntry:
		return "an object without entry: the entry was lost from outside, or the object came late"
	case foreignPlan:
		return "a plan that another program wrote"
	case unreadableState:
		return "metadata that can't be read"
	case leftDelete:
		return "a delete marker on a whole plan: a delete did not commit"
	case unfinalized:
		return "a final entry beside an object that is not final: the last update did not finish"
	case leftMarker:
		return "a marker on a final plan: the last update did not finish"
	case setBack:
		return "a final object beside an entry that is not final"
	case lostMarker:
		return "an open plan without a marker"
	}
	return ""
}

// err is the error of a finding that can't be repaired, with the remedy; nil for other findings.
func (d diagnosis) err() error {
	switch d.finding {
	case lostObject:
		return vaultError("look for object", d.keys.object(), "%w: it is missing beside an entry that was in use: restore the blob from a backup, or Delete the plan", storage.ErrCorrupt)
	case lostEntry, restorableEntry:
		remedy := "Delete removes what is there"
		if diagnose(d.signs(true)) == restorableEntry {
			remedy = "a thorough Repair restores it"
		}
		return vaultError("look for entry", d.keys.entry(), "%w: it is missing beside its object: %s", storage.ErrCorrupt, remedy)
	case foreignPlan:
		return vaultError("look for plan", d.keys.entry(), "%w", storage.ErrForeign)
	case unreadableState:
		ref, item := d.keys.entry(), d.entry
		if blobStatusOf(item) != unreadable {
			ref, item = d.keys.object(), d.object
		}
		_, err := parseState(item.Metadata)
		return blobError("read metadata", ref, err)
	}
	return nil
}
