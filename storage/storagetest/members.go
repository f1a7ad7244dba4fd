package storagetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

func memberPromises() []promise {
	return []promise{
		{"a member is found by all nodes, until its record is removed", membersFound},
		{"a renewal gives the record a new version and a later time", membersRenewed},
		{"a version that is not stored any more is ErrConflict and changes nothing", membersStale},
		{"a record that was removed can't be renewed or removed", membersGone},
		{"an ID that is taken is ErrExists, and the record stays as it is", membersExist},
		{"if several nodes renew or remove one version, one wins", membersRace},
		{"a roster has all of many members, in order", membersMany},
		{"any name comes back", membersStrange},
		{"bad input is ErrInvalid and nothing is stored", membersInvalid},
		{"a vault that accepts updates without versions can't have members", membersUnversioned},
		{"a stop request is kept once, until its version is removed", membersStop},
		{"members and stop requests are no plans, and Recovery leaves them alone", membersApart},
		{"temporary faults do not show", membersFaulty},
		{"a death leaves a whole record or none", membersDeath},
	}
}

// joined adds a member.
func (s *stage) joined(v storage.Vault, name string) storage.Member {
	s.Helper()
	m := storage.Member{ID: workflow.NewV7(), Name: name, Started: moment, TTL: 90*time.Second + 1, Former: workflow.NewV7()}
	s.must(s.add(v, &m))
	return m
}

// add adds a member and sets its version.
func (s *stage) add(v storage.Vault, m *storage.Member) (err error) {
	s.Helper()
	m.Version, err = s.control(v).AddMember(s.ctx, *m)
	return err
}

// renew renews a record and sets its version.
func (s *stage) renew(v storage.Vault, m *storage.Member) error {
	s.Helper()
	version, err := s.control(v).RenewMember(s.ctx, *m)
	if err == nil {
		m.Version = version
	}
	return err
}

func (s *stage) roster(v storage.Vault) storage.Roster {
	s.Helper()
	r, err := s.control(v).Roster(s.ctx)
	s.must(err)
	if r.Now.IsZero() {
		s.Errorf("the roster has no time")
	}
	for _, m := range r.Members {
		s.past("the renewal of member "+m.ID.String(), m.Renewed, r.Now)
	}
	for _, stop := range r.Stops {
		s.past("the request to stop plan "+stop.Plan.String(), stop.Requested, r.Now)
	}
	return r
}

// rosterIs checks that a vault shows exactly these members, in the order of their IDs.
func (s *stage) rosterIs(v storage.Vault, want ...storage.Member) {
	s.Helper()
	slices.SortFunc(want, func(a, b storage.Member) int { return driver.NewestFirst(b.ID, a.ID) })
	got := s.roster(v).Members
	if !slices.EqualFunc(got, want, sameMember) {
		s.Errorf("the roster has the members\n%+.2000v\nwant\n%+.2000v", got, want)
	}
}

// sameMember compares what a member and its record have in common.
func sameMember(a, b storage.Member) bool {
	return a.ID == b.ID && a.Name == b.Name && a.Started.Equal(b.Started) && a.TTL == b.TTL && a.Version == b.Version &&
		a.Phase == b.Phase && slices.Equal(a.LetGo, b.LetGo) && a.Trouble == b.Trouble && a.Excused == b.Excused
}

func membersFound(s *stage) {
	s.rosterIs(s.vault)
	m := s.joined(s.vault, "one")
	other := s.joined(s.open(), "two")
	for _, v := range []storage.Vault{s.vault, s.open()} {
		s.rosterIs(v, m, other)
		found, err := s.control(v).FindMember(s.ctx, m.ID)
		s.must(err)
		if !sameMember(found, m) || found.Renewed.IsZero() {
			s.Errorf("found %+v, want %+v", found, m)
		}
		_, err = s.control(v).FindMember(s.ctx, workflow.NewV7())
		s.want(storage.ErrNotFound, "FindMember", uuid.Nil, err)
	}
	s.must(s.control(s.open()).RemoveMember(s.ctx, m.ID, m.Version))
	for _, v := range []storage.Vault{s.vault, s.open()} {
		s.rosterIs(v, other)
		_, err := s.control(v).FindMember(s.ctx, m.ID)
		s.want(storage.ErrNotFound, "FindMember", uuid.Nil, err)
	}
}

func membersRenewed(s *stage) {
	idle, m := s.joined(s.vault, "idle"), s.joined(s.vault, "busy")
	seen := map[storage.Version]bool{m.Version: true}
	for range 3 { // with unchanged content
		s.must(s.renew(s.vault, &m))
		if m.Version == "" || seen[m.Version] {
			s.Errorf("the version is %q again", m.Version)
		}
		seen[m.Version] = true
	}
	s.rosterIs(s.open(), idle, m)
	s.passGrace()
	m.Name, m.Started, m.TTL = strings.Repeat("ж", 500), moment.Add(time.Hour), time.Hour
	m.Excused, m.Phase, m.Trouble = true, "newer", strings.Repeat("ж", storage.MaxTrouble/2)
	for range storage.MaxLetGo {
		m.LetGo = append(m.LetGo, workflow.NewV7())
	}
	s.must(s.renew(s.open(), &m)) // the version is all that counts
	s.rosterIs(s.open(), idle, m)
	renewed := map[uuid.UUID]time.Time{}
	r := s.roster(s.vault)
	for _, listed := range r.Members {
		renewed[listed.ID] = listed.Renewed
	}
	if renewed[m.ID].Before(renewed[idle.ID]) || r.Now.Sub(renewed[m.ID]) > time.Minute {
		s.Errorf("%s was renewed just before %v: %+v", m.ID, r.Now, r.Members)
	}
}

func membersStale(s *stage) {
	m := s.joined(s.vault, "one")
	old := m
	s.must(s.renew(s.vault, &m))
	for _, old.Version = range []storage.Version{old.Version, "never"} {
		s.refusesMember(storage.ErrConflict, old, m)
	}
}

// refusesMember checks that a record can't be renewed or removed, and that the roster has others.
func (s *stage) refusesMember(kind error, m storage.Member, others ...storage.Member) {
	s.Helper()
	for _, v := range []storage.Vault{s.vault, s.open()} {
		same := m
		s.want(kind, "RenewMember", uuid.Nil, s.renew(v, &same))
		s.want(kind, "RemoveMember", uuid.Nil, s.control(v).RemoveMember(s.ctx, m.ID, m.Version))
		s.rosterIs(v, others...)
	}
}

func membersGone(s *stage) {
	m := s.joined(s.vault, "one")
	s.must(s.control(s.vault).RemoveMember(s.ctx, m.ID, m.Version))
	s.refusesMember(storage.ErrNotFound, m)
}

func membersExist(s *stage) {
	m := s.joined(s.vault, "one")
	again := storage.Member{ID: m.ID, Name: "two"}
	for _, v := range []storage.Vault{s.vault, s.open()} {
		s.want(storage.ErrExists, "AddMember", uuid.Nil, s.add(v, &again))
		s.rosterIs(v, m)
	}
}

func membersRace(s *stage) {
	const nodes = 6
	m := s.joined(s.vault, "one")
	var vaults []storage.Control
	for range nodes {
		vaults = append(vaults, s.control(s.open()))
	}
	versions := make([]storage.Version, nodes)
	m.Version = versions[s.oneWins(nodes, func(i int) (err error) {
		versions[i], err = vaults[i].RenewMember(s.ctx, m)
		return err
	}, func(err error) { s.want(storage.ErrConflict, "RenewMember", uuid.Nil, err) })]
	s.rosterIs(s.vault, m)

	removed := make([]bool, nodes)
	s.must(atOnce(nodes, func(i int) error {
		err := vaults[i].RemoveMember(s.ctx, m.ID, m.Version)
		if removed[i] = err == nil; errors.Is(err, storage.ErrNotFound) {
			return nil
		}
		return err
	}))
	if !slices.Contains(removed, true) {
		s.Errorf("no node removed the record")
	}
	s.rosterIs(s.vault)
}

func membersMany(s *stage) {
	const n = 40
	vaults := []storage.Vault{s.vault, s.open()}
	for _, v := range vaults {
		s.control(v)
	}
	all := make([]storage.Member, n)
	s.must(atOnce(n, func(i int) (err error) {
		m := storage.Member{ID: workflow.NewV7At(moment.Add(time.Duration(i) * time.Hour)), Name: fmt.Sprint(i)}
		m.Version, err = s.control(vaults[i%2]).AddMember(s.ctx, m)
		all[i] = m
		return errors.Join(err, s.control(vaults[i%2]).AddStop(s.ctx, m.ID, workflow.Attribution{}))
	}))
	s.rosterIs(s.vault, all...)
	stops := s.roster(s.vault).Stops
	if !slices.EqualFunc(stops, all, func(r storage.StopRequest, m storage.Member) bool { return r.Plan == m.ID }) {
		s.Errorf("%d stop requests: %+.2000v", len(stops), stops)
	}
}

func membersStrange(s *stage) {
	var all []storage.Member
	for name := range plantest.Strange() {
		for len(name) > 1000 {
			name = string([]rune(name)[:len([]rune(name))/2])
		}
		all = append(all, s.joined(s.vault, name))
	}
	s.rosterIs(s.open(), all...)
	for _, m := range all {
		found, err := s.control(s.vault).FindMember(s.ctx, m.ID)
		s.must(err)
		if !sameMember(found, m) {
			s.Errorf("found %+v, want %+v", found, m)
		}
	}
}

func membersInvalid(s *stage) {
	m := s.joined(s.vault, "one")
	for _, bad := range []struct {
		field string
		edit  func(m *storage.Member)
	}{
		{"Member.ID", func(m *storage.Member) { m.ID = uuid.Nil }},
		{"Member.ID", func(m *storage.Member) { m.ID = uuid.New() }},
		{"Member.Name", func(m *storage.Member) { m.Name = "\xff" }},
		{"Member.Name", func(m *storage.Member) { m.Name = strings.Repeat("a", 1001) }},
		{"Member.Started", func(m *storage.Member) { m.Started = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) }},
		{"Member.TTL", func(m *storage.Member) { m.TTL = -1 }},
		{"Member.Phase", func(m *storage.Member) { m.Phase = "Left" }},
		{"Member.Phase", func(m *storage.Member) { m.Phase = storage.Phase(strings.Repeat("a", 21)) }},
		{"Member.LetGo", func(m *storage.Member) { m.LetGo = make([]uuid.UUID, storage.MaxLetGo+1) }},
		{"Member.Trouble", func(m *storage.Member) { m.Trouble = "\xff" }},
		{"Member.Trouble", func(m *storage.Member) { m.Trouble = strings.Repeat("a", storage.MaxTrouble+1) }},
	} {
		fresh, renewed := storage.Member{ID: workflow.NewV7()}, m
		bad.edit(&fresh)
		bad.edit(&renewed)
		s.names(bad.field, "AddMember", uuid.Nil, s.add(s.vault, &fresh))
		s.names(bad.field, "RenewMember", uuid.Nil, s.renew(s.vault, &renewed))
	}
	s.names("Member.Version", "AddMember", uuid.Nil, s.add(s.vault, &storage.Member{ID: workflow.NewV7(), Version: m.Version}))
	s.names("Version", "RenewMember", uuid.Nil, s.renew(s.vault, &storage.Member{ID: m.ID}))
	s.names("Version", "RemoveMember", uuid.Nil, s.control(s.vault).RemoveMember(s.ctx, m.ID, ""))
	plan := workflow.NewV7()
	s.names("Version", "RemoveStop", plan, s.control(s.vault).RemoveStop(s.ctx, plan, ""))
	noPlan := uuid.New()
	s.want(storage.ErrNotFound, "AddStop", noPlan, s.control(s.vault).AddStop(s.ctx, noPlan, workflow.Attribution{}))
	s.rosterIs(s.vault, m)
	if stops := s.roster(s.vault).Stops; len(stops) > 0 {
		s.Errorf("there are stop requests: %+v", stops)
	}
}

func membersUnversioned(s *stage) {
	s.control(s.vault)
	s.needs(s.Unversioned != nil, "vault that accepts updates without a version")
	v := s.closing(s.Unversioned(s.T))
	s.want(storage.ErrInvalid, "AddMember", uuid.Nil, s.add(v, &storage.Member{ID: workflow.NewV7()}))
	s.rosterIs(s.vault)
}

func membersStop(s *stage) {
	plan, other := workflow.NewV7(), workflow.NewV7() // there are no such plans
	stops := func(v storage.Vault, want ...uuid.UUID) (list []storage.StopRequest) {
		s.Helper()
		r := s.roster(v)
		if !slices.EqualFunc(r.Stops, want, func(r storage.StopRequest, id uuid.UUID) bool { return r.Plan == id }) {
			s.Errorf("the roster has the stop requests %+v, want %v", r.Stops, want)
		}
		for _, stop := range r.Stops {
			if stop.Version == "" {
				s.Errorf("at %v, there is the stop request %+v", r.Now, stop)
			}
		}
		return r.Stops
	}
	asked := workflow.Attribution{By: "Ω <ops@example.com>", Why: "wrong cluster"}
	s.must(s.control(s.vault).AddStop(s.ctx, plan, asked))
	first := stops(s.open(), plan)
	for _, r := range first {
		if d := r.Attribution(); d.By != asked.By || d.Why != asked.Why || !d.At.Equal(r.Requested) {
			s.Errorf("the request of %+v is that of %+v", asked, d)
		}
	}
	s.want(storage.ErrInvalid, "AddStop", other, s.control(s.vault).AddStop(s.ctx, other, workflow.Attribution{Why: "\xff"}))
	for _, v := range []storage.Vault{s.vault, s.open()} {
		s.must(s.control(v).AddStop(s.ctx, plan, workflow.Attribution{By: "somebody else"}))
	}
	s.must(s.control(s.vault).AddStop(s.ctx, other, workflow.Attribution{}))
	if again := stops(s.vault, sorted(plan, other)...); len(first) == 1 && !slices.Contains(again, first[0]) {
		s.Errorf("the request %+v became one of %+v", first[0], again)
	}
	s.want(storage.ErrConflict, "RemoveStop", plan, s.control(s.vault).RemoveStop(s.ctx, plan, "never"))
	for _, stop := range stops(s.vault, sorted(plan, other)...) {
		if stop.Plan == plan {
			s.must(s.control(s.open()).RemoveStop(s.ctx, plan, stop.Version))
			s.must(s.control(s.vault).RemoveStop(s.ctx, plan, stop.Version))
		}
	}
	stops(s.vault, other)
	s.must(s.control(s.vault).AddStop(s.ctx, plan, workflow.Attribution{})) // a new one
	stops(s.open(), sorted(plan, other)...)
}

func sorted(ids ...uuid.UUID) []uuid.UUID {
	slices.SortFunc(ids, func(a, b uuid.UUID) int { return driver.NewestFirst(b, a) })
	return ids
}

func membersApart(s *stage) {
	m := s.joined(s.vault, "one")
	s.must(s.control(s.vault).AddStop(s.ctx, workflow.NewV7(), workflow.Attribution{}))
	if found := s.list(s.vault); len(found) > 0 {
		s.Errorf("there are plans: %+v", found)
	}
	plan := s.started(allKinds())
	s.must(s.control(s.vault).AddStop(s.ctx, plan.ID, workflow.Attribution{}))
	s.recoverAll()
	s.shows(s.vault, plan)
	s.rosterIs(s.vault, m)
	if stops := s.roster(s.vault).Stops; len(stops) != 2 {
		s.Errorf("the roster has the stop requests %+v", stops)
	}
}

func membersFaulty(s *stage) {
	s.control(s.vault)
	s.needs(s.Faulty != nil, "vault with temporary faults")
	for seed := range uint64(20) {
		v := s.closing(s.Faulty(s.T, seed))
		m := s.joined(v, "one")
		for range 5 {
			s.must(s.renew(v, &m))
		}
		plan := workflow.NewV7()
		s.must(s.control(v).AddStop(s.ctx, plan, workflow.Attribution{}))
		s.rosterIs(v, m)
		s.must(s.control(v).RemoveStop(s.ctx, plan, s.roster(v).Stops[0].Version))
		s.must(s.control(v).RemoveMember(s.ctx, m.ID, m.Version))
		s.rosterIs(s.vault)
	}
}

func membersDeath(s *stage) {
	s.control(s.vault)
	for d := range s.deaths() {
		m := storage.Member{ID: workflow.NewV7(), Name: "one", Started: moment}
		err := d.run(func(ctx context.Context, v storage.Vault) (err error) {
			if m.Version, err = s.control(v).AddMember(ctx, m); err != nil {
				return err
			}
			m.Version, err = s.control(v).RenewMember(ctx, m)
			return err
		})
		found, findErr := s.control(s.vault).FindMember(s.ctx, m.ID)
		switch {
		case errors.Is(findErr, storage.ErrNotFound) && err != nil:
		case findErr != nil:
			s.Fatalf("after %v: %v", err, findErr)
		case found.Name != m.Name || !found.Started.Equal(m.Started) || err == nil && found.Version != m.Version:
			s.Errorf("after %v: found %+v, want %+v", err, found, m)
		}
	}
}
