package emulator_test

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/goldentest"
)

// tags are the current and the previous ETag of a blob, and its time.
type tags struct {
	current, stale, modified pair
}

const (
	past   = "Sat, 01 Jan 2000 00:00:00 GMT"
	future = "Fri, 01 Jan 2100 00:00:00 GMT"
)

// condition is a set of conditional headers. Their values may depend on what is stored.
type condition map[string]string

// allConditions returns the conditions of the service: none, each of the four with each kind of value, and
// the meaningful pairs and triples.
func allConditions() []condition {
	const im, inm, ims, ius = "If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since"
	all := []condition{{}}
	for _, tag := range []string{"current", "bare", "stale", "*", "unknown", "stale,current"} {
		all = append(all, condition{im: tag}, condition{inm: tag})
	}
	for _, date := range []string{"past", "equal", "future"} {
		all = append(all, condition{ims: date}, condition{ius: date})
	}
	for _, tag := range []string{"current", "stale", "*"} {
		for _, date := range []string{"past", "future"} {
			all = append(all, condition{im: tag, ius: date}, condition{im: tag, ims: date}, condition{inm: tag, ims: date}, condition{inm: tag, ius: date})
		}
	}
	return append(all,
		condition{im: "current", inm: "stale"},
		condition{im: "*", inm: "*"},
		condition{ims: "past", ius: "future"},
		condition{ims: "future", ius: "past"},
		condition{im: "current", ims: "past", ius: "future"},
		condition{im: "current", inm: "stale", ims: "past", ius: "future"},
	)
}

func (c condition) String() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(c)) {
		parts = append(parts, name+" "+c[name])
	}
	return cmp.Or(strings.Join(parts, ", "), "none")
}

// headers returns the headers for a resource with these tags.
func (c condition) headers(t tags) (all []param) {
	values := map[string]pair{
		"current": t.current, "stale": t.stale, "equal": t.modified, "past": both(past), "future": both(future),
		"unknown": both(`"0x8D0000000000000"`), "*": both("*"),
	}
	for on := range t.current {
		list, bare := values["stale,current"], values["bare"]
		list[on], bare[on] = t.stale[on]+","+t.current[on], strings.Trim(t.current[on], `"`)
		values["stale,current"], values["bare"] = list, bare
	}
	for _, name := range slices.Sorted(maps.Keys(c)) {
		all = append(all, param{name, values[c[name]]})
	}
	return all
}

// blobAsks returns the requests about a blob.
func blobAsks() map[string]func(container, blob string) *ask {
	of := func(op emulator.Op, method string, change ...func(*ask)) func(string, string) *ask {
		return func(container, blob string) *ask {
			a := &ask{op: op, method: method, container: container, blob: blob}
			for _, c := range change {
				c(a)
			}
			return a
		}
	}
	header := func(name, value string) func(*ask) { return func(a *ask) { a.with(name, value) } }
	query := func(name, value string) func(*ask) { return func(a *ask) { a.where(name, value) } }
	return map[string]func(container, blob string) *ask{
		"put": of(emulator.PutBlob, http.MethodPut, header("x-ms-blob-type", "BlockBlob"),
			header("x-ms-meta-third", "3"), func(a *ask) { a.body = []byte("third") }),
		"get":          of(emulator.GetBlob, http.MethodGet),
		"get range":    of(emulator.GetBlob, http.MethodGet, header("x-ms-range", "bytes=1-3")),
		"head":         of(emulator.HeadBlob, http.MethodHead),
		"get metadata": of(emulator.GetBlobMetadata, http.MethodGet, query("comp", "metadata")),
		"head metadata": of(emulator.GetBlobMetadata, http.MethodHead,
			query("comp", "metadata")),
		"set metadata": of(emulator.SetBlobMetadata, http.MethodPut, query("comp", "metadata"), header("x-ms-meta-set", "yes")),
		"delete":       of(emulator.DeleteBlob, http.MethodDelete),
	}
}

// containerAsks returns the requests about a container.
func containerAsks() map[string]func(container string) *ask {
	of := func(op emulator.Op, method string, query ...string) func(string) *ask {
		return func(container string) *ask {
			a := &ask{op: op, method: method, container: container}
			a.where("restype", "container")
			if len(query) > 0 {
				a.where("comp", query[0])
			}
			if op == emulator.SetContainerMetadata {
				a.with("x-ms-meta-set", "yes")
			}
			return a
		}
	}
	return map[string]func(string) *ask{
		"create":        of(emulator.CreateContainer, http.MethodPut),
		"delete":        of(emulator.DeleteContainer, http.MethodDelete),
		"properties":    of(emulator.GetContainerProperties, http.MethodGet),
		"head":          of(emulator.GetContainerProperties, http.MethodHead),
		"get metadata":  of(emulator.GetContainerProperties, http.MethodGet, "metadata"),
		"head metadata": of(emulator.GetContainerProperties, http.MethodHead, "metadata"),
		"set metadata":  of(emulator.SetContainerMetadata, http.MethodPut, "metadata"),
		"list":          of(emulator.ListBlobs, http.MethodGet, "list"),
	}
}

func createAsk(container string) *ask { return containerAsks()["create"](container) }

func putAsk(container, blob, body string) *ask {
	return (&ask{
		op: emulator.PutBlob, method: http.MethodPut, container: container, blob: blob, body: []byte(body),
	}).with("x-ms-blob-type", "BlockBlob")
}

// tagsOf returns ETag and time from the answers to a write.
func tagsOf(v *verdict) (tag, modified pair) {
	for on, r := range v.reply {
		tag[on], modified[on] = r.header.Get("Etag"), r.header.Get("Last-Modified")
	}
	return tag, modified
}

// fidelity sends the same requests to two services, or to one.
type fidelity struct {
	*comparison
	wait   func(time.Duration) // passes time on the services
	prefix string
	names  int
	cases  int
	// answers and requests are what the emulator does, for TestAnswers.
	answers, requests strings.Builder
}

// name returns an unused name for a container or a blob.
func (f *fidelity) name() string {
	f.names++
	return fmt.Sprintf("%s-%d", f.prefix, f.names)
}

// sampled reports whether a combination is in the sample: one of five if there are two services, or each with
// PLANVAULT_LONG. The number of conditions is not a multiple of five, so each of them is tried, with several
// operations and states.
func (f *fidelity) sampled() bool {
	f.cases++
	return f.alone() || f.cases%efforttest.Pick(5, 5, 1) == 0
}

// container creates a container.
func (f *fidelity) container(t *testing.T, m *memory) string {
	t.Helper()
	name := f.name()
	if v := f.must(t, m, createAsk(name)); v.reply[inAzurite].status != http.StatusCreated {
		t.Fatalf("create: %s", v.outcome(inAzurite))
	}
	return name
}

// TestFidelity compares the emulator with Azurite for operations under conditions, on existing and missing blobs and
// containers, in every state of a lease, and for the limits of the service.
func TestFidelity(t *testing.T) {
	var ahead atomic.Int64
	clock := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	wait := func(d time.Duration) {
		ahead.Add(int64(d))
		must(t, azuriteServer.Get(t).Advance(t.Context(), d))
	}
	f := &fidelity{comparison: &comparison{services: services(t, emulator.WithClock(clock))}, wait: wait, prefix: fmt.Sprintf("fid%x", time.Now().UnixNano())}
	f.everything(t)
	t.Logf("fidelity: %d requests", f.n)
	for _, d := range deviations {
		t.Logf("%6d  %s\n\t%s", f.used[d.what], d.what, d.source)
		if f.used[d.what] == 0 {
			t.Errorf("no request shows %q: remove it from the table, or add a request", d.what)
		}
	}
}

// TestAnswers sends the requests of TestFidelity to the emulator alone, and compares its answers with
// those in testdata, so that the tests without Azurite see what the comparison has shown.
func TestAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Hour) // the bubble begins at the time of past
		s := emulator.New(emulator.WithoutLog())
		f := alone(s)
		if f.everything(t); len(s.Requests()) > 0 {
			t.Error("there is a log")
		}
		goldentest.Equal(t, "testdata/answers.txt", []byte(f.answers.String()))
		goldentest.Equal(t, requestsFile, []byte(f.requests.String()))
	})
}

// alone compares an emulator with itself, in virtual time.
func alone(s *emulator.Server) *fidelity {
	e := inProcess(s)
	return &fidelity{comparison: &comparison{services: [2]*endpoint{e, e}}, wait: time.Sleep, prefix: "x"}
}

func (f *fidelity) everything(t *testing.T) {
	f.testConditions(t)
	f.testRequests(t)
	f.answers.WriteString("\npages\n")
	f.testMarkerChains(t)
	f.testBetweenPages(t)
	f.testCreationTime(t)
	f.answers.WriteString("\nleases\n")
	f.testLeases(t)
}

// summary returns the emulator's answer, without what every such answer has.
func (v *verdict) summary(home string) string {
	var w strings.Builder
	w.WriteString(v.outcome(inEmulator))
	facts := v.facts[inEmulator]
	usual := append(strings.Fields("Date X-Ms-Request-Id X-Ms-Error-Code Content-Length Accept-Ranges Last-Modified X-Ms-Creation-Time "+
		"X-Ms-Blob-Type X-Ms-Lease-State X-Ms-Lease-Status X-Ms-Server-Encrypted X-Ms-Request-Server-Encrypted"),
		"status", "root", "list @ContainerName", "list @ServiceEndpoint", "list Blobs")
	for _, fact := range slices.Sorted(maps.Keys(facts)) {
		name, value := strings.TrimPrefix(fact, "header "), shorten(facts[fact])
		n, ofItem := itemOf(name)
		switch {
		case slices.Contains(usual, name), ofItem && (n >= 10 || strings.Contains(name, " header ") || strings.HasSuffix(name, " type")), strings.Contains(name, " Properties/"):
		case value == `""`, value == "[]", value == serviceVersion, value == "application/xml", value == "code "+v.reply[inEmulator].header.Get("X-Ms-Error-Code"):
		default:
			fmt.Fprintf(&w, " | %s: %s", name, value)
		}
	}
	return strings.ReplaceAll(w.String(), home, "HOME")
}

// testConditions sends combinations of operation on a blob or a container, condition and state.
func (f *fidelity) testConditions(t *testing.T) {
	m := newMemory()
	home, blobs, containers := f.container(t, m), blobAsks(), containerAsks()
	for _, name := range slices.Sorted(maps.Keys(blobs)) {
		for _, state := range []string{"present", "absent", "container absent"} {
			var blob string
			f.underConditions(t, m, name+" of a blob", state, func() (known tags) {
				blob = f.name()
				known.stale, _ = tagsOf(f.must(t, m, putAsk(home, blob, "first")))
				known.current, known.modified = tagsOf(f.must(t, m, putAsk(home, blob, "second").with("x-ms-meta-second", "2")))
				return known
			}, func() (a, check *ask) {
				switch state {
				case "absent":
					blob = f.name()
				case "container absent":
					absent := f.name()
					return blobs[name](absent, blob), blobs["get"](absent, blob)
				}
				return blobs[name](home, blob), blobs["get"](home, blob)
			})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(containers)) {
		for _, state := range []string{"present", "absent"} {
			var container string
			f.underConditions(t, m, name+" of a container", state, func() (known tags) {
				container = f.name()
				known.stale, _ = tagsOf(f.must(t, m, createAsk(container)))
				known.current, known.modified = tagsOf(f.must(t, m, containers["set metadata"](container)))
				return known
			}, func() (a, check *ask) {
				if state == "absent" {
					container = f.name()
				}
				return containers[name](container), containers["properties"](container)
			})
		}
	}
}

// underConditions sends a request under each condition. anew makes what is present and returns its tags. of
// returns the request, and another one that shows its effect.
func (f *fidelity) underConditions(t *testing.T, m *memory, what, state string, anew func() tags, of func() (a, check *ask)) {
	t.Helper()
	outcomes := make(map[string][]string)
	known := anew()
	for _, condition := range allConditions() {
		if !f.sampled() {
			continue
		}
		a, check := of()
		a.header = append(a.header, condition.headers(known)...)
		v := f.must(t, m, a)
		if len(v.unexplained) > 0 {
			t.Logf("the case is %s, %s, %s", what, state, condition)
		}
		outcome := v.outcome(inEmulator)
		if a.changes() {
			if !v.diverged() {
				outcome += ", then " + f.must(t, m, check).outcome(inEmulator)
			}
			if state == "present" {
				known = anew()
			}
		}
		outcomes[outcome] = append(outcomes[outcome], condition.String())
	}
	for _, outcome := range slices.Sorted(maps.Keys(outcomes)) {
		fmt.Fprintf(&f.answers, "%s, %s -> %s: %s\n", what, state, outcome, strings.Join(outcomes[outcome], "; "))
	}
}
