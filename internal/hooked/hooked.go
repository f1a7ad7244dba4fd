// Package hooked wraps a vault for tests. Each call passes through a function, which may count or delay the call, change
// its input and its result, or fail it.
package hooked

import (
	"context"
	"fmt"
	"iter"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// Listing is the result of List and Search.
type Listing = iter.Seq[storage.Stream[storage.ListResult]]

// Call is a call of a method. The fields that the method does not have are zero.
type Call struct {
	Op    string        // the method, such as "UpdatePlan"
	Below storage.Vault // the vault that was wrapped

	// The input.
	Ctx     context.Context
	ID      uuid.UUID       // the plan, or the member
	Object  workflow.Object // that is created, restored or updated
	Limit   int
	Filters storage.Filters
	Member  storage.Member    // also a result
	Note    storage.Note      // also a result
	Key     storage.KeyRecord // also a result
	Entry   storage.AuditEntry
	Version storage.Version // also a result

	// The results. Do sets them.
	Plan    *workflow.Plan
	Found   bool
	Count   int
	Listing Listing
	Roster  storage.Roster
	Entries iter.Seq[storage.Stream[storage.AuditEntry]]
	Keys    iter.Seq[storage.Stream[storage.ListedKey]]

	do func() error
}

// Do makes the call with its present input, and sets the results.
func (c *Call) Do() error { return c.do() }

// Vault is a vault whose calls pass through a hook. It is also a [storage.Control], a [storage.Restorer] and a
// [storage.Copier]; the methods of these panic if the wrapped vault lacks them.
type Vault struct {
	below storage.Vault
	hook  func(c *Call) error
}

// Wrap wraps a vault. The error of the hook is that of the call.
func Wrap(v storage.Vault, hook func(c *Call) error) *Vault { return &Vault{v, hook} }

// On returns a hook for the calls of one method. It leaves other calls alone.
func On(op string, hook func(c *Call) error) func(c *Call) error {
	return func(c *Call) error {
		if c.Op == op {
			return hook(c)
		}
		return c.Do()
	}
}

func (v *Vault) pass(ctx context.Context, op string, c *Call, do func(c *Call) error) error {
	c.Ctx, c.Op, c.Below = ctx, op, v.below
	c.do = func() error { return do(c) }
	return v.hook(c)
}

func object[T any, P interface {
	*T
	workflow.Object
}](ctx context.Context, v *Vault, op string, o P, do func(c *Call) error) error {
	c := &Call{Object: o}
	if o != nil {
		c.ID = *o.Header().PlanID
	}
	return v.pass(ctx, op, c, do)
}

// get makes a call that has a result.
func get[T any](ctx context.Context, v *Vault, op string, c *Call, result *T, do func(c *Call) (T, error)) (T, error) {
	err := v.pass(ctx, op, c, func(c *Call) (err error) { *result, err = do(c); return err })
	return *result, err
}

func (v *Vault) update(c *Call) error { return storage.Update(c.Ctx, v.below, c.Object) }

// Unwrap returns the vault below, see [storage.As].
func (v *Vault) Unwrap() storage.Vault { return v.below }

// Create implements [storage.Vault], and so do the methods below.
func (v *Vault) Create(ctx context.Context, p *workflow.Plan) error {
	return object(ctx, v, "Create", p, func(c *Call) error { return v.below.Create(c.Ctx, c.Object.(*workflow.Plan)) })
}

func (v *Vault) Exists(ctx context.Context, id uuid.UUID) (bool, error) {
	c := &Call{ID: id}
	return get(ctx, v, "Exists", c, &c.Found, func(c *Call) (bool, error) { return v.below.Exists(c.Ctx, c.ID) })
}

func (v *Vault) Read(ctx context.Context, id uuid.UUID) (*workflow.Plan, error) {
	c := &Call{ID: id}
	return get(ctx, v, "Read", c, &c.Plan, func(c *Call) (*workflow.Plan, error) { return v.below.Read(c.Ctx, c.ID) })
}

func (v *Vault) List(ctx context.Context, limit int) (Listing, error) {
	c := &Call{Limit: limit}
	return get(ctx, v, "List", c, &c.Listing, func(c *Call) (Listing, error) { return v.below.List(c.Ctx, c.Limit) })
}

func (v *Vault) Search(ctx context.Context, f storage.Filters) (Listing, error) {
	c := &Call{Filters: f}
	return get(ctx, v, "Search", c, &c.Listing, func(c *Call) (Listing, error) { return v.below.Search(c.Ctx, c.Filters) })
}

func (v *Vault) Count(ctx context.Context, f storage.Filters) (int, error) {
	c := &Call{Filters: f}
	return get(ctx, v, "Count", c, &c.Count, func(c *Call) (int, error) { return v.below.Count(c.Ctx, c.Filters) })
}

func (v *Vault) UpdatePlan(ctx context.Context, o *workflow.Plan) error {
	return object(ctx, v, "UpdatePlan", o, v.update)
}

func (v *Vault) UpdateChecks(ctx context.Context, o *workflow.Checks) error {
	return object(ctx, v, "UpdateChecks", o, v.update)
}

func (v *Vault) UpdateBlock(ctx context.Context, o *workflow.Block) error {
	return object(ctx, v, "UpdateBlock", o, v.update)
}

func (v *Vault) UpdateSequence(ctx context.Context, o *workflow.Sequence) error {
	return object(ctx, v, "UpdateSequence", o, v.update)
}

func (v *Vault) UpdateAction(ctx context.Context, o *workflow.Action) error {
	return object(ctx, v, "UpdateAction", o, v.update)
}

func (v *Vault) UpdateDeferredActions(ctx context.Context, o *workflow.DeferredActions) error {
	return object(ctx, v, "UpdateDeferredActions", o, v.update)
}

func (v *Vault) UpdateDeferBatch(ctx context.Context, o *workflow.DeferBatch) error {
	return object(ctx, v, "UpdateDeferBatch", o, v.update)
}

func (v *Vault) Delete(ctx context.Context, id uuid.UUID) error {
	return v.pass(ctx, "Delete", &Call{ID: id}, func(c *Call) error { return v.below.Delete(c.Ctx, c.ID) })
}

func (v *Vault) Recovery(ctx context.Context) error {
	return v.pass(ctx, "Recovery", &Call{}, func(c *Call) error { return v.below.Recovery(c.Ctx) })
}

func (v *Vault) Close(ctx context.Context) error {
	return v.pass(ctx, "Close", &Call{}, func(c *Call) error { return v.below.Close(c.Ctx) })
}

// Restore implements [storage.Restorer].
func (v *Vault) Restore(ctx context.Context, p *workflow.Plan) error {
	return object(ctx, v, "Restore", p, func(c *Call) error {
		return v.below.(storage.Restorer).Restore(c.Ctx, c.Object.(*workflow.Plan))
	})
}

// RestoreCopy implements [storage.Copier], and so do the methods below. IsCopy passes through no hook.
func (v *Vault) RestoreCopy(ctx context.Context, p *workflow.Plan) error {
	return object(ctx, v, "RestoreCopy", p, func(c *Call) error { return v.copier().RestoreCopy(c.Ctx, c.Object.(*workflow.Plan)) })
}

func (v *Vault) IsCopy(p *workflow.Plan) bool { return v.copier().IsCopy(p) }

func (v *Vault) UpdateCopy(ctx context.Context, p *workflow.Plan) error {
	return object(ctx, v, "UpdateCopy", p, func(c *Call) error { return v.copier().UpdateCopy(c.Ctx, c.Object.(*workflow.Plan)) })
}

func (v *Vault) DeleteCopy(ctx context.Context, p *workflow.Plan) error {
	return object(ctx, v, "DeleteCopy", p, func(c *Call) error { return v.copier().DeleteCopy(c.Ctx, c.Object.(*workflow.Plan)) })
}

func (v *Vault) copier() storage.Copier {
	c, _ := storage.As[storage.Copier](v.below)
	return c
}

// AddMember implements [storage.Control], and so do the methods below.
func (v *Vault) AddMember(ctx context.Context, m storage.Member) (storage.Version, error) {
	c := &Call{ID: m.ID, Member: m}
	return get(ctx, v, "AddMember", c, &c.Version, func(c *Call) (storage.Version, error) { return v.control().AddMember(c.Ctx, c.Member) })
}

func (v *Vault) RenewMember(ctx context.Context, m storage.Member) (storage.Version, error) {
	c := &Call{ID: m.ID, Member: m}
	return get(ctx, v, "RenewMember", c, &c.Version, func(c *Call) (storage.Version, error) { return v.control().RenewMember(c.Ctx, c.Member) })
}

func (v *Vault) FindMember(ctx context.Context, id uuid.UUID) (storage.Member, error) {
	c := &Call{ID: id}
	return get(ctx, v, "FindMember", c, &c.Member, func(c *Call) (storage.Member, error) { return v.control().FindMember(c.Ctx, c.ID) })
}

func (v *Vault) Roster(ctx context.Context) (storage.Roster, error) {
	c := &Call{}
	return get(ctx, v, "Roster", c, &c.Roster, func(c *Call) (storage.Roster, error) { return v.control().Roster(c.Ctx) })
}

func (v *Vault) RemoveMember(ctx context.Context, id uuid.UUID, version storage.Version) error {
	return v.pass(ctx, "RemoveMember", &Call{ID: id, Version: version}, func(c *Call) error { return v.control().RemoveMember(c.Ctx, c.ID, c.Version) })
}

func (v *Vault) AddStop(ctx context.Context, plan uuid.UUID, by workflow.Attribution) error {
	return v.pass(ctx, "AddStop", &Call{ID: plan}, func(c *Call) error { return v.control().AddStop(c.Ctx, c.ID, by) })
}

func (v *Vault) RemoveStop(ctx context.Context, plan uuid.UUID, version storage.Version) error {
	return v.pass(ctx, "RemoveStop", &Call{ID: plan, Version: version}, func(c *Call) error { return v.control().RemoveStop(c.Ctx, c.ID, c.Version) })
}

func (v *Vault) PutNote(ctx context.Context, n storage.Note) (storage.Version, error) {
	c := &Call{Note: n}
	return get(ctx, v, "PutNote", c, &c.Version, func(c *Call) (storage.Version, error) { return v.control().PutNote(c.Ctx, c.Note) })
}

func (v *Vault) FindNote(ctx context.Context, name string) (storage.Note, error) {
	c := &Call{Note: storage.Note{Name: name}}
	return get(ctx, v, "FindNote", c, &c.Note, func(c *Call) (storage.Note, error) { return v.control().FindNote(c.Ctx, c.Note.Name) })
}

func (v *Vault) RemoveNote(ctx context.Context, name string, version storage.Version) error {
	c := &Call{Note: storage.Note{Name: name}, Version: version}
	return v.pass(ctx, "RemoveNote", c, func(c *Call) error { return v.control().RemoveNote(c.Ctx, c.Note.Name, c.Version) })
}

func (v *Vault) PutKey(ctx context.Context, k storage.KeyRecord) (storage.Version, error) {
	c := &Call{Key: k}
	return get(ctx, v, "PutKey", c, &c.Version, func(c *Call) (storage.Version, error) { return v.control().PutKey(c.Ctx, c.Key) })
}

func (v *Vault) FindKey(ctx context.Context, name string) (storage.KeyRecord, error) {
	c := &Call{Key: storage.KeyRecord{Name: name}}
	return get(ctx, v, "FindKey", c, &c.Key, func(c *Call) (storage.KeyRecord, error) { return v.control().FindKey(c.Ctx, c.Key.Name) })
}

func (v *Vault) RemoveKey(ctx context.Context, name string, version storage.Version) error {
	c := &Call{Key: storage.KeyRecord{Name: name}, Version: version}
	return v.pass(ctx, "RemoveKey", c, func(c *Call) error { return v.control().RemoveKey(c.Ctx, c.Key.Name, c.Version) })
}

func (v *Vault) Keys(ctx context.Context) (iter.Seq[storage.Stream[storage.ListedKey]], error) {
	c := &Call{}
	return get(ctx, v, "Keys", c, &c.Keys, func(c *Call) (iter.Seq[storage.Stream[storage.ListedKey]], error) { return v.control().Keys(c.Ctx) })
}

func (v *Vault) Record(ctx context.Context, d storage.AuditEntry) error {
	return v.pass(ctx, "Record", &Call{Entry: d}, func(c *Call) error { return v.control().Record(c.Ctx, c.Entry) })
}

func (v *Vault) AuditEntries(ctx context.Context, f storage.AuditFilters) (iter.Seq[storage.Stream[storage.AuditEntry]], error) {
	c := &Call{}
	return get(ctx, v, "AuditEntries", c, &c.Entries, func(c *Call) (iter.Seq[storage.Stream[storage.AuditEntry]], error) {
		return v.control().AuditEntries(c.Ctx, f)
	})
}

func (v *Vault) control() storage.Control {
	c, ok := storage.As[storage.Control](v.below)
	if !ok {
		panic(fmt.Sprintf("hooked: a %T offers no storage.Control", v.below))
	}
	return c
}
