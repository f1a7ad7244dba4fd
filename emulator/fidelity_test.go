package emulator_test

import (
	"flag"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/efforttest"
)

// tags are the current and the previous ETag of a blob, and its time.
type tags struct {
	current, stale, modified pair
}

// conditioned is a set of conditions for a request.
type conditioned struct {
	name   string
	header func(tags) []param
}

const (
	past   = "Sat, 01 Jan 2000 00:00:00 GMT"
	future = "Fri, 01 Jan 2100 00:00:00 GMT"
)

// allConditions returns the conditions of the service: none, each of the four with each kind of value, and
// the meaningful pairs and triples.
func allConditions() []conditioned {
	type value struct {
		name string
		of   func(tags) pair
	}
	fixed := func(name, text string) value { return value{name, func(tags) pair { return both(text) }} }
	current := value{"current", func(t tags) pair { return t.current }}
	stale := value{"stale", func(t tags) pair { return t.stale }}
	bare := value{"bare", func(t tags) pair {
		return pair{strings.Trim(t.current[0], `"`), strings.Trim(t.current[1], `"`)}
	}}
	list := value{"stale,current", func(t tags) pair {
		return pair{t.stale[0] + "," + t.current[0], t.stale[1] + "," + t.current[1]}
	}}
	unknown := fixed("unknown", `"0x8D0000000000000"`)
	any := fixed("*", "*")
	equal := value{"equal", func(t tags) pair { return t.modified }}
	before, after := fixed("past", past), fixed("future", future)

	type single struct {
		header string
		value  value
	}
	all := []conditioned{{"none", func(tags) []param { return nil }}}
	add := func(singles ...single) {
		var names []string
		for _, s := range singles {
			names = append(names, s.header+" "+s.value.name)
		}
		all = append(all, conditioned{strings.Join(names, ", "), func(t tags) []param {
			var headers []param
			for _, s := range singles {
				headers = append(headers, param{s.header, s.value.of(t)})
			}
			return headers
		}})
	}
	const (
		im  = "If-Match"
		inm = "If-None-Match"
		ims = "If-Modified-Since"
		ius = "If-Unmodified-Since"
	)
	tagValues := []value{current, bare, stale, any, unknown, list}
	dateValues := []value{before, equal, after}
	for _, v := range tagValues {
		add(single{im, v})
		add(single{inm, v})
	}
	for _, v := range dateValues {
		add(single{ims, v})
		add(single{ius, v})
	}
	for _, tag := range []value{current, stale, any} {
		for _, date := range []value{before, after} {
			add(single{im, tag}, single{ius, date})
			add(single{im, tag}, single{ims, date})
			add(single{inm, tag}, single{ims, date})
			add(single{inm, tag}, single{ius, date})
		}
	}
	add(single{im, current}, single{inm, stale})
	add(single{im, any}, single{inm, any})
	add(single{ims, before}, single{ius, after})
	add(single{ims, after}, single{ius, before})
	add(single{im, current}, single{ims, before}, single{ius, after})
	add(single{im, current}, single{inm, stale}, single{ims, before}, single{ius, after})
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

// fidelity is a pair of services with a counter for names.
type fidelity struct {
	*comparison
	prefix string
	names  int
	cases  int
}

func newFidelity(t *testing.T, opts ...emulator.Option) *fidelity {
	return &fidelity{
		comparison: &comparison{services: services(t, opts...)},
		prefix:     fmt.Sprintf("fid%x", time.Now().UnixNano()),
	}
}

// name returns an unused name for a container or a blob.
func (f *fidelity) name() string {
	f.names++
	return fmt.Sprintf("%s-%d", f.prefix, f.names)
}

// sampled reports whether a combination is in the sample: one of five, or each with PLANVAULT_LONG. The number of conditions is not
// a multiple of five, so each of them is tried, with several operations and states.
func (f *fidelity) sampled() bool {
	f.cases++
	return f.cases%efforttest.Pick(5, 5, 1) == 0
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
	f := newFidelity(t)
	leases := f.testLeases(t)
	t.Run("blobs", f.testBlobs)
	t.Run("containers", f.testContainers)
	t.Run("limits", f.testLimits)
	t.Run("leases", leases)
	t.Logf("fidelity: %d requests", f.n)
	all := !strings.Contains(flag.Lookup("test.run").Value.String(), "/")
	for _, d := range deviations {
		t.Logf("%6d  %s\n\tAzurite: %s\n\tthe service: %s\n\t%s", f.used[d.name], d.name, d.azurite, d.service, d.source)
		if all && f.used[d.name] == 0 {
			t.Errorf("no request shows %q: remove it from the table, or add a request", d.name)
		}
	}
}

// testBlobs sends combinations of operation on a blob, condition and state.
func (f *fidelity) testBlobs(t *testing.T) {
	m := newMemory()
	home := f.container(t, m)
	var blob string
	var known tags
	// anew creates a blob and overwrites it.
	anew := func() {
		blob = f.name()
		known.stale, _ = tagsOf(f.must(t, m, putAsk(home, blob, "first")))
		known.current, known.modified = tagsOf(f.must(t, m, putAsk(home, blob, "second").with("x-ms-meta-second", "2")))
	}
	anew()
	asks := blobAsks()
	for _, name := range slices.Sorted(maps.Keys(asks)) {
		for _, state := range []string{"present", "absent", "container absent"} {
			for _, condition := range allConditions() {
				if !f.sampled() {
					continue
				}
				a := asks[name](home, blob)
				switch state {
				case "absent":
					a.blob = f.name()
				case "container absent":
					a.container = f.name()
				}
				a.header = append(a.header, condition.header(known)...)
				v := f.must(t, m, a)
				if len(v.unexplained) > 0 {
					t.Logf("the case is %s, %s, %s", name, state, condition.name)
				}
				if !a.writes() && a.op != emulator.DeleteBlob || state == "container absent" {
					continue
				}
				if !v.diverged() {
					f.must(t, m, asks["get"](a.container, a.blob))
				}
				if state == "present" {
					anew()
				}
			}
		}
	}
}

// testContainers does the same for containers.
func (f *fidelity) testContainers(t *testing.T) {
	m := newMemory()
	var container string
	var known tags
	// anew creates a container and changes its metadata.
	anew := func() {
		container = f.name()
		known.stale, _ = tagsOf(f.must(t, m, createAsk(container)))
		known.current, known.modified = tagsOf(f.must(t, m, containerAsks()["set metadata"](container)))
	}
	anew()
	asks := containerAsks()
	for _, name := range slices.Sorted(maps.Keys(asks)) {
		for _, state := range []string{"present", "absent"} {
			for _, condition := range allConditions() {
				if !f.sampled() {
					continue
				}
				a := asks[name](container)
				if state == "absent" {
					a.container = f.name()
				}
				a.header = append(a.header, condition.header(known)...)
				v := f.must(t, m, a)
				if len(v.unexplained) > 0 {
					t.Logf("the case is %s, %s, %s", name, state, condition.name)
				}
				if !a.writes() && a.op != emulator.DeleteContainer {
					continue
				}
				if !v.diverged() {
					f.must(t, m, asks["properties"](a.container))
				}
				if state == "present" && a.op != emulator.CreateContainer {
					anew()
				}
			}
		}
	}
}
