package emulator_test

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/goldentest"
)

// requestsFile holds requests and the emulator's answers. A line with # begins a case, which has a container of
// its own, HOME. A request is a verb of the table below, or a method, then a path, and fields:
//
//	?name=value     a parameter
//	name:value      a header, which may be empty
//	~name:value     changes a header after signing; also method, path and query
//	body=text       and account, key, date and version
//	item=/HOME/blob an item of a batch, and +name:value its header; items=3 are HOME/0 to HOME/2
//	do=, id=, propose=, for= and period= are the headers of a lease
//
// A field may be quoted as in Go. ONE and TWO are IDs of leases. {v*9} is nine v, {z<63} as many z as make the
// text 63 bytes long, {now-60} a minute ago; {past} and {future} are dates. {current}, {stale} and {modified}
// are of the last two writes of the case, {bare} is {current} without quotes, {next} the marker of the last page.
//
// An indented line is the emulator's answer to the request above. The verb pages lists until there are no more
// pages, and wait lets time pass. Requests with "- " before them have no answer in the file; there may be
// several, with && between them. "let NAME = a | b" names values; none is an empty one. "for X in a | b; Y in
// NAME" repeats the rest of the paragraph for each pair of values, with [X] and [Y] replaced, and [#] by the
// number of the pair; the answers follow, each after the numbers of the values of Y that it was given for. With
// "sample" instead of "for", Azurite gets one of five pairs, or all with PLANVAULT_LONG=1.
//
// TestAnswers compares the answers, and go test -update rewrites them.
const requestsFile = "testdata/requests.txt"

const (
	past     = "Sat, 01 Jan 2000 00:00:00 GMT"
	future   = "Fri, 01 Jan 2100 00:00:00 GMT"
	oneLease = "0190a3c0-0000-7000-8000-00000000000a"
)

// verbs are the names of requests in a script.
var verbs = map[string]ask{
	"put":        {op: emulator.PutBlob, method: "PUT", header: []param{{"x-ms-blob-type", both("BlockBlob")}}},
	"get":        {op: emulator.GetBlob, method: "GET"},
	"head":       {op: emulator.HeadBlob, method: "HEAD"},
	"delete":     {op: emulator.DeleteBlob, method: "DELETE"},
	"create":     {op: emulator.CreateContainer, method: "PUT", query: query("restype=container")},
	"drop":       {op: emulator.DeleteContainer, method: "DELETE", query: query("restype=container")},
	"properties": {op: emulator.GetContainerProperties, method: "GET", query: query("restype=container")},
	"peek":       {op: emulator.GetContainerProperties, method: "HEAD", query: query("restype=container")},
	"describe":   {op: emulator.SetContainerMetadata, method: "PUT", query: query("restype=container&comp=metadata")},
	"lease":      {op: emulator.LeaseContainer, method: "PUT", query: query("restype=container&comp=lease")},
	"list":       {op: emulator.ListBlobs, method: "GET", query: query("restype=container&comp=list")},
	"containers": {op: emulator.ListContainers, method: "GET", query: query("comp=list")},
	"batch":      {op: emulator.BatchDelete, method: "POST", query: query("restype=container&comp=batch")},
	"batches":    {op: emulator.BatchDelete, method: "POST", query: query("comp=batch")},
	"account":    {op: emulator.GetAccountInfo, method: "GET", query: query("restype=account&comp=properties")},
	"service":    {op: emulator.GetServiceProperties, method: "GET", query: query("restype=service&comp=properties")},
}

func query(text string) (params []param) {
	for part := range strings.SplitSeq(text, "&") {
		name, value, _ := strings.Cut(part, "=")
		params = append(params, param{name, both(value)})
	}
	return params
}

// leaseHeaders are the fields of a lease.
var leaseHeaders = map[string]string{
	"do": "x-ms-lease-action", "id": "x-ms-lease-id", "propose": "x-ms-proposed-lease-id", "for": "x-ms-lease-duration",
	"period": "x-ms-lease-break-period",
}

// parse parses a request.
func parse(m *memory, line string) *ask {
	fields := split(line)
	a, ok := verbs[fields[0]]
	if !ok {
		a = ask{op: emulator.Unsupported, method: fields[0]}
	}
	a.line, a.header, a.query = line, slices.Clone(a.header), slices.Clone(a.query)
	for _, field := range fields[1:] {
		if path, ok := strings.CutPrefix(field, "/"); ok {
			a.container, a.blob, _ = strings.Cut(m.expand(path)[inEmulator], "/")
		} else {
			a.add(m, field)
		}
	}
	return &a
}

// split splits a line into fields.
func split(line string) (fields []string) {
	for line = strings.TrimLeft(line, " "); line != ""; line = strings.TrimLeft(line, " ") {
		field, rest, _ := strings.Cut(line, " ")
		if quoted, err := strconv.QuotedPrefix(line); err == nil {
			field, _ = strconv.Unquote(quoted)
			rest = line[len(quoted):]
		}
		fields, line = append(fields, field), rest
	}
	return fields
}

// add adds a field to the request.
func (a *ask) add(m *memory, field string) {
	i := strings.IndexAny(field, ":=")
	name, value := field[:i], m.expand(field[i+1:])
	switch {
	case name[0] == '?':
		a.query = append(a.query, param{name[1:], value})
	case name[0] == '~':
		if a.tamper == nil {
			a.tamper = make(map[string]string)
		}
		a.tamper[name[1:]] = value[inEmulator]
	case name[0] == '+':
		it := &a.items[len(a.items)-1]
		switch name {
		case "+unsigned":
			it.unsigned = true
		case "+method":
			it.method = value[inEmulator]
		default:
			it.header = append(it.header, param{name[1:], value})
		}
	case field[i] == ':' && strings.EqualFold(name, "x-ms-blob-type"):
		a.header = []param{{name, value}}
	case field[i] == ':':
		a.header = append(a.header, param{name, value})
	case leaseHeaders[name] != "":
		a.header = append(a.header, param{leaseHeaders[name], value})
	case name == "item":
		var it item
		it.container, it.blob, _ = strings.Cut(value[inEmulator][1:], "/")
		a.items = append(a.items, it)
	case name == "items":
		n, _ := strconv.Atoi(value[inEmulator])
		a.items = make([]item, n)
		for i := range a.items {
			a.items[i] = item{container: a.container, blob: strconv.Itoa(i)}
		}
	case name == "body":
		a.body = []byte(value[inEmulator])
	default:
		*map[string]*string{"account": &a.account, "key": &a.key, "date": &a.date, "version": &a.version}[name] = value[inEmulator]
	}
}

var expansion = regexp.MustCompile(`\{(.)([*<])(\d+)\}|\{now([+-]\d+)\}|\{([a-z]+)\}`)

// expand replaces what is in braces.
func (m *memory) expand(text string) (expanded pair) {
	text = strings.NewReplacer("HOME", m.home, "ONE", oneLease, "TWO", oneLease[:35]+"b").Replace(text)
	for on := range expanded {
		expanded[on] = expansion.ReplaceAllStringFunc(text, func(match string) string {
			part := expansion.FindStringSubmatch(match)
			n, _ := strconv.Atoi(part[3] + part[4])
			switch {
			case part[5] != "":
				return m.tag(side(on), part[5])
			case part[2] == "*":
				return strings.Repeat(part[1], n)
			case part[2] == "<":
				return strings.Repeat(part[1], n-len(text)+len(match))
			}
			return time.Now().Add(time.Duration(n) * time.Second).UTC().Format(http.TimeFormat)
		})
	}
	return expanded
}

// tag returns an ETag or a date.
func (m *memory) tag(on side, name string) string {
	switch last := m.last[on]; name {
	case "current":
		return last[1].tag()
	case "bare":
		return strings.Trim(last[1].tag(), `"`)
	case "stale":
		return last[0].tag()
	case "modified":
		return last[1].modified()
	case "past":
		return past
	case "future":
		return future
	case "next":
		return m.next[on]
	}
	panic(name)
}

// tag returns the ETag, or one that no resource has.
func (r *reply) tag() string {
	if r == nil {
		return `"0x8D0000000000000"`
	}
	return r.header.Get("Etag")
}

func (r *reply) modified() string {
	if r == nil {
		return past
	}
	return r.header.Get("Last-Modified")
}

// script sends the requests of a file to two services, or to one.
type script struct {
	*comparison
	wait   func(time.Duration) // passes time on the services
	prefix string              // of the names of containers
	cases  int
	pairs  int
	values map[string]string
	golden strings.Builder // the file with the answers of the emulator
}

// run sends the requests of requestsFile.
func (s *script) run(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile(requestsFile)
	must(t, err)
	s.values = make(map[string]string)
	var m *memory
	for paragraph := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n\n") {
		lines := slices.DeleteFunc(strings.Split(paragraph, "\n"), func(line string) bool { return strings.HasPrefix(line, "\t") })
		for i, line := range lines {
			s.golden.WriteString(line + "\n")
			name, rest, _ := strings.Cut(line, " ")
			switch name {
			case "#":
				s.cases++
				m = newMemory(fmt.Sprintf("%s-%d", s.prefix, s.cases))
				s.do(t, m, "- create /HOME")
			case "let":
				name, list, _ := strings.Cut(rest, " = ")
				s.values[name] = list
			case "for", "sample":
				s.golden.WriteString(strings.Join(append(lines[i+1:], ""), "\n"))
				s.loop(t, m, name == "sample", rest, lines[i+1:])
			default:
				if answer := s.do(t, m, line); answer != "" {
					s.golden.WriteString("\t" + answer + "\n")
				}
			}
			if t.Failed() {
				t.Fatalf("the line is %s", line)
			}
			if name == "for" || name == "sample" {
				break
			}
		}
		s.golden.WriteString("\n")
	}
}

// loop sends requests for each pair of the values of a loop.
func (s *script) loop(t *testing.T, m *memory, sample bool, head string, lines []string) {
	t.Helper()
	first, second, two := strings.Cut(head, "; ")
	if !two {
		first, second = " in ", first
	}
	outer, inner := s.list(first), s.list(second)
	for _, x := range outer[1:] {
		var order []string
		answers := make(map[string][]string)
		for i, y := range inner[1:] {
			if s.pairs++; sample && !s.alone() && s.pairs%efforttest.Pick(5, 5, 1) > 0 {
				continue
			}
			var all []string
			for _, line := range lines {
				line = strings.NewReplacer("["+outer[0]+"]", x, "["+inner[0]+"]", y).Replace(line)
				line = strings.ReplaceAll(line, "[#]", strconv.Itoa(s.pairs))
				if answer := s.do(t, m, line); answer != "" {
					all = append(all, answer)
				}
				if t.Failed() {
					t.Fatalf("the line is %s", line)
				}
			}
			if len(all) > 0 {
				value := m.expand(y)[inEmulator]
				quoted, name := strconv.Quote(value), "["+inner[0]+"]"
				answer := strings.NewReplacer("["+quoted+"]", name, "Prefix: "+value, "Prefix: "+name).Replace(strings.Join(all, ", then "))
				if answers[answer] == nil {
					order = append(order, answer)
				}
				answers[answer] = append(answers[answer], strconv.Itoa(i+1))
			}
		}
		if two {
			s.golden.WriteString("\t" + x + "\n")
		}
		for _, answer := range order {
			fmt.Fprintf(&s.golden, "\t%s: %s\n", strings.Join(answers[answer], " "), answer)
		}
	}
}

// list returns the name and the values of a loop.
func (s *script) list(text string) []string {
	name, list, _ := strings.Cut(text, " in ")
	if named, ok := s.values[list]; ok {
		list = named
	}
	values := strings.Split(list, " | ")
	for i := range values {
		if values[i] == "none" {
			values[i] = ""
		}
	}
	return append([]string{name}, values...)
}

// do executes a line. It returns the emulator's answer, or "" for a line without an answer.
func (s *script) do(t *testing.T, m *memory, line string) string {
	t.Helper()
	quiet := strings.HasPrefix(line, "- ")
	line = strings.TrimSpace(strings.TrimPrefix(line, "- "))
	if first, rest, ok := strings.Cut(line, " && "); ok {
		s.do(t, m, first)
		return s.do(t, m, "- "+rest)
	}
	verb, rest, _ := strings.Cut(line, " ")
	switch verb {
	case "":
		return ""
	case "wait":
		d, err := time.ParseDuration(rest)
		must(t, err)
		s.wait(d)
		return ""
	case "pages":
		return s.pages(t, m, rest)
	}
	v := s.must(t, m, parse(m, line))
	if quiet {
		return ""
	}
	return v.summary(m.home)
}

// pages lists until there are no more pages, and returns the answers.
func (s *script) pages(t *testing.T, m *memory, rest string) string {
	t.Helper()
	var answers []string
	for a := parse(m, "list "+rest); ; {
		v := s.must(t, m, a)
		answers = append(answers, v.summary(m.home))
		marker := pair{nextMarker(v.reply[inAzurite].body), nextMarker(v.reply[inEmulator].body)}
		if marker[inAzurite] == "" || marker[inEmulator] == "" || len(answers) > 20 {
			return strings.Join(answers, ", then ")
		}
		a = parse(m, "list "+rest)
		a.query = append(a.query, param{"marker", marker})
	}
}

// TestFidelity compares the emulator with Azurite: operations under conditions, on existing and missing blobs and
// containers, in every state of a lease, and at the limits of the service.
func TestFidelity(t *testing.T) {
	var ahead atomic.Int64
	clock := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	wait := func(d time.Duration) {
		ahead.Add(int64(d))
		must(t, azuriteServer.Get(t).Advance(t.Context(), d))
	}
	s := &script{
		comparison: &comparison{services: services(t, emulator.Options{Clock: clock})}, wait: wait,
		prefix: fmt.Sprintf("fid%x", time.Now().UnixNano()),
	}
	s.run(t)
	t.Logf("fidelity: %d requests", s.n)
	for _, d := range deviations {
		t.Logf("%6d  %s\n\t%s", s.used[d.what], d.what, d.source)
		if s.used[d.what] == 0 {
			t.Errorf("no request shows %q: remove it from the table, or add a request", d.what)
		}
	}
}

// TestAnswers sends the requests of TestFidelity to the emulator alone, and compares its answers with
// those in testdata, so that the tests without Azurite see what the comparison has shown.
func TestAnswers(t *testing.T) {
	efforttest.NotShort(t, "it sends one request at a time; TestConcurrentUseOfEverything sends several")
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Hour) // the bubble begins at the time of past
		e := emulator.New(emulator.Options{NoLog: true})
		s := alone(e)
		if s.run(t); len(e.Requests()) > 0 {
			t.Error("there is a log")
		}
		goldentest.Equal(t, requestsFile, []byte(strings.TrimSpace(s.golden.String())+"\n"))
	})
}

// alone compares an emulator with itself, in virtual time.
func alone(server *emulator.Server) *script {
	e := inProcess(server)
	return &script{comparison: &comparison{services: [2]*endpoint{e, e}}, wait: time.Sleep, prefix: "x"}
}

// Facts, and values of facts, that the file does not repeat with each answer. The last value is the MD5 of "body".
var (
	usualFacts = append(strings.Fields("Date X-Ms-Request-Id X-Ms-Error-Code Content-Length Accept-Ranges X-Ms-Blob-Type "+
		"X-Ms-Server-Encrypted X-Ms-Request-Server-Encrypted X-Ms-Access-Tier X-Ms-Access-Tier-Inferred "+
		"X-Ms-Delete-Type-Permanent X-Ms-Has-Immutability-Policy X-Ms-Has-Legal-Hold status root"),
		"list @ContainerName", "list @ServiceEndpoint", "list Blobs", "list Containers")
	usualValues = []string{
		`""`, "[]", "empty", "unlocked", "available", "quoted version 0 from the last", "date of the last write", serviceVersion,
		"application/octet-stream", "application/xml", "multipart/mixed", "hBotaJrYa9FhFEdFPCLG/A==",
	}
)

// summary returns the emulator's answer, without what every such answer has.
func (v *verdict) summary(home string) string {
	var w strings.Builder
	w.WriteString(v.outcome(inEmulator))
	facts := v.facts[inEmulator]
	bodyCode := "code " + v.reply[inEmulator].header.Get("X-Ms-Error-Code")
	for _, fact := range slices.Sorted(maps.Keys(facts)) {
		name, value := strings.TrimPrefix(fact, "header "), shorten(facts[fact])
		n, ofItem := itemOf(name)
		ofItem = ofItem && (n >= 10 || strings.Contains(name, " header ") || strings.HasSuffix(name, " type"))
		if ofItem || slices.Contains(usualFacts, name) || strings.Contains(name, " Properties/") ||
			value == bodyCode || slices.Contains(usualValues, value) {
			continue
		}
		fmt.Fprintf(&w, " | %s: %s", name, value)
	}
	return strings.ReplaceAll(w.String(), home, "HOME")
}
