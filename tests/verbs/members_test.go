package verbs_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/vaulttest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// joined adds a member to a vault, and returns it with its version.
func joined(t *testing.T, v *azblob.Vault) storage.Member {
	t.Helper()
	m := storage.Member{ID: workflow.NewV7(), Name: "host-1", Started: time.Now()}
	var err error
	if m.Version, err = v.Control().AddMember(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	return m
}

func roster(t *testing.T, v *azblob.Vault) storage.Roster {
	t.Helper()
	r, err := v.Control().Roster(t.Context())
	vaulttest.Must(t, err)
	return r
}

// noted stores a note that is named like a member.
func noted(t *testing.T, v *azblob.Vault) storage.Member {
	m := storage.Member{ID: workflow.NewV7()}
	var err error
	m.Version, err = v.Control().PutNote(t.Context(), storage.Note{Name: m.ID.String(), Text: []byte("{}")})
	vaulttest.Must(t, err)
	return m
}

// recordCall is a write of a record, and what has to be there before it.
type recordCall struct {
	name    string
	prepare func(t *testing.T, v *azblob.Vault) storage.Member
	do      func(ctx context.Context, v *azblob.Vault, m storage.Member) error
}

func recordCalls() []recordCall {
	return []recordCall{
		{"AddMember", func(t *testing.T, v *azblob.Vault) storage.Member {
			joined(t, v)
			return storage.Member{ID: workflow.NewV7()}
		}, func(ctx context.Context, v *azblob.Vault, m storage.Member) error {
			return vaulttest.ErrOf(v.Control().AddMember(ctx, m))
		}},
		{"RenewMember", joined, func(ctx context.Context, v *azblob.Vault, m storage.Member) error {
			return vaulttest.ErrOf(v.Control().RenewMember(ctx, m))
		}},
		{"RemoveMember", joined, func(ctx context.Context, v *azblob.Vault, m storage.Member) error {
			return v.Control().RemoveMember(ctx, m.ID, m.Version)
		}},
		{"AddStop", joined, func(ctx context.Context, v *azblob.Vault, m storage.Member) error {
			return v.Control().AddStop(ctx, m.ID, workflow.Attribution{})
		}},
		{"RemoveStop", func(t *testing.T, v *azblob.Vault) storage.Member {
			m := storage.Member{ID: workflow.NewV7()}
			vaulttest.Must(t, v.Control().AddStop(t.Context(), m.ID, workflow.Attribution{}))
			m.Version = roster(t, v).Stops[0].Version
			return m
		}, func(ctx context.Context, v *azblob.Vault, m storage.Member) error {
			return v.Control().RemoveStop(ctx, m.ID, m.Version)
		}},
		{"PutNote", noted, func(ctx context.Context, v *azblob.Vault, m storage.Member) error {
			return vaulttest.ErrOf(v.Control().PutNote(ctx, storage.Note{Name: m.ID.String(), Text: []byte(`{"a":1}`), Version: m.Version}))
		}},
		{"RemoveNote", noted, func(ctx context.Context, v *azblob.Vault, m storage.Member) error {
			return v.Control().RemoveNote(ctx, m.ID.String(), m.Version)
		}},
	}
}

// TestMembersUnknown loses the answer of each write of a record, whether it took effect or not. The same call
// again settles it, even if it fails in between. The error of a failure names the method, the blob and the plan.
func TestMembersUnknown(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	for _, c := range recordCalls() {
		for _, effect := range []emulator.Effect{emulator.Silence(), emulator.Silence().Applied()} {
			vaulttest.InBubble(t, fmt.Sprintf("%s, %v", c.name, effect), func(t *testing.T, server *emulator.Server) {
				m := c.prepare(t, vaulttest.OnEmulator(t, server))
				v := vaulttest.Faulty(t, server, emulator.On().Nth(1).Do(effect), emulator.On().Nth(2).Do(emulator.Answer(403, "AuthorizationFailure")))
				ctx := vaulttest.Within(t, time.Second)
				if err := c.do(ctx, v, m); !errors.Is(err, storage.ErrUnknown) || !errors.Is(err, context.DeadlineExceeded) {
					t.Fatalf("got %v, want ErrUnknown of the context's error", err)
				}
				err := c.do(t.Context(), v, m)
				e, ok := errors.AsType[*storage.Error](err)
				if !ok || !errors.Is(err, storage.ErrDenied) || e.Op != c.name || !strings.HasPrefix(e.Blob, "test-control/") ||
					!strings.Contains(e.Blob, m.ID.String()) || (e.Plan == m.ID) != strings.HasSuffix(c.name, "Stop") {
					t.Fatalf("the second call: %v, want ErrDenied that names the record", err)
				}
				if err := c.do(t.Context(), v, m); err != nil {
					t.Errorf("the third call: %v", err)
				}
				vaulttest.Sound(t, v)
			})
		}
		vaulttest.InBubble(t, c.name+", a lost answer", func(t *testing.T, server *emulator.Server) {
			m := c.prepare(t, vaulttest.OnEmulator(t, server))
			v := vaulttest.Faulty(t, server, emulator.On().Nth(1).Do(emulator.LostAnswer()))
			if err := c.do(t.Context(), v, m); err != nil {
				t.Errorf("it was not ridden out: %v", err)
			}
		})
	}
}

// TestMembersOfOthers renews and removes a record between the tries of another vault's call.
func TestMembersOfOthers(t *testing.T) {
	vaulttest.InBubble(t, "a renewal that did not arrive meets another version", func(t *testing.T, server *emulator.Server) {
		other := vaulttest.OnEmulator(t, server)
		m := joined(t, other)
		v := vaulttest.Faulty(t, server, emulator.On(emulator.PutBlob).Nth(1).Do(emulator.LostRequest()))
		theirs, err := other.Control().RenewMember(t.Context(), m)
		vaulttest.Must(t, err)
		if _, err := v.Control().RenewMember(t.Context(), m); !errors.Is(err, storage.ErrUnknown) || !errors.Is(err, storage.ErrConflict) {
			t.Errorf("got %v, want ErrUnknown and ErrConflict", err)
		}
		if now := roster(t, v).Members; len(now) != 1 || now[0].Version != theirs {
			t.Errorf("the roster is %+v, want version %s", now, theirs)
		}
	})
	vaulttest.InBubble(t, "a removal that was refused removed nothing", func(t *testing.T, server *emulator.Server) {
		other, v := vaulttest.OnEmulator(t, server), vaulttest.Faulty(t, server, emulator.On(emulator.DeleteBlob).Nth(1).Do(emulator.Answer(403, "AuthorizationFailure")))
		m := joined(t, other)
		vaulttest.Fails(t, v.Control().RemoveMember(t.Context(), m.ID, m.Version), storage.ErrDenied)
		vaulttest.Must(t, other.Control().RemoveMember(t.Context(), m.ID, m.Version))
		vaulttest.Fails(t, v.Control().RemoveMember(t.Context(), m.ID, m.Version), storage.ErrNotFound)
	})
}

// TestControlContainer follows the container of the records from its absence to its removal.
func TestControlContainer(t *testing.T) {
	vaulttest.InBubble(t, "all", func(t *testing.T, server *emulator.Server) {
		v := vaulttest.OnEmulator(t, server)
		requests := func(want ...string) {
			t.Helper()
			var got []string
			for _, r := range server.Requests() {
				got = append(got, fmt.Sprintf("%s %d", r.Op, r.Status))
			}
			if !slices.Equal(got, want) {
				t.Errorf("the requests are %q, want %q", got, want)
			}
			server.ResetRequests()
		}
		if r := roster(t, v); len(r.Members)+len(r.Stops) > 0 || !r.Now.Equal(time.Now().Truncate(time.Second)) {
			t.Errorf("at %v, the roster of nothing is %+v", time.Now(), r)
		}
		requests("ListBlobs 404")
		vaulttest.Fails(t, vaulttest.ErrOf(v.Control().FindMember(t.Context(), workflow.NewV7())), storage.ErrNotFound)
		requests("HeadBlob 404")
		m := joined(t, v)
		requests("PutBlob 404", "CreateContainer 201", "PutBlob 201")
		joined(t, vaulttest.OnEmulator(t, server))
		requests("PutBlob 201")

		time.Sleep(time.Minute) // it is no longer new
		server.RemoveContainer("test-control")
		vaulttest.Fails(t, vaulttest.ErrOf(v.Control().RenewMember(t.Context(), m)), storage.ErrNotFound)
		requests("PutBlob 404")
		vaulttest.Should(t, v.Control().AddStop(t.Context(), m.ID, workflow.Attribution{}))
		requests("PutBlob 404", "CreateContainer 201", "PutBlob 201")

		denied := vaulttest.Faulty(t, server, emulator.On(emulator.ListContainers).Do(vaulttest.Denied))
		joined(t, denied)
		if r := roster(t, denied); len(r.Members) != 1 || len(r.Stops) != 1 {
			t.Errorf("without the right to list containers, the roster is %+v", r)
		}
		if found := vaulttest.Collect(t, v, storage.Filters{Limit: 10}); len(found) > 0 {
			t.Errorf("there are plans: %v", found)
		}
		vaulttest.Sound(t, v)
	})
}

// TestStrangeRecords has records that newer code has written or that are damaged, and blobs that are no
// records. Each member counts as present, and Check reports what is wrong.
func TestStrangeRecords(t *testing.T) {
	vaulttest.InBubble(t, "all", func(t *testing.T, server *emulator.Server) {
		v := vaulttest.OnEmulator(t, server)
		good := joined(t, v)
		body := func(id uuid.UUID, schema int) []byte {
			return fmt.Appendf(nil, `{"schema":%d,"type":"member","data":{"id":"%s","name":"a","started":"2026-01-02T03:04:05Z"}}`, schema, id)
		}
		var ids []uuid.UUID
		want := map[string]azblob.ProblemKind{}
		put := func(kind azblob.ProblemKind, name string, body []byte, metadata map[string]string) {
			server.Put("test-control", name, body, metadata)
			want["test-control/"+name] = kind
		}
		strange := func(kind azblob.ProblemKind, schema int, metadata map[string]string) {
			id := workflow.NewV7()
			ids = append(ids, id)
			put(kind, "nodes/"+id.String(), body(id, schema), metadata)
		}
		strange(azblob.ProblemUnreadable, 4, map[string]string{"schema": "4", "name": "newer", "started": "2026-01-02T03:04:05Z", "ttl": "1h", "phase": "newer"})
		strange(azblob.ProblemDisagreement, 1, nil)
		strange(azblob.ProblemDisagreement, 1, map[string]string{"schema": "1", "started": "soon"})
		strange(azblob.ProblemDisagreement, 1, map[string]string{"schema": "1", "started": "2026-01-02T03:04:05Z", "name": "=?", "ttl": "-1s", "phase": "Left", "letgo": "all", "trouble": "=?"})
		plan := workflow.NewV7()
		put(azblob.ProblemUnreadable, "signals/"+plan.String()+"-stop", nil, nil)
		put(azblob.ProblemStray, "signals/"+plan.String()+"-pause", nil, nil)
		put(azblob.ProblemStray, "nodes/"+uuid.NewString(), nil, nil)
		put(azblob.ProblemStray, "notes.txt", nil, nil)
		put(azblob.ProblemStray, "notes/a.json", nil, nil)
		put(azblob.ProblemStray, "keys/A", nil, nil)
		put(azblob.ProblemUnreadable, "keys/a", []byte(`{"schema":1,"type":"key","data":{"name":"b"}}`), map[string]string{"schema": "1"})
		put(azblob.ProblemUnreadable, "keys/newer", []byte(`{"schema":4,"type":"key","data":{"name":"newer"}}`), map[string]string{"schema": "4"})
		put(azblob.ProblemUnreadable, "notes/a", []byte(`{"schema":1,"type":"note","data":{"name":"b","text":{}}}`), map[string]string{"schema": "1"})
		put(azblob.ProblemUnreadable, "notes/newer", []byte(`{"schema":4,"type":"note","data":{"name":"newer"}}`), map[string]string{"schema": "4"})

		r := roster(t, v)
		for _, m := range r.Members {
			found, err := v.Control().FindMember(t.Context(), m.ID)
			if err != nil || !reflect.DeepEqual(found, m) {
				t.Errorf("found %+v, %v; the roster has %+v", found, err, m)
			}
			if m.ID == good.ID {
				continue
			}
			if i := slices.Index(ids, m.ID); i < 0 || m.Name != "" || (m.TTL == time.Hour) != (i == 0) || (m.Phase == "newer") != (i == 0) ||
				m.LetGo != nil || m.Trouble != "" || m.Renewed.IsZero() {
				t.Errorf("the roster has %+v", m)
			}
			vaulttest.Fails(t, v.Control().RemoveMember(t.Context(), m.ID, m.Version+"0"), storage.ErrConflict)
		}
		if len(r.Members) != 1+len(ids) || len(r.Stops) != 1 || r.Stops[0].Plan != plan || len(r.Notes) != 2 {
			t.Errorf("the roster is %+v", r)
		}

		for name, kind := range map[string]error{"a": storage.ErrCorrupt, "newer": storage.ErrSchema} {
			n, err := v.Control().FindNote(t.Context(), name)
			if vaulttest.Fails(t, err, kind); n.Version == "" || n.Text != nil {
				t.Errorf("found %+v", n)
			}
		}

		for name, kind := range map[string]error{"a": storage.ErrCorrupt, "newer": storage.ErrSchema} {
			k, err := v.Control().FindKey(t.Context(), name)
			if vaulttest.Fails(t, err, kind); k.Version == "" || k.Stored.IsZero() || k.Holders != nil {
				t.Errorf("found %+v", k)
			}
		}
		server.Corrupt("test-control", "keys/a", func(b []byte) []byte { return b[1:] })
		k, err := v.Control().FindKey(t.Context(), "a")
		if vaulttest.Fails(t, err, storage.ErrCorrupt); k.Name != "a" || k.Version == "" || k.Stored.IsZero() {
			t.Errorf("of a record with another MD5, FindKey returns %+v", k)
		}
		keys, err := storage.Collect(v.Control().Keys(t.Context()))
		if vaulttest.Fails(t, err, storage.ErrSchema); len(keys) != 1 || keys[0].Name != "a" {
			t.Errorf("the keys are %+v", keys)
		}

		report, err := v.Admin().Check(t.Context(), azblob.CheckOptions{})
		vaulttest.Must(t, err)
		reported := map[string]bool{}
		for _, p := range report.Problems {
			if want[p.Blob] != p.Kind || (p.Plan == plan) != (p.Kind == azblob.ProblemUnreadable && strings.Contains(p.Blob, "signals/")) {
				t.Errorf("Check reports %v", p)
			}
			reported[p.Blob] = true
		}
		if len(reported) != len(want) || report.Blobs != 15 || report.Days != 0 {
			t.Errorf("Check reports %+v, want %v", report, want)
		}
		for _, m := range r.Members {
			vaulttest.Should(t, v.Control().RemoveMember(t.Context(), m.ID, m.Version))
		}
	})
}

// TestManyKeys: keys fill more than a page. A roster does not list them.
func TestManyKeys(t *testing.T) {
	vaulttest.InBubble(t, "all", func(t *testing.T, server *emulator.Server) {
		v := vaulttest.OnEmulator(t, server)
		joined(t, v)
		const keys = 5001
		for i := range keys {
			server.Put("test-control", fmt.Sprintf("keys/%d", i), nil, map[string]string{"schema": "1"})
		}
		for what, test := range map[string]struct {
			n     int
			pages int
			list  func() (int, error)
		}{
			"roster": {1, 1, func() (int, error) { r, err := v.Control().Roster(t.Context()); return len(r.Members), err }},
			"keys":   {keys, 2, func() (int, error) { k, err := storage.Collect(v.Control().Keys(t.Context())); return len(k), err }},
		} {
			server.ResetRequests()
			if n, err := test.list(); err != nil || n != test.n || len(server.Requests()) != test.pages {
				t.Errorf("%s: %d with %d requests, %v", what, n, len(server.Requests()), err)
			}
		}
	})
}

// TestRosterWithoutAClock: a proxy removes the Date, without which nobody can be judged and no day is today.
func TestRosterWithoutAClock(t *testing.T) {
	vaulttest.InBubble(t, "all", func(t *testing.T, server *emulator.Server) {
		blind := vaulttest.Faulty(t, server, emulator.On(emulator.ListBlobs).Do(emulator.Strip("Date")))
		for range 2 { // without the control container, and with it
			if r, err := blind.Control().Roster(t.Context()); !errors.Is(err, storage.ErrUnavailable) || len(r.Members) > 0 {
				t.Errorf("the roster is %+v, %v, want ErrUnavailable", r, err)
			}
			joined(t, blind)
		}
	})
}

// TestRosterIsWhole fails the second page of a roster.
func TestRosterIsWhole(t *testing.T) {
	vaulttest.InBubbleOf(t, emulator.New(emulator.Options{PageLimit: 2}), func(t *testing.T, server *emulator.Server) {
		v := vaulttest.OnEmulator(t, server)
		for range 3 {
			joined(t, v)
			time.Sleep(time.Second)
		}
		if r := roster(t, v); len(r.Members) != 3 {
			t.Errorf("the roster is %+v", r)
		}
		broken := vaulttest.Faulty(t, server, emulator.On(emulator.ListBlobs).Nth(2).Do(emulator.Answer(403, "AuthorizationFailure")))
		if r, err := broken.Control().Roster(t.Context()); !errors.Is(err, storage.ErrDenied) || len(r.Members) > 0 || !strings.Contains(storage.Detail(err), "Roster: list members (test-control): ") {
			t.Errorf("a roster without its second page is %+v, %v", r, err)
		}
		// The clock of the first page is the roster's: by it, no record is older than it is.
		late := emulator.New(emulator.Options{PageLimit: 2, Latency: 10 * time.Second})
		v = vaulttest.OnEmulator(t, late)
		for range 3 {
			joined(t, v)
		}
		started := time.Now()
		if r := roster(t, v); r.Now.After(started.Add(10 * time.Second)) {
			t.Errorf("a roster from %v on is of %v", started, r.Now)
		}
	})
}
