package storagetest

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"
)

// method is a call of one of a vault's methods.
type method struct {
	op string
	// plan is the plan that its error names.
	plan uuid.UUID
	do   func(ctx context.Context, v storage.Vault) error
}

// methodsOf returns calls of the methods of a verb, for a running plan of all kinds of which they change something. Create is
// given another plan.
func methodsOf(verb string, running, fresh *workflow.Plan) (list []method) {
	id := running.ID
	add := func(op string, plan uuid.UUID, do func(ctx context.Context, v storage.Vault) error) {
		list = append(list, method{op, plan, do})
	}
	switch verb {
	case "create":
		add("Create", fresh.ID, func(ctx context.Context, v storage.Vault) error { return v.Create(ctx, fresh) })
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
		add("List", uuid.Nil, func(ctx context.Context, v storage.Vault) error { return second(drain(v.List(ctx, 0))) })
	case "search":
		for _, f := range []storage.Filters{
			{ByIDs: []uuid.UUID{id}},
			{ByStatus: []workflow.Status{workflow.Running}},
			{BeforeID: uuid.MustParse("ffffffff-ffff-7fff-bfff-ffffffffffff"), Limit: 5},
		} {
			add("Search", uuid.Nil, func(ctx context.Context, v storage.Vault) error { return second(drain(v.Search(ctx, f))) })
		}
	case "recovery":
		add("Recovery", uuid.Nil, func(ctx context.Context, v storage.Vault) error { return v.Recovery(ctx) })
	}
	return list
}

func second[T any](_ T, err error) error { return err }

// verbs are all that methodsOf knows.
var verbs = []string{"create", "read", "update", "delete", "list", "search", "recovery"}

// contextCases are the same promises for the methods of each verb.
func contextCases(verb string) []Case {
	return []Case{
		on(verb+"/a call whose context has ended fails with its error and does nothing", func(s *stage) {
			ctx, cancel := context.WithCancel(s.ctx)
			cancel()
			s.fail(verb, func(m method) error {
				err := m.do(ctx, s.vault)
				s.want(context.Canceled, m.op, m.plan, err)
				return err
			})
		}),
		on(verb+"/a call returns soon after its context ends, whatever the service does", func(s *stage) {
			s.needs(s.Dying != nil, "service that does not answer")
			s.fail(verb, func(m method) error {
				v, died := s.Dying(s.T, 1, false)
				s.closing(v)
				ctx, cancel := context.WithTimeout(s.ctx, 50*time.Millisecond)
				defer cancel()
				started := time.Now()
				err := m.do(ctx, v)
				if took := time.Since(started); took > 10*time.Second {
					s.Errorf("%s returned %v after it began, its context ended after 50ms", m.op, took)
				}
				s.want(context.DeadlineExceeded, m.op, m.plan, err)
				if !died() {
					s.Errorf("%s sent no request", m.op)
				}
				return err
			})
		}),
	}
}

// fail makes calls that should fail, and holds what is stored against what was there before.
func (s *stage) fail(verb string, call func(m method) error) {
	s.Helper()
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
