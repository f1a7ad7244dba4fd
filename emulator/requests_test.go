package emulator_test

import (
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/planvault/azblob/emulator"
)

// requestsFile holds requests at and beyond the limits of the service, and invalid ones. A line with # begins a
// case, which has a container of its own, HOME. A request has an operation, a method, a path, and fields:
//
//	?name=value     a parameter
//	name:value      a header; that of a block blob need not be written
//	body=text
//	item=/HOME/blob an item of a batch, and +name:value its header; items=3 are HOME/0 to HOME/2
//	account=text    also key, date, version, and ~name:value for the fields of an ask that make it invalid
//
// A field may be quoted as in Go. {v*9} is nine v, {z<63} as many z as make the text 63 bytes long, and {now-60}
// a minute ago. An indented line is the emulator's answer to the request above, or to a HEAD of the blob that was
// put. TestAnswers compares and rewrites these lines.
const requestsFile = "testdata/requests.txt"

// testRequests sends the requests of requestsFile.
func (f *fidelity) testRequests(t *testing.T) {
	text, err := os.ReadFile(requestsFile)
	must(t, err)
	var m *memory
	var home string
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "\t") {
			continue
		}
		f.requests.WriteString(line)
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		if strings.HasPrefix(line, "# ") {
			m = newMemory()
			home = f.container(t, m)
			continue
		}
		a := parseAsk(t, home, line)
		v := f.must(t, m, a)
		f.requests.WriteString("\t" + v.summary(home) + "\n")
		if a.op == emulator.PutBlob && v.reply[inAzurite].status < 300 {
			v = f.must(t, m, blobAsks()["head"](a.container, a.blob))
			f.requests.WriteString("\thead " + v.summary(home) + "\n")
		}
		if t.Failed() {
			t.Fatalf("the request is %s", line)
		}
	}
}

var expansion = regexp.MustCompile(`\{(.)([*<])(\d+)\}|\{now([+-]\d+)\}`)

// expand replaces what is in braces.
func expand(text string) string {
	return expansion.ReplaceAllStringFunc(text, func(match string) string {
		part := expansion.FindStringSubmatch(match)
		n, _ := strconv.Atoi(part[3] + part[4])
		switch {
		case part[2] == "*":
			return strings.Repeat(part[1], n)
		case part[2] == "<":
			return strings.Repeat(part[1], n-len(text)+len(match))
		}
		return time.Now().Add(time.Duration(n) * time.Second).UTC().Format(http.TimeFormat)
	})
}

// parseAsk parses a line of requestsFile.
func parseAsk(t *testing.T, home, line string) *ask {
	t.Helper()
	line = strings.ReplaceAll(line, "HOME", home)
	var all []string
	for line != "" {
		field, rest, _ := strings.Cut(line, " ")
		if quoted, err := strconv.QuotedPrefix(line); err == nil {
			field, err = strconv.Unquote(quoted)
			must(t, err)
			rest = line[len(quoted):]
		}
		all, line = append(all, field), strings.TrimLeft(rest, " ")
	}
	resource := func(path string) (string, string) {
		container, blob, _ := strings.Cut(path[1:], "/")
		return expand(container), expand(blob)
	}
	a := &ask{op: emulator.Op(all[0]), method: all[1]}
	a.container, a.blob = resource(all[2])
	if a.op == emulator.PutBlob && !strings.Contains(fmt.Sprint(all), "x-ms-blob-type:") {
		a.with("x-ms-blob-type", "BlockBlob")
	}
	for _, field := range all[3:] {
		name, value, header := strings.Cut(field, ":")
		if key, text, ok := strings.Cut(field, "="); ok && (!header || len(key) < len(name)) {
			name, value, header = key, text, false
		}
		value = expand(value)
		kind, rest := name[:1], name[1:]
		switch {
		case kind == "?":
			a.where(rest, value)
		case header && kind == "~":
			if a.tamper == nil {
				a.tamper = make(map[string]string)
			}
			a.tamper[rest] = value
		case header && kind == "+":
			it := &a.items[len(a.items)-1]
			switch rest {
			case "unsigned":
				it.unsigned = true
			case "method":
				it.method = value
			default:
				it.header = append(it.header, param{rest, both(value)})
			}
		case header && (value != "" || name != "x-ms-blob-type"):
			a.with(name, value)
		case name == "item":
			var it item
			it.container, it.blob = resource(value)
			a.items = append(a.items, it)
		case name == "items":
			n, err := strconv.Atoi(value)
			must(t, err)
			a.items = make([]item, n)
			for i := range a.items {
				a.items[i] = item{container: home, blob: fmt.Sprint(i)}
			}
		case name == "body":
			a.body = []byte(value)
		default:
			if to := map[string]*string{"account": &a.account, "key": &a.key, "date": &a.date, "version": &a.version}[name]; to != nil {
				*to = value
			}
		}
	}
	return a
}

// account returns a request about the account, with pairs of names and values of parameters.
func account(op emulator.Op, method string, params ...string) *ask {
	a := &ask{op: op, method: method}
	for i := 0; i < len(params); i += 2 {
		a.where(params[i], params[i+1])
	}
	return a
}

// testMarkerChains pages through listings with every kind of grouping.
func (f *fidelity) testMarkerChains(t *testing.T) {
	m := newMemory()
	home := f.container(t, m)
	for _, name := range []string{"a", "a-b", "a/1", "a/2", "a/2/3", "a0", "b", "b/1", "b/2", "c", "c/d/e"} {
		f.must(t, m, putAsk(home, name, name))
	}
	for _, size := range []string{"1", "2", "3", "7"} {
		for _, params := range [][]string{
			nil, {"prefix", "a"}, {"startFrom", "a/2"}, {"delimiter", "/"}, {"delimiter", "/", "prefix", "a"}, {"delimiter", "/", "startFrom", "a/2"},
		} {
			marker := pair{}
			for page := 0; page == 0 || marker[inAzurite] != "" && page < 20; page++ {
				a := containerAsks()["list"](home).where("maxresults", size)
				for i := 0; i < len(params); i += 2 {
					a.where(params[i], params[i+1])
				}
				if page > 0 {
					a.query = append(a.query, param{"marker", marker})
				}
				v := f.must(t, m, a)
				fmt.Fprintf(&f.answers, "%s -> %s\n", strings.ReplaceAll(a.String(), home, "HOME"), v.summary(home))
				for on, r := range v.reply {
					marker[on] = nextMarker(r.body)
				}
				if (marker[inAzurite] == "") != (marker[inEmulator] == "") {
					break
				}
			}
		}
	}
}

// testBetweenPages writes a blob whose name is between two pages of a listing.
func (f *fidelity) testBetweenPages(t *testing.T) {
	m := newMemory()
	home := f.container(t, m)
	f.must(t, m, putAsk(home, "a", ""))
	f.must(t, m, putAsk(home, "c", ""))
	a := containerAsks()["list"](home).where("maxresults", "1")
	v := f.must(t, m, a)
	f.must(t, m, putAsk(home, "b", ""))
	next := containerAsks()["list"](home)
	next.query = append(next.query, param{"marker", pair{nextMarker(v.reply[inAzurite].body), nextMarker(v.reply[inEmulator].body)}})
	f.must(t, m, next)
}

// testCreationTime checks the creation time of an overwritten blob.
func (f *fidelity) testCreationTime(t *testing.T) {
	m := newMemory()
	home := f.container(t, m)
	f.must(t, m, putAsk(home, "a", "first"))
	f.wait(1100 * time.Millisecond)
	f.must(t, m, putAsk(home, "a", "second"))
	v := f.must(t, m, blobAsks()["head"](home, "a"))
	for on, r := range v.reply {
		if created, modified := r.header.Get("X-Ms-Creation-Time"), r.header.Get("Last-Modified"); created != modified {
			t.Errorf("side %d: created %s, modified %s", on, created, modified)
		}
	}
}
