package emulator_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/efforttest"
)

// TestDifferential sends random requests about a few names to Azurite and to the emulator in lockstep and compares the
// answers. TestFidelity sends each request in each state; here the states come from what was sent before.
func TestDifferential(t *testing.T) {
	azuriteServer.Get(t)                               // or skip
	for seed := range efforttest.Seeds(t, 1, 1, 100) { // after some 300,000 requests Azurite does not answer for minutes
		s := newStream(t, seed)
		for i := range 400 {
			v := s.must(t, s.memory, s.next())
			if t.Failed() {
				t.Fatalf("request %d of seed %d", i, seed)
			}
			s.learn(v)
		}
	}
}

// stream is a sequence of requests, which the seed alone decides on.
type stream struct {
	*comparison
	*rand.Rand
	memory     *memory
	containers []string
	acts       []string        // of leaseActs
	known      map[string]tags // by container and blob
	page       *ask            // a listing with more pages
}

func newStream(t *testing.T, seed uint64) *stream {
	t.Helper()
	// The clock advances by a second with every request, so that everything depends on the seed alone.
	now := time.Now()
	clock := func() time.Time { return now }
	s := &stream{
		comparison: &comparison{services: services(t, emulator.WithClock(clock))},
		Rand:       rand.New(rand.NewPCG(seed, 0)),
		memory:     newMemory(),
		known:      make(map[string]tags),
	}
	s.services[inEmulator].now = func() time.Time {
		now = now.Add(time.Second)
		return now
	}
	for _, act := range slices.Sorted(maps.Keys(leaseActs)) {
		switch act {
		case "acquire for a time", "acquire another for a time", "break soon": // Azurite's clock goes on by itself
		default:
			s.acts = append(s.acts, act)
		}
	}
	// Azurite is shared, so the names differ from run to run.
	prefix := fmt.Sprintf("diff%x", now.UnixNano())
	for _, end := range []string{"", "-a", "b"} {
		s.containers = append(s.containers, prefix+end)
		s.must(t, s.memory, createAsk(prefix+end))
	}
	return s
}

// learn records versions and pages.
func (s *stream) learn(v *verdict) {
	a := v.ask
	if a.writes() && v.reply[inAzurite].status < 300 && v.reply[inEmulator].status < 300 {
		k := s.tags(a.resource())
		k.stale = k.current
		k.current, k.modified = tagsOf(v)
		s.known[a.resource()] = k
	}
	if a.op == emulator.ListBlobs {
		s.page = nil
		if marker := (pair{nextMarker(v.reply[0].body), nextMarker(v.reply[1].body)}); marker[0] != "" && marker[1] != "" {
			page := *a
			page.query = slices.DeleteFunc(slices.Clone(a.query), func(q param) bool { return q.name == "marker" })
			page.query = append(page.query, param{"marker", marker})
			s.page = &page
		}
	}
}

func (s *stream) tags(resource string) tags {
	if k, ok := s.known[resource]; ok {
		return k
	}
	none := both(`"0x8D0000000000000"`)
	return tags{current: none, stale: none, modified: both(past)}
}

// pick returns one of the choices.
func pick[T any](s *stream, choices ...T) T { return choices[s.IntN(len(choices))] }

// blobNames are names that are close to each other and to the delimiter in the order of names.
var blobNames = []string{"a", "a-b", "a/1", "a/2", "a0", "aa", "b/1", "é"}

// next returns a random request.
func (s *stream) next() *ask {
	container, blob := pick(s, s.containers...), pick(s, blobNames...)
	var a *ask
	switch p := s.IntN(20); {
	case p < 13:
		a = blobAsks()[pick(s, "put", "put", "put", "get", "get range", "head", "get metadata", "head metadata", "set metadata", "delete")](container, blob)
		if s.IntN(2) == 0 {
			a.header = append(a.header, pick(s, allConditions()...).headers(s.tags(a.resource()))...)
		}
	case p < 16 && s.page != nil && s.IntN(2) == 0:
		return s.page
	case p < 16:
		return s.list(container)
	case p < 17:
		return s.batch(container)
	case p < 18:
		return createAsk(container)
	default:
		a = leaseActs[pick(s, s.acts...)](container)
		if (a.op == emulator.DeleteContainer || a.op == emulator.SetContainerMetadata) && s.IntN(2) == 0 {
			a.with("If-Modified-Since", pick(s, past, future))
		}
	}
	return a
}

func (s *stream) list(container string) *ask {
	a := containerAsks()["list"](container)
	for _, choice := range [][]string{
		{"prefix", "a", "a/", "b", "none", "é", ""},
		{"maxresults", "1", "1", "2", "2", "3", "5", "5000", "0"},
		{"startFrom", "a", "a/1", "a/2", "aa", "b", "z", ""},
		{"delimiter", "/", "/", "/", "-", "1"},
		{"include", "metadata", "metadata", "metadata,tags", "snapshots"},
	} {
		if s.IntN(3) == 0 {
			a.where(choice[0], pick(s, choice[1:]...))
		}
	}
	return a
}

func (s *stream) batch(container string) *ask {
	a := (&ask{op: emulator.BatchDelete, method: http.MethodPost, container: container}).where("restype", "container").where("comp", "batch")
	for _, i := range s.Perm(len(blobNames))[:1+s.IntN(4)] {
		it := item{container: container, blob: blobNames[i]}
		if s.IntN(2) == 0 {
			it.header = pick(s, allConditions()...).headers(s.tags(container + "/" + it.blob))
		}
		a.items = append(a.items, it)
	}
	return a
}
