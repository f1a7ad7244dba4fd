package storagetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage"
)

func notePromises() []promise {
	return []promise{
		{"a note comes back byte by byte, and is replaced and removed in its version only", notesKept},
		{"a roster names all notes in order, and no text", notesNamed},
		{"if several nodes replace one version, one wins", notesRace},
		{"bad input is ErrInvalid and nothing is stored", notesInvalid},
		{"notes are no plans and no members, and Recovery leaves them alone", notesApart},
		{"temporary faults do not show", notesFaulty},
		{"a death leaves a whole note or none", notesDeath},
	}
}

// put stores a note and returns it with its version.
func (s *stage) put(v storage.Vault, n storage.Note) storage.Note {
	s.Helper()
	given := slices.Clone(n.Text)
	version, err := s.control(v).PutNote(s.ctx, storage.Note{Name: n.Name, Text: given, Version: n.Version})
	s.must(err)
	clear(given) // the store shares no memory with it
	if version == "" || version == n.Version {
		s.Errorf("note %s has the version %q after %q", n.Name, version, n.Version)
	}
	n.Version = version
	return n
}

// notesAre checks that a roster names these notes, and that each is found.
func (s *stage) notesAre(v storage.Vault, want ...storage.Note) {
	s.Helper()
	same := func(a, b storage.Note) bool { return a.Name == b.Name && a.Version == b.Version }
	for _, n := range want {
		found, err := s.control(v).FindNote(s.ctx, n.Name)
		s.must(err)
		if !same(found, n) || string(found.Text) != strings.TrimSpace(string(n.Text)) || found.Stored.IsZero() {
			s.Errorf("found %.500v, want %.500v", found, n)
		}
		clear(found.Text)
	}
	roster := s.roster(v)
	if !slices.EqualFunc(roster.Notes, want, same) {
		s.Errorf("the roster has the notes %.2000v, want %.2000v", roster.Notes, want)
	}
	for _, n := range roster.Notes {
		if s.past("the storing of note "+n.Name, n.Stored, roster.Now); n.Text != nil {
			s.Errorf("the roster has the text of note %s", n.Name)
		}
	}
}

func notesKept(s *stage) {
	_, err := s.control(s.vault).FindNote(s.ctx, "a")
	s.want(storage.ErrNotFound, "FindNote", uuid.Nil, err)
	s.notesAre(s.vault)
	n := s.put(s.vault, storage.Note{Name: "a", Text: []byte("\n{\"a\": 1.0, \"b\":\t\"<&>\\u0041\",\"a\":null} ")})
	old := n
	for _, v := range []storage.Vault{s.open(), s.vault} {
		s.notesAre(v, n)
		_, err := s.control(v).PutNote(s.ctx, storage.Note{Name: "a", Text: []byte("{}")})
		s.want(storage.ErrExists, "PutNote", uuid.Nil, err)
		n.Text = []byte(`{"a":"` + strings.Repeat("ж", storage.MaxNote/2-4) + `"}`)
		n = s.put(v, n)
		n = s.put(v, n) // with unchanged content
	}
	for _, old.Version = range []storage.Version{old.Version, "never"} {
		_, err := s.control(s.vault).PutNote(s.ctx, old)
		s.want(storage.ErrConflict, "PutNote", uuid.Nil, err)
		s.want(storage.ErrConflict, "RemoveNote", uuid.Nil, s.control(s.vault).RemoveNote(s.ctx, "a", old.Version))
		s.notesAre(s.vault, n)
	}
	s.must(s.control(s.open()).RemoveNote(s.ctx, "a", n.Version))
	s.want(storage.ErrNotFound, "RemoveNote", uuid.Nil, s.control(s.vault).RemoveNote(s.ctx, "a", n.Version))
	_, err = s.control(s.vault).PutNote(s.ctx, n)
	s.want(storage.ErrNotFound, "PutNote", uuid.Nil, err)
	s.notesAre(s.vault)
}

func notesNamed(s *stage) {
	var want []storage.Note
	for i := range 20 {
		want = append(want, s.put(s.vault, storage.Note{Name: fmt.Sprintf("%02d-a", i), Text: []byte("{}")}))
	}
	want = append(want, s.put(s.vault, storage.Note{Name: strings.Repeat("z", storage.MaxNoteName), Text: []byte("{}")}))
	s.notesAre(s.open(), want...)
}

func notesRace(s *stage) {
	const nodes = 6
	n := s.put(s.vault, storage.Note{Name: "a", Text: []byte("{}")})
	var vaults []storage.Control
	for range nodes {
		vaults = append(vaults, s.control(s.open()))
	}
	tries := make([]storage.Note, nodes)
	won := s.oneWins(nodes, func(i int) (err error) {
		tries[i] = storage.Note{Name: n.Name, Text: fmt.Appendf(nil, `{"node":%d}`, i), Version: n.Version}
		tries[i].Version, err = vaults[i].PutNote(s.ctx, tries[i])
		return err
	}, func(err error) { s.want(storage.ErrConflict, "PutNote", uuid.Nil, err) })
	s.notesAre(s.vault, tries[won])
}

func notesInvalid(s *stage) {
	n := s.put(s.vault, storage.Note{Name: "a", Text: []byte("{}")})
	for _, name := range []string{"", "A", "a.json", "a/b", "ж", "a b", strings.Repeat("a", storage.MaxNoteName+1)} {
		_, err := s.control(s.vault).PutNote(s.ctx, storage.Note{Name: name, Text: n.Text})
		s.names("Note.Name", "PutNote", uuid.Nil, err)
		_, err = s.control(s.vault).FindNote(s.ctx, name)
		s.names("Note.Name", "FindNote", uuid.Nil, err)
		s.names("Note.Name", "RemoveNote", uuid.Nil, s.control(s.vault).RemoveNote(s.ctx, name, n.Version))
	}
	deep := strings.Repeat(`{"a":`, 9_999) + "1" + strings.Repeat("}", 9_999)
	for _, text := range []string{
		"", "[]", `"a"`, "{", "{}{}", "{}],[{}", "{a:1}", "{\"a\":\"\xff\"}", `{"a":"` + strings.Repeat("a", storage.MaxNote-7) + `"}`, deep,
	} {
		for _, version := range []storage.Version{"", n.Version} {
			_, err := s.control(s.vault).PutNote(s.ctx, storage.Note{Name: "b", Text: []byte(text), Version: version})
			s.names("Note.Text", "PutNote", uuid.Nil, err)
		}
	}
	s.names("Version", "RemoveNote", uuid.Nil, s.control(s.vault).RemoveNote(s.ctx, "a", ""))
	s.notesAre(s.vault, n)
}

func notesApart(s *stage) {
	n := s.put(s.vault, storage.Note{Name: "a", Text: []byte("{}")})
	plan := s.started(allKinds())
	s.recoverAll()
	if found := s.list(s.vault); len(found) != 1 || found[0].ID != plan.ID {
		s.Errorf("the plans are %+v", found)
	}
	if r := s.roster(s.vault); len(r.Members)+len(r.Stops) > 0 {
		s.Errorf("the roster is %+v", r)
	}
	s.notesAre(s.vault, n)
}

func notesFaulty(s *stage) {
	s.control(s.vault)
	s.needs(s.Faulty != nil, "vault with temporary faults")
	for seed := range uint64(20) {
		v := s.closing(s.Faulty(s.T, seed))
		n := storage.Note{Name: "a"}
		for i := range 5 {
			n.Text = fmt.Appendf(nil, `{"n":%d}`, i)
			n = s.put(v, n)
		}
		s.notesAre(v, n)
		s.must(s.control(v).RemoveNote(s.ctx, "a", n.Version))
		s.notesAre(s.vault)
	}
}

func notesDeath(s *stage) {
	s.control(s.vault)
	texts := []string{`{"n":1}`, `{"n":2}`}
	i := 0
	for d := range s.deaths() {
		n := storage.Note{Name: fmt.Sprint(i)}
		i++
		err := d.run(func(ctx context.Context, v storage.Vault) (err error) {
			for _, text := range texts {
				n.Text = []byte(text)
				if n.Version, err = s.control(v).PutNote(ctx, n); err != nil {
					return err
				}
			}
			return nil
		})
		found, findErr := s.control(s.vault).FindNote(s.ctx, n.Name)
		switch {
		case errors.Is(findErr, storage.ErrNotFound) && err != nil:
		case findErr != nil:
			s.Fatalf("after %v: %v", err, findErr)
		case !slices.Contains(texts, string(found.Text)) || err == nil && (string(found.Text) != texts[1] || found.Version != n.Version):
			s.Errorf("after %v: found %+v, want %+v", err, found, n)
		}
	}
}
