package azblob

import (
	"context"
	"errors"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// The records of a fleet: who works on the vault, and which plans are to be stopped. They are hints: versions of the plan's
// blobs fence a former owner, and not records. A single answer that a record is absent is therefore believed.

// AddMember stores the record of a new member with one request, or with three if the vault's control
// container does not exist yet. It returns the version of the record.
//
// Errors: [storage.ErrInvalid] before anything is sent, also on a vault opened with [Options].UnversionedUpdates;
// [storage.ErrExists]; [storage.ErrUnknown]: the same call again settles it.
func (c control) AddMember(ctx context.Context, m storage.Member) (version storage.Version, err error) {
	err = c.call(ctx, "AddMember", uuid.Nil, func(ctx context.Context) error {
		if err := driver.CheckNewMember(m, c.unversioned); err != nil {
			return err
		}
		version, err = c.putRecord(ctx, "write member", c.prefix.member(m.ID), memberRecord(m), blob.IfNew)
		return err
	})
	return version, err
}

// RenewMember stores the record again with one request, if it still has the version m.Version, and returns
// its new version. The request does not count for [Options].Concurrency: a member must not look dead because its
// other requests wait for each other.
//
// Errors: [storage.ErrInvalid] before anything is sent; [storage.ErrConflict] and [storage.ErrNotFound] if
// somebody else has changed or removed the record; [storage.ErrUnknown]: the same call again settles it.
func (c control) RenewMember(ctx context.Context, m storage.Member) (version storage.Version, err error) {
	err = c.call(ctx, "RenewMember", uuid.Nil, func(ctx context.Context) error {
		if err := driver.CheckRenewedMember(m); err != nil {
			return err
		}
		version, err = c.putRecord(blob.Urgent(ctx), "renew member", c.prefix.member(m.ID), memberRecord(m), blob.IfMatch(string(m.Version)))
		return err
	})
	return version, err
}

// FindMember returns the record of a member with one request, or [storage.ErrNotFound]. Fields that this code
// can't read are zero.
func (c control) FindMember(ctx context.Context, id uuid.UUID) (m storage.Member, err error) {
	err = c.call(ctx, "FindMember", uuid.Nil, func(ctx context.Context) error {
		ref := c.prefix.member(id)
		p, err := c.client.Head(ctx, ref)
		if err != nil {
			return blobError("look for member", ref, err)
		}
		m = c.memberOf(id, p)
		return nil
	})
	return m, err
}

// Roster returns all members, all requests to stop plans and all notes without their texts, with one request for each
// 5,000 of them. Now is the service's time of the first answer. Like those of RenewMember, its requests do not count for
// [Options].Concurrency.
//
// Every blob with the name of a record counts, because names and the service's times show who is at work. Fields that this
// code can't read are zero. Blobs with other names are left out. [Admin.Check] reports both.
func (c control) Roster(ctx context.Context) (roster storage.Roster, err error) {
	err = c.call(ctx, "Roster", uuid.Nil, func(ctx context.Context) error {
		control := blob.Ref{Container: c.prefix.control()}
		for page, err := range c.client.List(blob.Urgent(ctx), control.Container, blob.ListOptions{Metadata: true, StartFrom: nodesDir}) {
			if blob.Is(err, blob.AbsentContainer) {
				roster = storage.Roster{Now: blob.RefusedAt(err).UTC()}
				break
			}
			if err != nil {
				return blobError("list members", control, err)
			}
			if roster.Now.IsZero() {
				roster.Now = page.Seen.UTC() // the earliest, by which no record is too old
			}
			for _, item := range page.Items {
				switch name, ok := parseRecordName(item.Name); {
				case !ok:
				case name.role == roleMember:
					roster.Members = append(roster.Members, c.memberOf(name.id, item.Properties))
				case name.role == roleNote:
					roster.Notes = append(roster.Notes, storage.Note{Name: name.name, Stored: item.LastModified.UTC(), Version: storage.Version(item.ETag)})
				case name.role == roleStop:
					roster.Stops = append(roster.Stops, c.stopOf(name.id, item.Properties))
				}
			}
		}
		if roster.Now.IsZero() {
			return vaultError("list members", control, "%w: the answer has no Date, by which members are judged: check for a proxy that removes it", storage.ErrUnavailable)
		}
		return nil
	})
	if err != nil {
		return storage.Roster{}, err // part of the members is worse than none
	}
	return roster, nil
}

// memberOf returns the member whose record has these properties.
func (s *store) memberOf(id uuid.UUID, p blob.Properties) storage.Member {
	m := storage.Member{ID: id, Renewed: p.LastModified.UTC(), Version: storage.Version(p.ETag)}
	s.format.readMemberMetadata(&m, p.Metadata)
	return m
}

// stopOf returns the request to stop a plan whose record has these properties.
func (s *store) stopOf(plan uuid.UUID, p blob.Properties) storage.StopRequest {
	r := storage.StopRequest{Plan: plan, Requested: p.LastModified.UTC(), Version: storage.Version(p.ETag)}
	s.format.readStopMetadata(&r, p.Metadata)
	return r
}

// RemoveMember removes a record that has this version, with one request.
//
// Errors: [storage.ErrInvalid] for an empty version; [storage.ErrConflict] if the record has another version;
// [storage.ErrNotFound] if there is none; [storage.ErrUnknown]: the same call again settles it.
func (c control) RemoveMember(ctx context.Context, id uuid.UUID, version storage.Version) error {
	return c.call(ctx, "RemoveMember", uuid.Nil, func(ctx context.Context) error {
		if err := driver.CheckRecordVersion(version); err != nil {
			return err
		}
		return c.removeRecord(ctx, "remove member", c.prefix.member(id), version)
	})
}

// AddStop asks the owner of a plan to stop it, and says who asks and why, with one request, or with three if the
// vault's control container does not exist yet. It returns nil if the request is stored, also if an earlier one was,
// which stays. It does not look at the plan.
//
// Errors: [storage.ErrNotFound] for an ID that is not a UUIDv7; [storage.ErrInvalid] for an attribution that is too long;
// [storage.ErrUnknown]: the same call again settles it.
func (c control) AddStop(ctx context.Context, plan uuid.UUID, by workflow.Attribution) error {
	return c.call(ctx, "AddStop", plan, func(ctx context.Context) error {
		if err := driver.CheckStop(plan, by); err != nil {
			return err
		}
		r := storage.StopRequest{Plan: plan, By: by.By, Why: by.Why}
		_, err := c.putRecord(ctx, "write stop request", c.prefix.stop(plan), stopRecord(r), blob.IfNew)
		if errors.Is(err, storage.ErrExists) {
			return nil
		}
		return err
	})
}

// RemoveStop removes a stop request that has this version, with one request. It returns nil if there is none.
//
// Errors: [storage.ErrInvalid] for an empty version; [storage.ErrConflict] if the request has another
// version; [storage.ErrUnknown]: the same call again settles it.
func (c control) RemoveStop(ctx context.Context, plan uuid.UUID, version storage.Version) error {
	return c.call(ctx, "RemoveStop", plan, func(ctx context.Context) error {
		if err := driver.CheckRecordVersion(version); err != nil {
			return err
		}
		err := c.removeRecord(ctx, "remove stop request", c.prefix.stop(plan), version)
		if errors.Is(err, storage.ErrNotFound) {
			return nil
		}
		return err
	})
}
