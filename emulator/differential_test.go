package emulator_test

import (
	"cmp"
	"crypto/md5" // the service's own checksum
	"encoding/base64"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/efforttest"
)

var (
	differentialN    = flag.Int("differential.n", 0, "requests of TestDifferential; 0 is 400, or 200,000 with PLANVAULT_LONG")
	differentialSeed = flag.Uint64("differential.seed", 1, "seed of TestDifferential; 0 is a random one")
)

const (
	// streams is the number of concurrent sequences of requests. Azurite has one thread, the test has
	// several.
	streams = 4

	// section is the number of requests for one Azurite. After ten minutes Azurite begins to collect garbage,
	// and after some 300,000 requests it then does not answer for minutes.
	section = 50_000
)

// TestDifferential sends random requests to Azurite and to the emulator in lockstep and compares the answers.
// The seed alone decides on the requests: each stream has its own containers, emulator and clock.
func TestDifferential(t *testing.T) {
	azuriteServer.Get(t) // or skip
	seed := *differentialSeed
	for seed == 0 {
		seed = rand.Uint64N(1 << 32)
	}
	began := time.Now()
	wanted := cmp.Or(*differentialN, efforttest.Pick(400, 400, 200_000))
	requests, used := 0, make(map[string]int)
	for i := uint64(0); requests < wanted && !t.Failed(); i++ {
		if i > 0 {
			must(t, azuriteServer.Close())
		}
		t.Run(fmt.Sprintf("seed=%d", seed+i), func(t *testing.T) {
			requests += runSection(t, seed+i, min(wanted-requests, section), used)
		})
		if i > 0 {
			t.Logf("%d requests so far, after %s", requests, time.Since(began).Round(time.Second))
		}
	}
	explained := 0
	for _, count := range used {
		explained += count
	}
	t.Logf("differential: %d requests, seed %d, %d explained deviations, %s", requests, seed, explained, time.Since(began).Round(time.Millisecond))
	for _, name := range slices.Sorted(maps.Keys(used)) {
		t.Logf("%9d  %s", used[name], name)
	}
}

// runSection sends n requests in all streams, counts the deviations in used, and returns the number of
// requests.
func runSection(t *testing.T, seed uint64, n int, used map[string]int) int {
	var all sync.WaitGroup
	runs := make([]*stream, streams)
	for i := range runs {
		runs[i] = newStream(t, seed, i)
		all.Go(func() { runs[i].run(t, max(n/streams, 1)) })
	}
	all.Wait()
	requests := 0
	for _, r := range runs {
		requests += r.n
		for name, count := range r.used {
			used[name] += count
		}
	}
	return requests
}

// stream is one sequence of requests.
type stream struct {
	*comparison
	seed       uint64
	number     int
	rand       *rand.Rand
	memory     *memory
	containers []string
	known      map[string]*tags    // by container and blob
	history    map[string][]string // the last requests
	page       *ask                // a listing with more pages
}

func newStream(t *testing.T, seed uint64, number int) *stream {
	t.Helper()
	// The clock advances by a second with every request, so that everything depends on the seed alone.
	var seconds atomic.Int64
	begin := time.Now()
	clock := func() time.Time { return begin.Add(time.Duration(seconds.Load()) * time.Second) }
	s := &stream{
		comparison: &comparison{services: services(t, emulator.WithClock(clock))},
		seed:       seed,
		number:     number,
		rand:       rand.New(rand.NewPCG(seed, uint64(number))),
		memory:     newMemory(),
		known:      make(map[string]*tags),
		history:    make(map[string][]string),
	}
	s.services[inEmulator].now = func() time.Time {
		seconds.Add(1)
		return clock()
	}
	// Azurite is shared, so the names differ from run to run.
	prefix := fmt.Sprintf("diff%x-%d", time.Now().UnixNano(), number)
	for _, end := range []string{"", "-a", "b"} {
		s.containers = append(s.containers, prefix+end)
	}
	return s
}

func (s *stream) run(t *testing.T, n int) {
	for _, container := range s.containers {
		if !s.step(t, -1, createAsk(container)) {
			return
		}
	}
	for i := range n {
		if !s.step(t, i, s.next()) {
			return
		}
	}
}

// step sends one request and reports whether to continue.
func (s *stream) step(t *testing.T, i int, a *ask) bool {
	v, err := s.do(t.Context(), s.memory, a)
	if err != nil {
		t.Errorf("seed %d, stream %d, request %d: %s: %v", s.seed, s.number, i, a, err)
		return false
	}
	place := a.resource()
	s.history[place] = append(s.history[place], fmt.Sprintf("%d: %s -> %s | %s", i, a, v.outcome(inAzurite), v.outcome(inEmulator)))
	if len(s.history[place]) > 12 {
		s.history[place] = s.history[place][1:]
	}
	if len(v.unexplained) > 0 {
		t.Errorf("seed %d, stream %d, request %d: %s\nearlier requests for %s:\n%s\n"+
			"run it again: go test ./emulator -run TestDifferential -differential.seed=%d -differential.n=%d",
			s.seed, s.number, i, v, place, strings.Join(s.history[place], "\n"), s.seed, streams*(i+1))
		return false
	}
	if v.diverged() {
		if err := s.realign(t.Context(), s.memory, a); err != nil {
			t.Error(err)
			return false
		}
	}
	s.learn(a, v)
	return true
}

// learn records versions and pages.
func (s *stream) learn(a *ask, v *verdict) {
	if a.writes() && v.reply[inAzurite].status < 300 && v.reply[inEmulator].status < 300 {
		k := s.tags(a.resource())
		k.stale = k.current
		k.current, k.modified = tagsOf(v)
	}
	if a.op == emulator.ListBlobs {
		s.page = nil
		var marker pair
		for on, r := range v.reply {
			if r.status == http.StatusOK {
				marker[on] = nextMarker(r.body)
			}
		}
		if marker[inAzurite] != "" && marker[inEmulator] != "" && len(v.unexplained) == 0 {
			page := *a
			page.query = slices.DeleteFunc(slices.Clone(a.query), func(q param) bool { return q.name == "marker" })
			page.query = append(page.query, param{"marker", marker})
			s.page = &page
		}
	}
}

func (s *stream) tags(resource string) *tags {
	k := s.known[resource]
	if k == nil {
		none := both(`"0x8D0000000000000"`)
		k = &tags{current: none, stale: none, modified: both(past)}
		s.known[resource] = k
	}
	return k
}

// pick returns one of the choices.
func pick[T any](s *stream, choices ...T) T { return choices[s.rand.IntN(len(choices))] }

// blobNames are names that are close to each other and to the delimiter in the order of names.
var blobNames = []string{"a", "a-b", "a/1", "a/2", "a0", "aa", "b/1", "é"}

// next returns a random request.
func (s *stream) next() *ask {
	container := pick(s, s.containers...)
	blob := pick(s, blobNames...)
	switch p := s.rand.IntN(100); {
	case p < 28:
		return s.conditions(s.put(container, blob))
	case p < 42:
		a := blobAsks()["get"](container, blob)
		if s.rand.IntN(3) == 0 {
			a.with("x-ms-range", s.byteRange())
			if s.rand.IntN(4) == 0 {
				a.with("x-ms-range-get-content-md5", "true")
			}
		}
		return s.conditions(a)
	case p < 50:
		return s.conditions(blobAsks()["head"](container, blob))
	case p < 53:
		return s.conditions(blobAsks()[pick(s, "get metadata", "head metadata")](container, blob))
	case p < 62:
		a := &ask{op: emulator.SetBlobMetadata, method: http.MethodPut, container: container, blob: blob}
		a.where("comp", "metadata")
		s.metadata(a)
		return s.conditions(a)
	case p < 70:
		return s.conditions(blobAsks()["delete"](container, blob))
	case p < 84:
		if s.page != nil && s.rand.IntN(2) == 0 {
			return s.page
		}
		return s.list(container)
	case p < 88:
		return s.batch(container)
	case p < 90:
		return s.listContainers()
	case p < 92:
		return containerAsks()[pick(s, "properties", "head", "get metadata", "head metadata")](container)
	case p < 93:
		a := containerAsks()["set metadata"](container)
		s.metadata(a)
		return s.times(a)
	case p < 94:
		a := containerAsks()["delete"](container)
		if s.rand.IntN(3) == 0 {
			a.with("x-ms-lease-id", pick(s, oneLease, anotherLease))
		}
		return s.times(a)
	case p < 97:
		return s.lease(container)
	default:
		a := createAsk(container)
		s.metadata(a)
		return a
	}
}

var bodies = []string{"", "x", "0123456789", strings.Repeat("long ", 200)}

func (s *stream) put(container, blob string) *ask {
	a := putAsk(container, blob, pick(s, bodies...))
	s.metadata(a)
	switch s.rand.IntN(20) {
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
	switch p := s.rand.IntN(50); {
	case p < 20:
	case p < 30:
		a.with("x-ms-meta-one", "1")
	case p < 40:
		a.with("x-ms-meta-one", "2").with("x-ms-meta-two", pick(s, "", "a  b", "~!*'();:@&=+$,/?#[]"))
	case p < 47:
		a.with("x-ms-meta-nonce", strconv.Itoa(s.rand.IntN(1000)))
	case p < 48:
		a.with("x-ms-meta-large", strings.Repeat("v", 8187+s.rand.IntN(4)-1))
	default:
		a.with("x-ms-meta-"+pick(s, "1a", "a-b"), "1")
	}
}

func (s *stream) byteRange() string {
	if s.rand.IntN(10) == 0 {
		return pick(s, "bytes=3-1", "bytes=-5", "0-5", "words=0-1")
	}
	from := pick(s, 0, 0, 1, 5, 9, 10, 999, 1000)
	if s.rand.IntN(3) == 0 {
		return fmt.Sprintf("bytes=%d-", from)
	}
	return fmt.Sprintf("bytes=%d-%d", from, from+pick(s, 0, 1, 4, 2000))
}

// conditions adds up to two conditions.
func (s *stream) conditions(a *ask) *ask {
	k := s.tags(a.resource())
	for range pick(s, 0, 0, 0, 1, 1, 1, 1, 2) {
		a.header = append(a.header, s.condition(k))
	}
	// A header has one value.
	slices.SortStableFunc(a.header, func(x, y param) int { return strings.Compare(x.name, y.name) })
	a.header = slices.CompactFunc(a.header, func(x, y param) bool { return x.name == y.name })
	return a
}

func (s *stream) condition(k *tags) param {
	tag := pick(s, k.current, k.current, k.current, k.stale, both("*"), both("*"), both(`"0x8D0000000000000"`),
		pair{strings.Trim(k.current[0], `"`), strings.Trim(k.current[1], `"`)}, pair{k.stale[0] + "," + k.current[0], k.stale[1] + "," + k.current[1]})
	date := pick(s, k.modified, both(past), both(future))
	switch s.rand.IntN(8) {
	case 0, 1, 2:
		return param{"If-Match", tag}
	case 3, 4, 5:
		return param{"If-None-Match", tag}
	case 6:
		return param{"If-Modified-Since", date}
	default:
		return param{"If-Unmodified-Since", date}
	}
}

// times adds a condition on time, for containers.
func (s *stream) times(a *ask) *ask {
	if s.rand.IntN(3) == 0 {
		a.with(pick(s, "If-Modified-Since", "If-Unmodified-Since"), pick(s, past, future))
	}
	return a
}

// lease returns an action on a lease. The leases last for ever, because the emulator's clock is not Azurite's.
func (s *stream) lease(container string) *ask {
	id := pick(s, oneLease, anotherLease)
	switch s.rand.IntN(4) {
	case 0:
		return s.times(acquireAsk(container, id, "-1"))
	case 1:
		return leaseAsk(container, "renew", "x-ms-lease-id", id)
	case 2:
		return leaseAsk(container, "release", "x-ms-lease-id", id)
	}
	return leaseAsk(container, "break")
}

func (s *stream) list(container string) *ask {
	a := containerAsks()["list"](container)
	add := func(name string, values ...string) {
		if s.rand.IntN(3) == 0 {
			a.where(name, pick(s, values...))
		}
	}
	add("prefix", "a", "a/", "b", "none", "é", "")
	add("maxresults", "1", "1", "2", "2", "3", "5", "5000", "0")
	add("startFrom", "a", "a/1", "a/2", "aa", "b", "z", "")
	add("delimiter", "/", "/", "/", "-", "1")
	add("include", "metadata", "metadata", "metadata,tags", "snapshots")
	return a
}

func (s *stream) listContainers() *ask {
	a := &ask{op: emulator.ListContainers, method: http.MethodGet}
	a.where("comp", "list").where("prefix", s.containers[0])
	if s.rand.IntN(2) == 0 {
		a.where("maxresults", pick(s, "1", "2", "3"))
	}
	if s.rand.IntN(2) == 0 {
		a.where("include", "metadata")
	}
	return a
}

func (s *stream) batch(container string) *ask {
	a := &ask{op: emulator.BatchDelete, method: http.MethodPost, container: container}
	a.where("restype", "container").where("comp", "batch")
	for _, i := range s.rand.Perm(len(blobNames))[:1+s.rand.IntN(4)] {
		it := item{container: container, blob: blobNames[i]}
		if s.rand.IntN(2) == 0 {
			it.header = append(it.header, s.condition(s.tags(container+"/"+it.blob)))
		}
		a.items = append(a.items, it)
	}
	return a
}

// emulatorMarker returns the name that a marker of the emulator stands for.
func emulatorMarker(marker string) string {
	name, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(marker, "2!"))
	if err != nil {
		return ""
	}
	return string(name)
}
