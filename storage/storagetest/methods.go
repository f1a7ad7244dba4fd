package storagetest

import (
	"context"
	"errors"
	"reflect"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// method is a call of a method of a vault.
type method struct {
	op string
	// plan is the plan that its error must name.
	plan uuid.UUID
	do   func(ctx context.Context, v storage.Vault) error
}

// on returns a call of a method of an interface that a vault may offer.
func on[I any](op string, plan uuid.UUID, do func(ctx context.Context, v I) error) method {
	return method{op, plan, func(ctx context.Context, v storage.Vault) error {
		offered, _ := storage.As[I](v)
		return do(ctx, offered)
	}}
}

// methodsOf returns calls of the methods of a verb. They act on a running plan with all kinds of objects; Create and Restore
// get the fresh plan.
func methodsOf(verb string, running, fresh *workflow.Plan) (list []method) {
	type (
		vault   = storage.Vault
		control = storage.Control
	)
	id, all := running.ID, uuid.Nil
	member, note := storage.Member{ID: workflow.NewV7()}, storage.Note{Name: "a", Text: []byte("{}")}
	renewed := storage.Member{ID: member.ID, Version: "any"}
	switch verb {
	case "create":
		return []method{on("Create", fresh.ID, func(ctx context.Context, v vault) error { return v.Create(ctx, fresh) })}
	case "restore":
		plan := copied(plantest.Clone(fresh), workflow.Completed)
		moveTo(plan, fresh.ID)
		return []method{on("Restore", fresh.ID, func(ctx context.Context, v storage.Restorer) error { return v.Restore(ctx, plan) })}
	case "read":
		return []method{
			on("Exists", id, func(ctx context.Context, v vault) error { return second(v.Exists(ctx, id)) }),
			on("Read", id, func(ctx context.Context, v vault) error { return second(v.Read(ctx, id)) }),
		}
	case "update":
		for _, o := range eachKind(plantest.Clone(running)) {
			o.Header().State.Status = workflow.Failed
			list = append(list, on(methodOf(o), id, func(ctx context.Context, v vault) error { return storage.Update(ctx, v, o) }))
		}
	case "delete":
		return []method{on("Delete", id, func(ctx context.Context, v vault) error { return v.Delete(ctx, id) })}
	case "list":
		return []method{on("List", all, func(ctx context.Context, v vault) error { return second(storage.Collect(v.List(ctx, 0))) })}
	case "search":
		for _, f := range []storage.Filters{{ByIDs: []uuid.UUID{id}}, {ByStatus: statuses[1:2]}, {BeforeID: latest, Limit: 5}} {
			list = append(list, on("Search", all, func(ctx context.Context, v vault) error {
				return second(storage.Collect(v.Search(ctx, f)))
			}))
		}
	case "count":
		for _, f := range []storage.Filters{{}, {ByIDs: []uuid.UUID{id}}, {NameContains: "a"}} {
			list = append(list, on("Count", all, func(ctx context.Context, v vault) error { return second(v.Count(ctx, f)) }))
		}
	case "recovery":
		return []method{on("Recovery", all, func(ctx context.Context, v vault) error { return v.Recovery(ctx) })}
	case "members":
		return []method{
			on("AddMember", all, func(ctx context.Context, v control) error { return second(v.AddMember(ctx, member)) }),
			on("FindMember", all, func(ctx context.Context, v control) error { return second(v.FindMember(ctx, member.ID)) }),
			on("Roster", all, func(ctx context.Context, v control) error { return second(v.Roster(ctx)) }),
			on("RenewMember", all, func(ctx context.Context, v control) error { return second(v.RenewMember(ctx, renewed)) }),
			on("RemoveMember", all, func(ctx context.Context, v control) error { return v.RemoveMember(ctx, member.ID, "any") }),
			on("AddStop", id, func(ctx context.Context, v control) error { return v.AddStop(ctx, id, workflow.Attribution{}) }),
			on("RemoveStop", id, func(ctx context.Context, v control) error { return v.RemoveStop(ctx, id, "any") }),
		}
	case "notes":
		return []method{
			on("PutNote", all, func(ctx context.Context, v control) error { return second(v.PutNote(ctx, note)) }),
			on("FindNote", all, func(ctx context.Context, v control) error { return second(v.FindNote(ctx, note.Name)) }),
			on("RemoveNote", all, func(ctx context.Context, v control) error { return v.RemoveNote(ctx, note.Name, "any") }),
		}
	case "keys":
		key := storage.KeyRecord{Name: "a"}
		return []method{
			on("PutKey", all, func(ctx context.Context, v control) error { return second(v.PutKey(ctx, key)) }),
			on("FindKey", all, func(ctx context.Context, v control) error { return second(v.FindKey(ctx, key.Name)) }),
			on("RemoveKey", all, func(ctx context.Context, v control) error { return v.RemoveKey(ctx, key.Name, "any") }),
			on("Keys", all, func(ctx context.Context, v control) error { return second(storage.Collect(v.Keys(ctx))) }),
		}
	case "audit":
		return []method{
			on("Record", all, func(ctx context.Context, v control) error { return v.Record(ctx, entryAt(moment)) }),
			on("AuditEntries", all, func(ctx context.Context, v control) error {
				return second(storage.Collect(v.AuditEntries(ctx, storage.AuditFilters{})))
			}),
		}
	}
	return list
}

// latest sorts before all IDs of plans.
var latest = uuid.MustParse("ffffffff-ffff-7fff-bfff-ffffffffffff")

func second[T any](_ T, err error) error { return err }

// offers returns an interface that a vault may offer. It skips the case if the vault does not.
func offers[I any](s *stage, v storage.Vault) I {
	s.Helper()
	offered, ok := storage.As[I](v)
	s.needs(ok, "vault that offers "+reflect.TypeFor[I]().String())
	return offered
}

func (s *stage) control(v storage.Vault) storage.Control { return offers[storage.Control](s, v) }

// optional are the verbs of interfaces that a vault need not offer.
var optional = map[string]func(s *stage, v storage.Vault){
	"restore": func(s *stage, v storage.Vault) { offers[storage.Restorer](s, v) },
	"members": func(s *stage, v storage.Vault) { s.control(v) },
	"notes":   func(s *stage, v storage.Vault) { s.control(v) },
	"keys":    func(s *stage, v storage.Vault) { s.control(v) },
	"audit":   func(s *stage, v storage.Vault) { s.control(v) },
}

// methodPromises are what the methods of every verb promise.
func methodPromises(verb string) []promise {
	return []promise{
		{"a call whose context has ended fails with its error and does nothing", func(s *stage) { s.callEnded(verb) }},
		{"a call returns soon after its context ends, whatever the service does", func(s *stage) { s.callHangs(verb) }},
		{"a closed vault does nothing and returns ErrClosed", func(s *stage) { s.callClosed(verb) }},
	}
}

func (s *stage) callEnded(verb string) {
	ctx, cancel := context.WithCancel(s.ctx)
	cancel()
	s.fail(verb, func(m method) error {
		err := m.do(ctx, s.vault)
		s.want(context.Canceled, m.op, m.plan, err)
		return err
	})
}

func (s *stage) callClosed(verb string) {
	v := s.open()
	s.must(v.Close(s.ctx))
	s.fail(verb, func(m method) error {
		err := m.do(s.ctx, v)
		s.want(storage.ErrClosed, m.op, uuid.Nil, err)
		return err
	})
}

func (s *stage) callHangs(verb string) {
	s.needs(s.Dying != nil, "service that does not answer")
	s.fail(verb, func(m method) error {
		v, died := s.Dying(s.T, 1, false)
		s.closing(v)
		if offered := optional[verb]; offered != nil {
			offered(s, v)
		}
		var err error
		// A slow machine may send nothing in so short a time.
		for limit := 50 * time.Millisecond; !died() && limit < time.Minute; limit *= 8 {
			err = s.timed(m, v, limit)
		}
		if !died() {
			s.Errorf("%s sent no request", m.op)
		}
		return err
	})
}

// timed makes a call whose context ends after some time, and checks that it returns soon after.
func (s *stage) timed(m method, v storage.Vault, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(s.ctx, limit)
	defer cancel()
	started := time.Now()
	err := m.do(ctx, v)
	if took := time.Since(started); took > limit+10*time.Second {
		s.Errorf("%s returned after %v; its context ended after %v", m.op, took, limit)
	}
	s.want(context.DeadlineExceeded, m.op, m.plan, err)
	return err
}

// fail makes calls that must fail, and checks that they changed nothing.
func (s *stage) fail(verb string, call func(m method) error) {
	s.Helper()
	if offered := optional[verb]; offered != nil {
		offered(s, s.vault)
	}
	plan := s.started(allKinds())
	before := plantest.Clone(plan)
	fresh := allKinds()
	fresh.ID = workflow.NewV7()
	unknown := false
	for _, m := range methodsOf(verb, plan, fresh) {
		unknown = errors.Is(call(m), storage.ErrUnknown) || unknown
	}
	if !unknown {
		s.shows(s.vault, before)
		s.lacks(s.vault, fresh.ID)
	}
}
