package storagetest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

func keyPromises() []promise {
	return []promise{
		{"a key's record comes back as it is, and is replaced and removed in its version only", keysKept},
		{"all keys are listed, whatever their names, and no roster has them", keysListed},
		{"if several nodes replace one version, one wins", keysRace},
		{"bad input is ErrInvalid and nothing is stored", keysInvalid},
		{"temporary faults do not show", keysFaulty},
		{"a death leaves a whole record or none", keysDeath},
	}
}

// putKey stores a key's record and returns it with its version.
func (s *stage) putKey(v storage.Vault, k storage.KeyRecord) storage.KeyRecord {
	s.Helper()
	given := k
	given.Holders, given.Waiting = slices.Clone(k.Holders), slices.Clone(k.Waiting)
	version, err := s.control(v).PutKey(s.ctx, given)
	s.must(err)
	clear(given.Holders) // the store shares no memory with it
	clear(given.Waiting)
	if version == "" || version == k.Version {
		s.Errorf("key %q has the version %q after %q", k.Name, version, k.Version)
	}
	k.Version = version
	return k
}

// keysAre checks that these keys are found, and that they and no others are listed.
func (s *stage) keysAre(v storage.Vault, want ...storage.KeyRecord) {
	s.Helper()
	expected := map[string]storage.ListedKey{}
	for _, k := range want {
		found, err := s.control(v).FindKey(s.ctx, k.Name)
		s.must(err)
		s.past("the storing of key "+k.Name, found.Stored, found.Now)
		k.Stored, k.Now = found.Stored, found.Now
		if !reflect.DeepEqual(found, k) {
			s.Errorf("found %.500v, want %.500v", found, k)
		}
		clear(found.Holders)
		clear(found.Waiting)
		expected[k.Name] = driver.ListedKey(k)
	}
	list, err := storage.Collect(s.control(v).Keys(s.ctx))
	s.must(err)
	listed := map[string]storage.ListedKey{}
	for _, k := range list {
		listed[k.Name] = k
	}
	if len(list) != len(want) || !reflect.DeepEqual(listed, expected) {
		s.Errorf("the keys are %.2000v, want %.2000v", list, expected)
	}
}

// holders returns holders of all kinds.
func holders(n int) (list []storage.Holder) {
	for i := range n {
		list = append(list, storage.Holder{Plan: workflow.NewV7(), Limit: i % (workflow.MaxKeyLimit + 1), Taken: i%2 == 0})
	}
	return list
}

// waiting returns plans that wait until all kinds of times.
func waiting(n int) (list []storage.Waiter) {
	for i, h := range holders(n) {
		list = append(list, storage.Waiter{Plan: h.Plan, Limit: h.Limit, Until: time.Date(9999-i, 12, 31, 23, 59, 59, i, time.UTC)})
	}
	return list
}

func keysKept(s *stage) {
	_, err := s.control(s.vault).FindKey(s.ctx, "a")
	s.want(storage.ErrNotFound, "FindKey", uuid.Nil, err)
	s.keysAre(s.vault)
	k := s.putKey(s.vault, storage.KeyRecord{Name: "a"})
	old := k
	for _, v := range []storage.Vault{s.open(), s.vault} {
		s.keysAre(v, k)
		_, err := s.control(v).PutKey(s.ctx, storage.KeyRecord{Name: "a"})
		s.want(storage.ErrExists, "PutKey", uuid.Nil, err)
		k.Limit, k.PausedUntil, k.Searched = workflow.MaxKeyLimit, time.Date(9999, 12, 31, 23, 59, 59, 1, time.UTC), true
		k.By = workflow.Attribution{By: strings.Repeat("я", workflow.MaxBy/2), Why: strings.Repeat("計", workflow.MaxWhy/3), At: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)}
		k.Holders, k.Waiting = holders(3), waiting(2)
		k = s.putKey(v, k)
		k = s.putKey(v, k) // with unchanged content
	}
	for _, old.Version = range []storage.Version{old.Version, "never"} {
		_, err := s.control(s.vault).PutKey(s.ctx, old)
		s.want(storage.ErrConflict, "PutKey", uuid.Nil, err)
		s.want(storage.ErrConflict, "RemoveKey", uuid.Nil, s.control(s.vault).RemoveKey(s.ctx, "a", old.Version))
		s.keysAre(s.vault, k)
	}
	k.Holders, k.Waiting = holders(storage.MaxHolders), waiting(storage.MaxWaiting)
	k = s.putKey(s.vault, k)
	s.recoverAll()
	s.keysAre(s.vault, k)
	s.must(s.control(s.open()).RemoveKey(s.ctx, "a", k.Version))
	s.want(storage.ErrNotFound, "RemoveKey", uuid.Nil, s.control(s.vault).RemoveKey(s.ctx, "a", k.Version))
	_, err = s.control(s.vault).PutKey(s.ctx, k)
	s.want(storage.ErrNotFound, "PutKey", uuid.Nil, err)
	s.keysAre(s.vault)
}

func keysListed(s *stage) {
	var want []storage.KeyRecord
	for i, name := range []string{
		"a", "A", "a/b", "a.", ".", "..", " ", "a ", "%41", "_41", "key:план 🚀", "\u2028", "=?utf-8?b?YQ==?=", "?&#", `\`, strings.Repeat("я", storage.MaxKeyRecordName/2),
	} {
		want = append(want, s.putKey(s.vault, storage.KeyRecord{Name: name, Limit: i, Holders: holders(i % 3)}))
	}
	s.keysAre(s.open(), want...)
	if r := s.roster(s.vault); len(r.Members)+len(r.Stops)+len(r.Notes) > 0 {
		s.Errorf("the roster is %+v", r)
	}
	if found := s.list(s.vault); len(found) > 0 {
		s.Errorf("the plans are %+v", found)
	}
}

func keysRace(s *stage) {
	const nodes = 6
	k := s.putKey(s.vault, storage.KeyRecord{Name: "a"})
	var vaults []storage.Control
	for range nodes {
		vaults = append(vaults, s.control(s.open()))
	}
	tries := make([]storage.KeyRecord, nodes)
	won := s.oneWins(nodes, func(i int) (err error) {
		tries[i] = storage.KeyRecord{Name: "a", Holders: holders(1), Version: k.Version}
		tries[i].Version, err = vaults[i].PutKey(s.ctx, tries[i])
		return err
	}, func(err error) { s.want(storage.ErrConflict, "PutKey", uuid.Nil, err) })
	s.keysAre(s.vault, tries[won])
}

func keysInvalid(s *stage) {
	k := s.putKey(s.vault, storage.KeyRecord{Name: "a"})
	for _, name := range []string{"", "a\nb", "\x00", "\u0085", "\xff", strings.Repeat("a", storage.MaxKeyRecordName+1)} {
		_, err := s.control(s.vault).PutKey(s.ctx, storage.KeyRecord{Name: name})
		s.names("KeyRecord.Name", "PutKey", uuid.Nil, err)
		_, err = s.control(s.vault).FindKey(s.ctx, name)
		s.names("KeyRecord.Name", "FindKey", uuid.Nil, err)
		s.names("KeyRecord.Name", "RemoveKey", uuid.Nil, s.control(s.vault).RemoveKey(s.ctx, name, k.Version))
	}
	twice := holders(1)
	for field, bad := range map[string]storage.KeyRecord{
		"KeyRecord.Limit":            {Limit: workflow.MaxKeyLimit + 1},
		"KeyRecord.PausedUntil":      {PausedUntil: time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)},
		"By":                         {By: workflow.Attribution{By: "\xff"}},
		"KeyRecord.Holders":          {Holders: holders(storage.MaxHolders + 1)},
		"KeyRecord.Holders[1].Plan":  {Holders: append(twice, twice...)},
		"KeyRecord.Holders[0].Plan":  {Holders: []storage.Holder{{Plan: uuid.New()}}},
		"KeyRecord.Holders[0].Limit": {Holders: []storage.Holder{{Plan: workflow.NewV7(), Limit: -1}}},
		"KeyRecord.Waiting":          {Waiting: waiting(storage.MaxWaiting + 1)},
		"KeyRecord.Waiting[0].Plan":  {Waiting: []storage.Waiter{{Plan: uuid.New()}}},
		"KeyRecord.Waiting[0].Until": {Waiting: []storage.Waiter{{Plan: workflow.NewV7(), Until: time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)}}},
	} {
		for _, bad.Version = range []storage.Version{"", k.Version} {
			bad.Name = "a"
			_, err := s.control(s.vault).PutKey(s.ctx, bad)
			s.names(field, "PutKey", uuid.Nil, err)
		}
	}
	s.names("Version", "RemoveKey", uuid.Nil, s.control(s.vault).RemoveKey(s.ctx, "a", ""))
	s.keysAre(s.vault, k)
}

func keysFaulty(s *stage) {
	s.control(s.vault)
	s.needs(s.Faulty != nil, "vault with temporary faults")
	for seed := range uint64(20) {
		v := s.closing(s.Faulty(s.T, seed))
		k := storage.KeyRecord{Name: "a"}
		for i := range 5 {
			k.Holders = holders(i)
			k = s.putKey(v, k)
		}
		s.keysAre(v, k)
		s.must(s.control(v).RemoveKey(s.ctx, "a", k.Version))
		s.keysAre(s.vault)
	}
}

func keysDeath(s *stage) {
	s.control(s.vault)
	i := 0
	for d := range s.deaths() {
		k := storage.KeyRecord{Name: fmt.Sprint(i)}
		i++
		err := d.run(func(ctx context.Context, v storage.Vault) (err error) {
			for k.Limit = 1; k.Limit < 3; k.Limit++ {
				if k.Version, err = s.control(v).PutKey(ctx, k); err != nil {
					return err
				}
			}
			return nil
		})
		found, findErr := s.control(s.vault).FindKey(s.ctx, k.Name)
		switch {
		case errors.Is(findErr, storage.ErrNotFound) && err != nil:
		case findErr != nil:
			s.Fatalf("after %v: %v", err, findErr)
		case found.Limit != 1 && found.Limit != 2 || err == nil && (found.Limit != 2 || found.Version != k.Version):
			s.Errorf("after %v: found %+v, want %+v", err, found, k)
		}
	}
}
