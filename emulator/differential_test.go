package emulator_test

import (
	"cmp"
	"crypto/md5" // the service's own checksum
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/efforttest"
)

var (
	differentialN    = flag.Int("differential.n", 0, "requests of TestDifferential; 0 is 400, or 200,000 with PLANVAULT_LONG")
	differentialSeed = flag.Uint64("differential.seed", 1, "seed of TestDifferential; 0 is a random one")
)

// section is the number of requests for one Azurite. After ten minutes Azurite begins to collect garbage, and
// after some 300,000 requests it then does not answer for minutes.
const section = 50_000

// TestDifferential sends random requests to Azurite and to the emulator in lockstep and compares the answers.
func TestDifferential(t *testing.T) {
	azuriteServer.Get(t) // or skip
	seed := cmp.Or(*differentialSeed, rand.Uint64N(1<<32))
	wanted := cmp.Or(*differentialN, efforttest.Pick(400, 400, 200_000))
	used := make(map[string]int)
	more := efforttest.More(t)
	for n := 0; n < wanted && !t.Failed() && more(); n += section {
		if n > 0 {
			must(t, azuriteServer.Close())
		}
		s := newStream(t, seed+uint64(n/section))
		for i := range min(wanted-n, section) {
			if v := s.must(t, s.memory, s.next()); t.Failed() {
				t.Fatalf("run it again: go test ./emulator -run TestDifferential -differential.seed=%d -differential.n=%d", s.seed, i+1)
			} else {
				s.learn(v)
			}
		}
		for what, count := range s.used {
			used[what] += count
		}
		t.Logf("%d requests, seed %d", s.n, s.seed)
	}
	for _, what := range slices.Sorted(maps.Keys(used)) {
		t.Logf("%9d  %s", used[what], what)
	}
}

// stream is a sequence of requests, which the seed alone decides on.
type stream struct {
	*comparison
	*rand.Rand
	seed       uint64
	memory     *memory
	containers []string
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
		seed:       seed,
		memory:     newMemory(),
		known:      make(map[string]tags),
	}
	s.services[inEmulator].now = func() time.Time {
		now = now.Add(time.Second)
		return now
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

var bodies = []string{"", "x", "0123456789", strings.Repeat("long ", 200)}

// next returns a random request.
func (s *stream) next() *ask {
	container, blob := pick(s, s.containers...), pick(s, blobNames...)
	var a *ask
	switch p := s.IntN(100); {
	case p < 28:
		a = s.put(container, blob)
	case p < 70:
		a = blobAsks()[pick(s, "get", "get", "get range", "head", "get metadata", "head metadata", "set metadata", "delete")](container, blob)
	case p < 84:
		if s.page != nil && s.IntN(2) == 0 {
			return s.page
		}
		return s.list(container)
	case p < 88:
		return s.batch(container)
	case p < 90:
		return account(emulator.ListContainers, http.MethodGet, "comp", "list", "prefix", s.containers[0],
			"maxresults", pick(s, "1", "2", "3", "5000"), "include", "metadata")
	case p < 96:
		a = containerAsks()[pick(s, "properties", "head", "get metadata", "head metadata", "set metadata", "create", "create", "delete")](container)
	default:
		a = s.lease(container)
	}
	if a.op == emulator.SetBlobMetadata || a.op == emulator.SetContainerMetadata || a.op == emulator.CreateContainer {
		s.metadata(a)
	}
	switch {
	case s.IntN(5) > 2:
	case a.blob != "":
		a.header = append(a.header, s.conditions(a.resource())...)
	case a.op == emulator.DeleteContainer, a.op == emulator.SetContainerMetadata, a.op == emulator.LeaseContainer:
		a.with("If-Modified-Since", pick(s, past, future))
	}
	return a
}

// conditions returns conditions for a resource.
func (s *stream) conditions(resource string) []param {
	return pick(s, allConditions()...).headers(s.tags(resource))
}

func (s *stream) put(container, blob string) *ask {
	a := putAsk(container, blob, pick(s, bodies...))
	s.metadata(a)
	switch s.IntN(20) {
	case 0:
		a.with("x-ms-blob-content-type", pick(s, "text/plain", "application/json"))
	case 1:
		sum := md5.Sum([]byte(pick(s, bodies...)))
		a.with("Content-MD5", digest(sum[:]))
	case 2:
		a.with("x-ms-access-tier", pick(s, "Hot", "Cool", "Cold"))
	case 3:
		a.with("x-ms-blob-cache-control", "no-cache").with("x-ms-blob-content-language", "en")
	}
	return a
}

// metadata adds metadata, which sometimes is too large or has an invalid name.
func (s *stream) metadata(a *ask) {
	switch p := s.IntN(50); {
	case p < 20:
	case p < 30:
		a.with("x-ms-meta-one", "1")
	case p < 40:
		a.with("x-ms-meta-one", "2").with("x-ms-meta-two", pick(s, "", "a  b", "~!*'();:@&=+$,/?#[]"))
	case p < 47:
		a.with("x-ms-meta-nonce", strconv.Itoa(s.IntN(1000)))
	case p < 48:
		a.with("x-ms-meta-large", strings.Repeat("v", 8187+s.IntN(4)-1))
	default:
		a.with("x-ms-meta-"+pick(s, "1a", "a-b"), "1")
	}
}

// lease returns an action on a lease. The leases last for ever, because the emulator's clock is not Azurite's.
func (s *stream) lease(container string) *ask {
	id := pick(s, oneLease, anotherLease)
	switch s.IntN(5) {
	case 0:
		return acquireAsk(container, id, "-1")
	case 1:
		return leaseAsk(container, "break")
	case 2:
		return containerAsks()["delete"](container).with("x-ms-lease-id", id)
	}
	return leaseAsk(container, pick(s, "renew", "release"), "x-ms-lease-id", id)
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
			it.header = s.conditions(container + "/" + it.blob)
		}
		a.items = append(a.items, it)
	}
	return a
}
