// Package memvault is the reference vault: a small and simple [storage.Vault] in memory. Engines use it in
// their unit tests. It also answers questions that the words of the contract leave open.
//
// A plan is stored as JSON, so nothing is shared with callers. Each call takes effect at one instant: there
// are no unfinished creates or deletes, and ErrUnknown is never returned. The store's clock is that of the
// process. Everything is lost when the process ends.
package memvault

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"sync"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/copies"
	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// Store holds plans, members, stop requests, notes and keys. Several vaults can share it, as several processes share an
// account.
type Store struct {
	mu       sync.Mutex // held by every call from start to end
	plans    map[uuid.UUID]*record
	members  map[uuid.UUID]storage.Member
	stops    map[uuid.UUID]storage.StopRequest // by plan
	notes    table[storage.Note]
	keys     table[storage.KeyRecord]
	audit    map[uuid.UUID]storage.AuditEntry
	versions int // the number of versions so far; none is used twice
}

// record is a stored plan.
type record struct {
	// tree is the JSON of a plan with nothing but IDs and children. It never changes.
	tree []byte
	// now has each object, the plan included, as it was last written. shown has the sub-objects as readers
	// see them while the plan is NotStarted or final: as they were created, or as the plan that became final
	// had them.
	now, shown map[uuid.UUID]part
}

// part is a stored object without its children.
type part struct {
	kind    workflow.Kind
	version string
	text    []byte
}

// decode reads a part into an object that has its children.
func (p part) decode(o workflow.Object) error {
	if err := workflow.Unmarshal(p.text, o); err != nil {
		return corrupt(err)
	}
	o.Header().State.ETag = p.version
	return nil
}

// NewStore returns an empty store.
func NewStore() *Store {
	return &Store{
		plans:   map[uuid.UUID]*record{},
		members: map[uuid.UUID]storage.Member{},
		stops:   map[uuid.UUID]storage.StopRequest{},
		notes:   table[storage.Note]{"note", map[string]storage.Note{}, func(n storage.Note) storage.Version { return n.Version }},
		keys:    table[storage.KeyRecord]{"key", map[string]storage.KeyRecord{}, func(k storage.KeyRecord) storage.Version { return k.Version }},
		audit:   map[uuid.UUID]storage.AuditEntry{},
	}
}

// Open returns a vault on the store: another node, or the same node after a restart. The registry has the
// types of requests and responses; if it is nil, they are read as json.RawMessage.
func (s *Store) Open(reg *registry.Register, o Options) *Vault {
	return &Vault{store: s, reg: reg, unversioned: o.UnversionedUpdates}
}

// Options are the settings of a vault. The zero value has the defaults.
type Options struct {
	// UnversionedUpdates accepts updates with an empty State.ETag, for engines that keep no versions. They overwrite whatever
	// is stored. Default: such an update is ErrInvalid.
	UnversionedUpdates bool
}

// Vault is a [storage.Vault] with [storage.Restorer] and [storage.Copier] in memory. It offers [storage.Control].
type Vault struct {
	store       *Store
	reg         *registry.Register
	unversioned bool
	closed      bool // guarded by store.mu
}

var (
	_ storage.Vault    = (*Vault)(nil)
	_ storage.Control  = control{}
	_ storage.Restorer = (*Vault)(nil)
	_ storage.Copier   = (*Vault)(nil)
)

// control is what a fleet needs of a vault beside plans.
type control struct{ *Vault }

// Control returns what a fleet needs of the vault beside plans.
func (v *Vault) Control() storage.Control { return control{v} }

// As sets target to the vault's [storage.Control] if it points to one. Call it by [storage.As].
func (v *Vault) As(target any) bool {
	c, ok := target.(*storage.Control)
	if ok {
		*c = v.Control()
	}
	return ok
}

// New returns a vault with a store of its own. See [Store.Open].
func New(reg *registry.Register, o Options) *Vault { return NewStore().Open(reg, o) }

// Create stores a plan, after it has filled in what the author left out.
func (v *Vault) Create(ctx context.Context, plan *workflow.Plan) error {
	var id uuid.UUID
	if plan != nil {
		id = plan.ID
	}
	return v.call(ctx, "Create", &id, func() error {
		if err := driver.Accept(ctx, plan, v.reg); err != nil {
			return err
		}
		id = plan.ID
		return v.store.add(plan, false)
	})
}

// Restore stores a plan of any status as it is, with new versions.
func (v *Vault) Restore(ctx context.Context, plan *workflow.Plan) error {
	return v.restore(ctx, "Restore", plan, false)
}

// RestoreCopy does the same, with the mark of a copy.
func (v *Vault) RestoreCopy(ctx context.Context, plan *workflow.Plan) error {
	return v.restore(ctx, "RestoreCopy", plan, true)
}

func (v *Vault) restore(ctx context.Context, op string, plan *workflow.Plan, copied bool) error {
	var id uuid.UUID
	if plan != nil {
		id = plan.ID
	}
	return v.call(ctx, op, &id, func() error {
		if err := driver.CheckRestored(plan, v.reg); err != nil {
			return err
		}
		return v.store.add(plan, copied)
	})
}

// IsCopy reports whether the version of a plan has the mark of a copy.
func (v *Vault) IsCopy(plan *workflow.Plan) bool { return copies.Marked(plan.State.ETag) }

// add stores a plan that has all IDs, and sets its versions.
func (s *Store) add(plan *workflow.Plan, copied bool) error {
	if _, taken := s.plans[plan.ID]; taken {
		return storage.ErrExists
	}
	tree, err := treeOf(plan)
	if err != nil {
		return driver.Unencodable(plan, true, err)
	}
	now := map[uuid.UUID]part{}
	for o := range workflow.Walk(plan) {
		p, err := s.encode(o, copied && o == workflow.Object(plan))
		if err != nil {
			return driver.Unencodable(plan, true, err)
		}
		now[*o.Header().ID] = p
	}
	s.plans[plan.ID] = &record{tree: tree, now: now, shown: maps.Clone(now)}
	for o := range workflow.Walk(plan) {
		h := o.Header()
		h.State.ETag = now[*h.ID].version
	}
	return nil
}

// Exists reports whether there is a plan with this ID.
func (v *Vault) Exists(ctx context.Context, id uuid.UUID) (found bool, err error) {
	err = v.call(ctx, "Exists", &id, func() error {
		_, found = v.store.plans[id]
		return nil
	})
	return found, err
}

// Read returns the whole plan. The sub-objects of a Running plan are as they were last written, those of
// other plans as they were when the plan was created or became final.
func (v *Vault) Read(ctx context.Context, id uuid.UUID) (*workflow.Plan, error) {
	plan := new(workflow.Plan)
	err := v.call(ctx, "Read", &id, func() error {
		r, err := v.find(id)
		if err != nil {
			return err
		}
		if err := workflow.Unmarshal(r.tree, plan); err != nil {
			return corrupt(err)
		}
		if err := r.now[id].decode(plan); err != nil {
			return err
		}
		parts := r.shown
		if plan.State.Status == workflow.Running {
			parts = r.now
		}
		for _, o := range workflow.Parts(plan) {
			if err := parts[*o.Header().ID].decode(o); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if err := driver.Bind(plan, v.reg); err != nil { // its methods may take long, so others use the store meanwhile
		return nil, &storage.Error{Op: "Read", Plan: id, Err: err}
	}
	return plan, nil
}

// UpdatePlan stores the plan's own fields. With a final status it also stores all sub-objects as they are
// given.
func (v *Vault) UpdatePlan(ctx context.Context, plan *workflow.Plan) error {
	return update(ctx, v, "UpdatePlan", plan)
}

// UpdateCopy does the same with a plan that has the mark of a copy, and leaves the mark.
func (v *Vault) UpdateCopy(ctx context.Context, plan *workflow.Plan) error {
	return update(ctx, v, opUpdateCopy, plan)
}

const opUpdateCopy = "UpdateCopy"

// UpdateChecks stores the checks' own fields.
func (v *Vault) UpdateChecks(ctx context.Context, checks *workflow.Checks) error {
	return update(ctx, v, "UpdateChecks", checks)
}

// UpdateBlock stores the block's own fields.
func (v *Vault) UpdateBlock(ctx context.Context, block *workflow.Block) error {
	return update(ctx, v, "UpdateBlock", block)
}

// UpdateSequence stores the sequence's own fields.
func (v *Vault) UpdateSequence(ctx context.Context, sequence *workflow.Sequence) error {
	return update(ctx, v, "UpdateSequence", sequence)
}

// UpdateAction stores the action with its attempts.
func (v *Vault) UpdateAction(ctx context.Context, action *workflow.Action) error {
	return update(ctx, v, "UpdateAction", action)
}

// UpdateDeferredActions stores the deferred actions' own fields.
func (v *Vault) UpdateDeferredActions(ctx context.Context, deferred *workflow.DeferredActions) error {
	return update(ctx, v, "UpdateDeferredActions", deferred)
}

// UpdateDeferBatch stores the batch's own fields.
func (v *Vault) UpdateDeferBatch(ctx context.Context, batch *workflow.DeferBatch) error {
	return update(ctx, v, "UpdateDeferBatch", batch)
}

func update[T any, P interface {
	*T
	workflow.Object
}](ctx context.Context, v *Vault, op string, o P) error {
	var id uuid.UUID
	if o != nil {
		id = *o.Header().PlanID
	}
	return v.call(ctx, op, &id, func() error {
		if o == nil {
			return driver.Invalid(op, "is nil")
		}
		h, copied := o.Header(), op == opUpdateCopy
		if err := driver.CheckUpdate(o, v.reg, v.unversioned && !copied); err != nil {
			return err
		}
		if copied {
			if err := copies.Check(h.State.ETag); err != nil {
				return err
			}
		}
		if o.Kind() == workflow.KindAction {
			driver.MarkSecrets(o, v.reg)
		}
		r, err := v.find(id)
		if err != nil {
			return err
		}
		stored, found := r.now[*h.ID]
		if !found || stored.kind != o.Kind() {
			return fmt.Errorf("%w: there is no %s %s in the plan", storage.ErrNotFound, o.Kind(), *h.ID)
		}
		if h.State.ETag != "" && h.State.ETag != stored.version { // CheckUpdate allows "" only for unversioned updates
			return fmt.Errorf("%w: version %s is stored, not %s", storage.ErrConflict, stored.version, h.State.ETag)
		}
		_, was, _ := driver.SplitVersion(stored.version)
		if o.Kind() == workflow.KindPlan && !driver.Follows(h.State.Status, was) { // only an update without a version
			return fmt.Errorf("%w: the plan is %s and can't become %s: a plan only moves forward", storage.ErrConflict, was, h.State.Status)
		}
		p, err := v.store.encode(o, copied)
		if err != nil {
			return driver.Unencodable(o, false, err)
		}
		if plan, ok := any(o).(*workflow.Plan); ok && plan.State.Status.Final() {
			if err := r.finalize(plan); err != nil {
				return err
			}
		}
		r.now[*h.ID] = p
		h.State.ETag = p.version
		return nil
	})
}

// finalize stores the sub-objects of a final plan as they are given, with their versions.
func (r *record) finalize(plan *workflow.Plan) error {
	shown := maps.Clone(r.now)
	for o := range workflow.Walk(plan) {
		text, err := workflow.MarshalOwn(o)
		if err != nil {
			return driver.Unencodable(plan, true, err)
		}
		shown[*o.Header().ID] = part{o.Kind(), o.Header().State.ETag, text}
	}
	r.shown = shown
	return nil
}

// Delete removes a plan with all its sub-objects.
func (v *Vault) Delete(ctx context.Context, id uuid.UUID) error {
	return v.call(ctx, "Delete", &id, func() error {
		_, err := v.find(id)
		if err == nil {
			delete(v.store.plans, id)
		}
		return err
	})
}

// DeleteCopy removes a plan that has the mark of a copy, and the version that is given.
func (v *Vault) DeleteCopy(ctx context.Context, plan *workflow.Plan) error {
	var id uuid.UUID
	if plan != nil {
		id = plan.ID
	}
	return v.call(ctx, "DeleteCopy", &id, func() error {
		if plan == nil {
			return driver.Invalid("Plan", "is nil")
		}
		r, err := v.find(id)
		if err == nil {
			err = cmp.Or(copies.Check(plan.State.ETag), copies.Check(r.now[id].version))
		}
		if err == nil {
			delete(v.store.plans, id)
		}
		return err
	})
}

// Recovery does nothing: no call leaves anything unfinished.
func (v *Vault) Recovery(ctx context.Context) error {
	return v.call(ctx, "Recovery", new(uuid.UUID), func() error { return nil })
}

// Close makes later calls return ErrClosed. A listing that is in progress ends with ErrClosed. The store
// remains.
func (v *Vault) Close(context.Context) error {
	v.store.mu.Lock() // waits for the call in progress
	defer v.store.mu.Unlock()
	v.closed = true
	return nil
}

// call runs a method while it holds the store, and completes its error. do may set the plan's ID.
func (v *Vault) call(ctx context.Context, op string, id *uuid.UUID, do func() error) error {
	v.store.mu.Lock()
	defer v.store.mu.Unlock()
	err := ctx.Err()
	if v.closed {
		err = storage.ErrClosed
	}
	if err == nil {
		err = do()
	}
	if err != nil {
		return &storage.Error{Op: op, Plan: *id, Err: err}
	}
	return nil
}

func (v *Vault) find(id uuid.UUID) (*record, error) {
	if err := driver.CheckID(id); err != nil {
		return nil, err
	}
	r, found := v.store.plans[id]
	if !found {
		return nil, storage.ErrNotFound
	}
	return r, nil
}

// encode makes a new version of an object.
func (s *Store) encode(o workflow.Object, copied bool) (part, error) {
	text, err := workflow.MarshalOwn(o)
	name := string(s.version())
	if copied {
		name = copies.Mark(name)
	}
	return part{o.Kind(), driver.Version(name, o), text}, err
}

// treeOf encodes the tree of a plan.
func treeOf(plan *workflow.Plan) ([]byte, error) {
	text, err := workflow.Marshal(plan)
	if err != nil {
		return nil, err
	}
	var t tree
	if err := json.Unmarshal(text, &t); err != nil {
		return nil, corrupt(err)
	}
	return json.Marshal(t)
}

// tree is the JSON of an object with nothing but its ID and its children.
type tree struct {
	ID              uuid.UUID `json:"id"`
	BypassChecks    *tree     `json:"bypassChecks,omitempty"`
	PreChecks       *tree     `json:"preChecks,omitempty"`
	ContChecks      *tree     `json:"contChecks,omitempty"`
	PostChecks      *tree     `json:"postChecks,omitempty"`
	DeferredChecks  *tree     `json:"deferredChecks,omitempty"`
	Blocks          []*tree   `json:"blocks,omitempty"`
	Sequences       []*tree   `json:"sequences,omitempty"`
	Actions         []*tree   `json:"actions,omitempty"`
	DeferredActions *tree     `json:"deferredActions,omitempty"`
	Batches         []*tree   `json:"batches,omitempty"`
}

func corrupt(err error) error { return fmt.Errorf("%w: %w", storage.ErrCorrupt, err) }

// Registry returns the registry that the vault was opened with. It may be nil.
func (v *Vault) Registry() *registry.Register { return v.reg }

// CheckFenced returns [storage.ErrInvalid] if the vault was opened with UnversionedUpdates: nobody can own its plans.
func (v *Vault) CheckFenced() error { return driver.CheckFenced(v.unversioned) }
