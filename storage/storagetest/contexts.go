package storagetest

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"
)

// method is a call of a method of a vault.
type method struct {
	op string
	// plan is the plan that its error must name.
	plan uuid.UUID
	do   func(ctx context.Context, v storage.Vault) error
}

// methodsOf returns calls of the methods of a verb. They act on a running plan with all kinds of objects;
// Create gets the fresh plan.
func methodsOf(verb string, running, fresh *workflow.Plan) (list []method) {
	id := running.ID
	add := func(op string, plan uuid.UUID, do func(ctx context.Context, v storage.Vault) error) {
		list = append(list, method{op, plan, do})
	}
	switch verb {
	case "create":
		add("Create", fresh.ID, func(ctx context.Context, v storage.Vault) error { return v.Create(ctx, fresh) })
	case "restore":
		plan := copied(plantest.Clone(fresh), workflow.Completed)
		moveTo(plan, fresh.ID)
		add("Restore", fresh.ID, func(ctx context.Context, v storage.Vault) error { return v.(storage.Restorer).Restore(ctx, plan) })
	case "read":
		add("Exists", id, func(ctx context.Context, v storage.Vault) error { return second(v.Exists(ctx, id)) })
		add("Read", id, func(ctx context.Context, v storage.Vault) error { return second(v.Read(ctx, id)) })
	case "update":
		for _, o := range eachKind(plantest.Clone(running)) {
			o.Header().State.Status = workflow.Failed
			add(methodOf(o), id, func(ctx context.Context, v storage.Vault) error { return storage.Update(ctx, v, o) })
		}
	case "delete":
		add("Delete", id, func(ctx context.Context, v storage.Vault) error { return v.Delete(ctx, id) })
	case "list":
		add("List", uuid.Nil, func(ctx context.Context, v storage.Vault) error { return second(storage.Collect(v.List(ctx, 0))) })
	case "search":
		for _, f := range []storage.Filters{
			{ByIDs: []uuid.UUID{id}},
			{ByStatus: []workflow.Status{workflow.Running}},
			{BeforeID: uuid.MustParse("ffffffff-ffff-7fff-bfff-ffffffffffff"), Limit: 5},
		} {
			add("Search", uuid.Nil, func(ctx context.Context, v storage.Vault) error { return second(storage.Collect(v.Search(ctx, f))) })
		}
	case "count":
		for _, f := range []storage.Filters{{}, {ByIDs: []uuid.UUID{id}}, {NameContains: "a"}} {
			add("Count", uuid.Nil, func(ctx context.Context, v storage.Vault) error { return second(v.Count(ctx, f)) })
		}
	case "recovery":
		add("Recovery", uuid.Nil, func(ctx context.Context, v storage.Vault) error { return v.Recovery(ctx) })
	case "members":
		of := func(op string, plan uuid.UUID, do func(ctx context.Context, m storage.Members) error) {
			add(op, plan, func(ctx context.Context, v storage.Vault) error { return do(ctx, v.(storage.Members)) })
		}
		m := storage.Member{ID: workflow.NewV7()}
		of("AddMember", uuid.Nil, func(ctx context.Context, v storage.Members) error { return second(v.AddMember(ctx, m)) })
		of("FindMember", uuid.Nil, func(ctx context.Context, v storage.Members) error { return second(v.FindMember(ctx, m.ID)) })
		of("Roster", uuid.Nil, func(ctx context.Context, v storage.Members) error { return second(v.Roster(ctx)) })
		of("RenewMember", uuid.Nil, func(ctx context.Context, v storage.Members) error {
			return second(v.RenewMember(ctx, storage.Member{ID: m.ID, Version: "any"}))
		})
		of("RemoveMember", uuid.Nil, func(ctx context.Context, v storage.Members) error { return v.RemoveMember(ctx, m.ID, "any") })
		of("RequestStop", id, func(ctx context.Context, v storage.Members) error {
			return v.RequestStop(ctx, id, workflow.Attribution{})
		})
		of("RemoveStop", id, func(ctx context.Context, v storage.Members) error { return v.RemoveStop(ctx, id, "any") })
	case "notes":
		of := func(op string, do func(ctx context.Context, n storage.Notes) error) {
			add(op, uuid.Nil, func(ctx context.Context, v storage.Vault) error { return do(ctx, v.(storage.Notes)) })
		}
		n := storage.Note{Name: "a", Text: []byte("{}")}
		of("PutNote", func(ctx context.Context, v storage.Notes) error { return second(v.PutNote(ctx, n)) })
		of("FindNote", func(ctx context.Context, v storage.Notes) error { return second(v.FindNote(ctx, n.Name)) })
		of("RemoveNote", func(ctx context.Context, v storage.Notes) error { return v.RemoveNote(ctx, n.Name, "any") })
	case "audit":
		of := func(op string, do func(ctx context.Context, j storage.AuditLog) error) {
			add(op, uuid.Nil, func(ctx context.Context, v storage.Vault) error { return do(ctx, v.(storage.AuditLog)) })
		}
		of("Record", func(ctx context.Context, j storage.AuditLog) error { return j.Record(ctx, entryAt(moment)) })
		of("AuditEntries", func(ctx context.Context, j storage.AuditLog) error {
			return second(j.AuditEntries(ctx, storage.AuditFilters{}))
		})
	}
	return list
}

func second[T any](_ T, err error) error { return err }

// verbs are the verbs that methodsOf knows and the vault has.
func (s *stage) verbs() []string {
	verbs := []string{"create", "read", "update", "delete", "list", "search", "count", "recovery"}
	if _, ok := s.vault.(storage.Members); ok {
		verbs = append(verbs, "members")
	}
	if _, ok := s.vault.(storage.Notes); ok {
		verbs = append(verbs, "notes")
	}
	if _, ok := s.vault.(storage.AuditLog); ok {
		verbs = append(verbs, "audit")
	}
	if _, ok := s.vault.(storage.Restorer); ok {
		verbs = append(verbs, "restore")
	}
	return verbs
}

// contextPromises are what the methods of every verb promise about their contexts.
func contextPromises(verb string) []promise {
	return []promise{
		{"a call whose context has ended fails with its error and does nothing", func(s *stage) { s.callEnded(verb) }},
		{"a call returns soon after its context ends, whatever the service does", func(s *stage) { s.callHangs(verb) }},
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

func (s *stage) callHangs(verb string) {
	s.needs(s.Dying != nil, "service that does not answer")
	s.fail(verb, func(m method) error {
		v, died := s.Dying(s.T, 1, false)
		s.closing(v)
		switch verb {
		case "members":
			s.members(v)
		case "notes":
			s.notes(v)
		case "restore":
			s.restorer(v)
		}
		var err error
		for limit := 50 * time.Millisecond; !died() && limit < time.Minute; limit *= 8 { // a slow machine sends nothing in so short a time
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
	s.needs(slices.Contains(s.verbs(), verb), "vault with "+verb)
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
