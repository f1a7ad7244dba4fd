package emulator

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Soft delete: deleted blobs and containers can be listed and restored for seven days. The emulator has no more than
// that of an account with soft delete for both, and without versioning, where Undelete restores no deleted blob
// (https://learn.microsoft.com/azure/storage/blobs/soft-delete-blob-overview). On an account with a hierarchical
// namespace, whose deleted blobs have IDs, it has none.
//
// What overwrites a blob, or is written over a deleted one, makes it a deleted snapshot. Undelete restores the deleted
// blob and all deleted snapshots, which then keep the blob from being deleted alone
// (https://learn.microsoft.com/rest/api/storageservices/undelete-blob). That a restored blob has its ETag and its times,
// and a restored container no lease, is not documented.

// gone is what is kept of the blobs of a container. A nil gone keeps nothing.
type gone struct {
	blobs map[string]*blob // deleted, by name
	// snapshots are when the versions before were overwritten; live says that they were restored.
	snapshots map[string][]snapshot
}

type snapshot struct {
	at   time.Time
	live bool
}

func (g *gone) clone() *gone {
	if g == nil {
		return nil
	}
	c := &gone{maps.Clone(g.blobs), maps.Clone(g.snapshots)}
	for name, list := range c.snapshots {
		c.snapshots[name] = slices.Clone(list)
	}
	return c
}

// goneContainer is a deleted container.
type goneContainer struct {
	*container
	at      time.Time
	version string
}

// restorable reports whether the account keeps what is deleted so that it can be restored.
func (s *Server) restorable() bool { return s.softDelete && !s.versioning && !s.hierarchical }

// retained reports whether what was deleted at a time can still be restored.
func retained(at, now time.Time) bool { return now.Before(at.AddDate(0, 0, softDeleteDays)) }

// left returns for how many days that is.
func left(at, now time.Time) string {
	return strconv.Itoa(int(at.AddDate(0, 0, softDeleteDays).Sub(now) / (24 * time.Hour)))
}

// bury keeps a blob that is overwritten or deleted.
func (s *Server) bury(ct *container, old *blob, now time.Time, deleted bool) {
	if !s.restorable() {
		return
	}
	if ct.gone == nil {
		ct.gone = &gone{map[string]*blob{}, map[string][]snapshot{}}
	}
	if deleted {
		kept := *old
		kept.deleted = now
		ct.gone.blobs[old.Name] = &kept
	} else {
		ct.gone.snapshots[old.Name] = append(ct.gone.snapshots[old.Name], snapshot{at: now})
	}
}

// buried returns the deleted blob with a name, or nil.
func (ct *container) buried(name string, now time.Time) *blob {
	if ct.gone == nil || ct.gone.blobs[name] == nil || !retained(ct.gone.blobs[name].deleted, now) {
		return nil
	}
	return ct.gone.blobs[name]
}

// replaceBuried makes the deleted blob with a name a snapshot of the one that is written.
func (s *Server) replaceBuried(ct *container, name string, now time.Time) {
	if old := ct.buried(name, now); old != nil {
		delete(ct.gone.blobs, name)
		ct.gone.snapshots[name] = append(ct.gone.snapshots[name], snapshot{at: old.deleted})
	}
}

// liveSnapshots returns how many snapshots of a blob were restored.
func (ct *container) liveSnapshots(name string) (n int) {
	if ct.gone != nil {
		for _, s := range ct.gone.snapshots[name] {
			if s.live {
				n++
			}
		}
	}
	return n
}

// deleteSnapshots deletes the snapshots of a blob that were restored.
func (ct *container) deleteSnapshots(name string, now time.Time) {
	for i, s := range ct.gone.snapshots[name] {
		if s.live {
			ct.gone.snapshots[name][i] = snapshot{at: now}
		}
	}
}

func (s *Server) undeleteBlob(c *call) *answer {
	if !s.restorable() {
		return failWith("NotImplemented", "Only an account with soft delete undeletes.")
	}
	ct := s.state.container(c.container)
	if ct == nil {
		return fail("ContainerNotFound")
	}
	kept := ct.buried(c.blob, c.now)
	if kept == nil && ct.blob(c.blob) == nil {
		return fail("BlobNotFound")
	}
	if kept != nil {
		b := *kept
		b.deleted = time.Time{}
		s.state.putBlob(ct, &b)
		delete(ct.gone.blobs, c.blob)
	}
	if ct.gone != nil {
		for i, s := range ct.gone.snapshots[c.blob] {
			ct.gone.snapshots[c.blob][i].live = s.live || retained(s.at, c.now)
		}
	}
	return newAnswer(http.StatusOK)
}

// buryContainer keeps a deleted container. Its name has to be free before it can be restored.
func (s *Server) buryContainer(ct *container, now time.Time) {
	if s.restorable() {
		kept := ct.clone()
		kept.Lease = lease{}
		s.state.graves = append(s.state.graves, goneContainer{kept, now, "01D" + strings.ToUpper(strconv.FormatInt(now.UnixMicro(), 36))})
	}
}

func (s *Server) restoreContainer(c *call) *answer {
	if !s.restorable() {
		return failWith("NotImplemented", "Only an account with soft delete undeletes.")
	}
	name, version := c.http.Header.Get("x-ms-deleted-container-name"), c.http.Header.Get("x-ms-deleted-container-version")
	if name == "" || version == "" {
		return failWith("MissingRequiredHeader", "x-ms-deleted-container-name and -version.")
	}
	i := slices.IndexFunc(s.state.graves, func(g goneContainer) bool {
		return g.Name == name && g.version == version && retained(g.at, c.now)
	})
	switch {
	case i < 0:
		return fail("ContainerNotFound")
	case name != c.container:
		return failWith("InvalidHeaderValue", "A container is restored under its own name.")
	case s.state.container(name) != nil:
		return fail("ContainerAlreadyExists")
	case s.beingDeleted(name, c.now):
		return fail("ContainerBeingDeleted")
	}
	kept := s.state.graves[i].clone()
	blobs := kept.blobs
	s.state.graves = slices.Delete(slices.Clone(s.state.graves), i, i+1)
	s.state.putContainer(kept)
	ct := s.state.container(name)
	ct.gone = kept.gone
	blobs.Ascend(func(b *blob) bool {
		s.state.putBlob(ct, b)
		return true
	})
	return newAnswer(http.StatusCreated)
}

// withGone returns the blobs of a container together with what a listing includes of those that are gone.
func (ct *container) withGone(l *listing, now time.Time) *container {
	if ct.gone == nil || !l.deleted && !l.snapshots {
		return ct
	}
	all := ct.clone()
	add := func(b blob) {
		if all.blob(b.Name) == nil {
			all.blobs.ReplaceOrInsert(&b)
		}
	}
	for name := range ct.gone.blobs {
		if kept := ct.buried(name, now); kept != nil && l.deleted {
			add(*kept)
		}
	}
	for name := range ct.gone.snapshots {
		if live := ct.blob(name); live != nil && l.snapshots && ct.liveSnapshots(name) > 0 {
			b := *live
			b.snapshots = ct.liveSnapshots(name)
			all.blobs.ReplaceOrInsert(&b)
		}
	}
	return all
}

// deletedContainers returns the deleted containers whose names have a prefix, in order.
func (s *Server) deletedContainers(prefix string, now time.Time) (list []goneContainer) {
	for _, g := range s.state.graves {
		if strings.HasPrefix(g.Name, prefix) && retained(g.at, now) {
			list = append(list, g)
		}
	}
	slices.SortStableFunc(list, func(a, b goneContainer) int { return cmp.Compare(a.Name, b.Name) })
	return list
}
