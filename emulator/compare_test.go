package emulator_test

import (
	"bufio"
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/planvault/azblob/emulator"
)

// facts is the content of an answer in a form in which equal answers of the two services have equal texts.
// Every header is a fact, except those in notCompared.
type facts map[string]string

// notCompared are headers that don't belong to the answer of the service.
var notCompared = []string{
	"Connection", "Keep-Alive", // of the connection
	"Server", // each names itself
}

// memory is what a run of requests remembers. It numbers the versions of a resource, because each service assigns
// ETags of its own.
type memory struct {
	home     string                 // the container of the case
	n        int                    // of requests
	last     [2][2]*reply           // the answers to the last two writes
	next     pair                   // the marker of the last page
	versions [2]map[string][]string // by resource: the bare ETags of its writes
	dates    [2]map[string]string   // by resource: Last-Modified of its last write
}

func newMemory(home string) *memory {
	m := &memory{home: home}
	for on := range m.versions {
		m.versions[on], m.dates[on] = make(map[string][]string), make(map[string]string)
	}
	return m
}

// wrote records the version that a write has created.
func (m *memory) wrote(on side, resource string, r *reply) {
	if tag := r.header.Get("Etag"); tag != "" {
		m.versions[on][resource] = append(m.versions[on][resource], strings.Trim(tag, `"`))
	}
	m.dates[on][resource] = r.header.Get("Last-Modified")
	m.last[on] = [2]*reply{m.last[on][1], r}
}

func (m *memory) version(on side, resource, tag string) string {
	form, bare := "bare", strings.Trim(tag, `"`)
	if strings.HasPrefix(tag, `"`) && strings.HasSuffix(tag, `"`) {
		form = "quoted"
	}
	all := m.versions[on][resource]
	switch i := slices.Index(all, bare); i {
	case -1:
		return form + " unknown version"
	default:
		return fmt.Sprintf("%s version %d from the last", form, len(all)-1-i)
	}
}

func (m *memory) date(on side, resource, date string) string {
	if _, err := http.ParseTime(date); err != nil {
		return "no date: " + date
	}
	if known, ok := m.dates[on][resource]; !ok || known != date {
		return "date of another write"
	}
	return "date of the last write"
}

// resource returns what a request is about.
func (a *ask) resource() string { return a.container + "/" + a.blob }

// writes reports whether the request creates a version if it succeeds.
func (a *ask) writes() bool {
	switch a.op {
	case emulator.PutBlob, emulator.CreateContainer, emulator.SetContainerMetadata:
		return true
	default:
		return false
	}
}

// facts returns the facts of an answer.
func (m *memory) facts(a *ask, s *endpoint, on side, r *reply) facts {
	if a.writes() && r.status < 300 {
		m.wrote(on, a.resource(), r)
	}
	f := facts{"status": strconv.Itoa(r.status)}
	m.headers(f, "", a, on, r)
	if a.method == http.MethodHead || r.status == http.StatusNotModified {
		f["body"] = strconv.Quote(string(r.body))
		return f
	}
	mediaType := r.header.Get("Content-Type")
	switch {
	case r.status >= 400:
		f["body"] = errorBody(r.body)
	case a.op == emulator.GetBlob:
		f["body"] = strconv.Quote(string(r.body))
	case strings.HasPrefix(mediaType, "multipart/mixed"):
		m.batch(f, a, on, mediaType, r.body)
	case strings.HasPrefix(mediaType, "application/xml"):
		m.listing(f, a, s, on, r.body)
		m.next[on] = nextMarker(r.body)
	default:
		f["body"] = strconv.Quote(string(r.body))
	}
	return f
}

// headers adds the headers of an answer, or of an item of a batch.
func (m *memory) headers(f facts, prefix string, a *ask, on side, r *reply) {
	for name, values := range r.header {
		if slices.Contains(notCompared, name) {
			continue
		}
		value := strings.Join(values, ", ")
		switch name {
		case "Date":
			value = isDate(value)
		case "X-Ms-Request-Id":
			value = "present"
		case "Etag":
			value = m.version(on, a.resource(), value)
		case "Last-Modified", "X-Ms-Creation-Time": // an overwrite resets it
			value = m.date(on, a.resource(), value)
		case "Content-Length":
			// Azurite sends most bodies in chunks, without a length.
			if r.status >= 300 || a.op != emulator.GetBlob && a.op != emulator.HeadBlob {
				continue
			}
		case "Content-Type":
			if mediaType, _, err := mime.ParseMediaType(value); err == nil && mediaType == "multipart/mixed" {
				value = mediaType
			}
		}
		f[prefix+"header "+name] = value
	}
}

func isDate(value string) string {
	if _, err := http.ParseTime(value); err != nil {
		return "no date: " + value
	}
	return "a date"
}

// errorBody returns the error code in a body.
func errorBody(body []byte) string {
	if len(body) == 0 {
		return "none"
	}
	var e struct {
		XMLName xml.Name `xml:"Error"`
		Code    string
		Message string
	}
	if err := xml.Unmarshal(body, &e); err != nil {
		return "no XML: " + shorten(string(body))
	}
	if e.Message == "" {
		return "code " + e.Code + ", no message"
	}
	return "code " + e.Code
}

// batch adds the items of the answer to a batch.
func (m *memory) batch(f facts, a *ask, on side, mediaType string, body []byte) {
	_, params, err := mime.ParseMediaType(mediaType)
	if err != nil {
		f["body"] = err.Error()
		return
	}
	reader := multipart.NewReader(bytes.NewReader(body), params["boundary"])
	n := 0
	for ; ; n++ {
		part, err := reader.NextRawPart()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			f["body"] = err.Error()
			return
		}
		m.part(f, fmt.Sprintf("item %d ", n), a, n, on, part)
	}
	f["items"] = strconv.Itoa(n)
}

func (m *memory) part(f facts, prefix string, a *ask, n int, on side, part *multipart.Part) {
	f[prefix+"id"] = part.Header.Get("Content-ID")
	f[prefix+"type"] = part.Header.Get("Content-Type")
	// Azurite omits the empty line after the headers.
	resp, err := http.ReadResponse(bufio.NewReader(io.MultiReader(part, strings.NewReader("\r\n\r\n"))), nil)
	if err != nil {
		f[prefix+"body"] = err.Error()
		return
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		f[prefix+"body"] = err.Error()
		return
	}
	f[prefix+"status"] = strconv.Itoa(resp.StatusCode)
	of := &ask{op: emulator.BatchItem}
	if n < len(a.items) {
		of.container, of.blob = a.items[n].container, a.items[n].blob
	}
	m.headers(f, prefix, of, on, &reply{status: resp.StatusCode, header: resp.Header})
	f[prefix+"body"] = errorBody(bytes.TrimSpace(body))
}

// node is an XML element.
type node struct {
	XMLName  xml.Name
	Attrs    []xml.Attr `xml:",any,attr"`
	Text     string     `xml:",chardata"`
	Children []*node    `xml:",any"`
}

// parseXML returns the root of a document, which has nothing after it.
func parseXML(body []byte) (*node, error) {
	d := xml.NewDecoder(bytes.NewReader(body))
	root := &node{}
	if err := d.Decode(root); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("after the root: %w", err)
	}
	return root, nil
}

// child returns the first child with a name, or an empty node.
func (n *node) child(name string) *node {
	for _, c := range n.Children {
		if c.XMLName.Local == name {
			return c
		}
	}
	return &node{}
}

// listing adds the items of a listing. Blobs are compared in their order, and so are prefixes. The order of
// blobs among prefixes is not compared, because clients get them separately.
func (m *memory) listing(f facts, a *ask, s *endpoint, on side, body []byte) {
	root, err := parseXML(body)
	if err != nil {
		f["body"] = err.Error()
		return
	}
	f["root"] = root.XMLName.Local
	for _, a := range root.Attrs {
		name, value := a.Name.Local, a.Value
		if name == "ServiceEndpoint" {
			value = strings.Replace(value, s.url, "ACCOUNT", 1)
		}
		f["list @"+name] = value
	}
	var blobs, prefixes []string
	for _, c := range root.Children {
		switch c.XMLName.Local {
		case "Blobs", "Containers":
			for _, entry := range c.Children {
				name := entry.child("Name")
				label := strings.ToLower(entry.XMLName.Local) + " " + name.Text + " "
				if len(name.Attrs) > 0 {
					f[label+"Name attributes"] = fmt.Sprint(name.Attrs)
				}
				if entry.XMLName.Local == "BlobPrefix" {
					prefixes = append(prefixes, name.Text)
				} else {
					blobs = append(blobs, name.Text)
				}
				resource := a.container + "/" + name.Text
				if entry.XMLName.Local == "Container" {
					resource = name.Text + "/"
				}
				for _, x := range entry.Children {
					if x.XMLName.Local == "Name" {
						continue
					}
					m.entry(f, label+x.XMLName.Local, x, resource, on)
				}
			}
			f["list "+c.XMLName.Local] = "present"
		case "NextMarker":
			if c.Text == "" {
				f["list NextMarker"] = "empty"
			} else {
				f["list NextMarker"] = "more"
			}
		case "Marker":
			f["list Marker"] = "none"
			if c.Text != "" {
				f["list Marker"] = "as sent"
				if !slices.ContainsFunc(a.query, func(q param) bool { return q.name == "marker" && q.value[on] == c.Text }) {
					f["list Marker"] = "another: " + c.Text
				}
			}
		default:
			if len(c.Children) > 0 {
				m.entry(f, "list "+c.XMLName.Local, c, "", on)
			} else {
				f["list "+c.XMLName.Local] = c.Text
			}
		}
	}
	f["list names"] = fmt.Sprintf("%q", blobs)
	f["list prefixes"] = fmt.Sprintf("%q", prefixes)
}

// entry adds what a listing says about a blob or a container.
func (m *memory) entry(f facts, label string, x *node, resource string, on side) {
	if len(x.Children) > 0 {
		for _, c := range x.Children {
			m.entry(f, label+"/"+c.XMLName.Local, c, resource, on)
		}
		return
	}
	switch x.XMLName.Local {
	case "Etag":
		f[label] = m.version(on, resource, x.Text)
	case "Last-Modified", "Creation-Time":
		f[label] = m.date(on, resource, x.Text)
	case "AccessTierChangeTime":
		f[label] = isDate(x.Text)
	default:
		f[label] = strconv.Quote(x.Text)
	}
}

// nextMarker returns the marker for the next page, or "".
func nextMarker(body []byte) string {
	root, err := parseXML(body)
	if err != nil {
		return ""
	}
	return root.child("NextMarker").Text
}

// difference is a fact on which the services differ; "" is a missing fact.
type difference struct {
	fact              string
	azurite, emulator string
}

func (d difference) String() string {
	say := func(v string) string {
		if v == "" {
			return "nothing"
		}
		return v
	}
	return fmt.Sprintf("%s: Azurite %s, emulator %s", d.fact, say(d.azurite), say(d.emulator))
}

// differences compares two answers.
func differences(azurite, emulated facts) []difference {
	names := make(map[string]bool)
	for name := range azurite {
		names[name] = true
	}
	for name := range emulated {
		names[name] = true
	}
	var all []difference
	for _, name := range slices.Sorted(maps.Keys(names)) {
		// What is left of a lease: each service counts from the moment at which it got the request.
		left := strings.HasSuffix(name, "header X-Ms-Lease-Time") && min(azurite[name], emulated[name]) > "0"
		if azurite[name] != emulated[name] && !left {
			all = append(all, difference{name, azurite[name], emulated[name]})
		}
	}
	return all
}
