package emulator_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
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
	memory              *memory
	containers          []string
	conditions, actions []string                // of requestsFile
	writes              map[string][2][2]*reply // the last two of each container and blob
	page                string                  // the last listing, if it has more pages
}

func newStream(t *testing.T, seed uint64) *stream {
	t.Helper()
	// The clock advances by a second with every request, so that everything depends on the seed alone.
	now := time.Now()
	clock := func() time.Time { return now }
	s := &stream{
		comparison: &comparison{services: services(t, emulator.WithClock(clock))},
		Rand:       rand.New(rand.NewPCG(seed, 0)),
		memory:     newMemory(fmt.Sprintf("diff%x", now.UnixNano())), // Azurite is shared
		conditions: valuesOf(t, "CONDITIONS"),
		writes:     make(map[string][2][2]*reply),
	}
	s.services[inEmulator].now = func() time.Time {
		now = now.Add(time.Second)
		return now
	}
	// Azurite's clock goes on by itself, so leases don't run out.
	s.actions = slices.DeleteFunc(valuesOf(t, "ACTIONS"), func(a string) bool {
		return strings.HasSuffix(a, "for=60") || strings.HasSuffix(a, "period=30")
	})
	for _, end := range []string{"", "-a", "b"} {
		s.containers = append(s.containers, "/HOME"+end)
		s.must(t, s.memory, parse(s.memory, "create /HOME"+end))
	}
	return s
}

// valuesOf returns the values that requestsFile gives a name.
func valuesOf(t *testing.T, name string) []string {
	t.Helper()
	text, err := os.ReadFile(requestsFile)
	must(t, err)
	_, list, _ := strings.Cut(string(text), "let "+name+" = ")
	list, _, _ = strings.Cut(list, "\n")
	return strings.Split(strings.TrimPrefix(list, "none | "), " | ")
}

// learn records versions and pages.
func (s *stream) learn(v *verdict) {
	a := v.ask
	if a.writes() && v.reply[inAzurite].status < 300 && v.reply[inEmulator].status < 300 {
		w := s.writes[a.resource()]
		for on, r := range v.reply {
			w[on] = [2]*reply{w[on][1], r}
		}
		s.writes[a.resource()] = w
	}
	if a.op == emulator.ListBlobs {
		s.page = ""
		if s.memory.next[inAzurite] != "" && s.memory.next[inEmulator] != "" {
			s.page, _, _ = strings.Cut(a.line, " ?marker=")
		}
	}
}

// pick returns one of the choices.
func pick[T any](s *stream, choices ...T) T { return choices[s.IntN(len(choices))] }

// blobNames are names that are close to each other and to the delimiter in the order of names.
var blobNames = []string{"a", "a-b", "a/1", "a/2", "a0", "aa", "b/1", "é"}

// next returns a random request.
func (s *stream) next() *ask {
	container := pick(s, s.containers...)
	blob, line := container+"/"+pick(s, blobNames...), ""
	switch p := s.IntN(20); {
	case p < 13:
		line = pick(s, "put body=third", "put body=third", "put body=3", "get", "get x-ms-range:bytes=1-3", "head", "delete") + " " + blob
		if s.IntN(2) == 0 {
			line += " " + pick(s, s.conditions...)
		}
	case p < 16 && s.page != "" && s.IntN(2) == 0:
		line = s.page + " ?marker={next}"
	case p < 16:
		line = s.list(container)
	case p < 17:
		line = "batch " + container
		for _, i := range s.Perm(len(blobNames))[:1+s.IntN(4)] {
			line += " item=" + container + "/" + blobNames[i]
			if s.IntN(2) == 0 {
				line += " +" + pick(s, "If-Match:{current}", "If-Match:{stale}", "If-Match:*", "If-None-Match:{current}", "If-Modified-Since:{past}")
			}
		}
	case p < 18:
		line = "create " + container
	default:
		line = pick(s, s.actions...) + " " + container
	}
	s.memory.last = s.writes[parse(s.memory, "get "+blob).resource()]
	return parse(s.memory, line)
}

func (s *stream) list(container string) string {
	line := "list " + container
	for _, choice := range [][]string{
		{"prefix", "a", "a/", "b", "none", "é", ""},
		{"maxresults", "1", "1", "2", "2", "3", "5", "5000", "0"},
		{"startFrom", "a", "a/1", "a/2", "aa", "b", "z", ""},
		{"delimiter", "/", "/", "/", "-", "1"},
		{"include", "metadata", "metadata", "metadata,tags", "snapshots"},
	} {
		if s.IntN(3) == 0 {
			line += " ?" + choice[0] + "=" + pick(s, choice[1:]...)
		}
	}
	return line
}
