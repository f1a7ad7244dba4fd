package firsthour

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/planvault/azblob/internal/blob"
)

// wire sends requests as they are, each once, until its context ends.
type wire struct {
	ctx     context.Context
	login   *blob.Login
	cannot  string // why there is no such login, or ""
	version string
	late    time.Duration       // how far the dates of requests are behind
	spoil   func(*http.Request) // damages an authorized request; may be nil
	sent    func(blob.Class)    // is called before each request
}

// Limits of an answer: the time until it has arrived, the bytes of its body, and the pages of a listing, which may be
// empty.
const (
	answerLimit = 30 * time.Second
	maxBody     = 16 << 20
	maxPages    = 100
)

// send sends a request to a target such as "container/blob?comp=metadata". Headers are pairs of names and values.
func (w wire) send(method, target string, body []byte, headers ...string) answer {
	ctx, cancel := context.WithTimeout(w.ctx, answerLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, w.login.URL(target).String(), bytes.NewReader(body))
	if err != nil {
		return answer{err: errors.New("the target is malformed")} // err quotes the signature in the URL
	}
	req.Header["X-Ms-Version"] = []string{w.version}
	if len(body) > 0 {
		req.Header.Set("Content-Length", strconv.Itoa(len(body))) // which the signature covers
	}
	if path, query, _ := strings.Cut(target, "?"); method == http.MethodPut && strings.Contains(path, "/") && !strings.Contains(query, "comp=") {
		req.Header["X-Ms-Blob-Type"] = []string{"BlockBlob"}
	}
	for pair := range slices.Chunk(headers, 2) {
		req.Header[pair[0]] = pair[1:]
	}
	if err := w.login.Authorize(req, time.Now().Add(-w.late)); err != nil {
		return answer{err: err}
	}
	if w.spoil != nil {
		w.spoil(req)
	}
	w.sent(blob.ClassOf(req))
	resp, err := w.login.Do(req)
	if err != nil {
		return answer{err: err}
	}
	defer resp.Body.Close()
	read, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	code := cmp.Or(resp.Header.Get("X-Ms-Error-Code"), blob.CodeOf(read))
	return answer{resp.StatusCode, strings.TrimSpace(fmt.Sprint(resp.StatusCode, " ", code)), resp.Header, read, err}
}

// list returns a listing with all pages in one. Blobs, groups and containers are items.
func (w wire) list(target string) (names []string, items []blob.Item, err error) {
	for page, marker := 0, ""; page < maxPages; page++ {
		a := w.send("GET", target+"&marker="+url.QueryEscape(marker), nil)
		if !a.is("200") {
			return nil, nil, errors.New(a.String())
		}
		var some []blob.Item
		some, marker, err = blob.ReadPage(a.body)
		for _, item := range some {
			names, items = append(names, item.Name), append(items, item)
		}
		if err != nil || marker == "" {
			return names, items, err
		}
	}
	return nil, nil, fmt.Errorf("no end after %d pages", maxPages)
}

// answer is an answer of the service, or why there is none.
type answer struct {
	status int
	text   string // the status and the code in the header, or else in the body
	header http.Header
	body   []byte
	err    error
}

// is reports whether the answer has one of some outcomes and comes from the service.
func (a answer) is(outcomes string) bool {
	return a.err == nil && a.header.Get("X-Ms-Request-Id") != "" && oneOf(a.text, outcomes)
}

// oneOf reports whether a text such as "409 BlobAlreadyExists" is one of some outcomes, such as "201 or 409".
func oneOf(text, outcomes string) bool {
	is := func(outcome string) bool { return text == outcome || strings.HasPrefix(text, outcome+" ") }
	return slices.ContainsFunc(strings.Split(outcomes, " or "), is)
}

// String returns the status and the code, and the marks of the service that the answer lacks, or why there is no answer.
func (a answer) String() string {
	if a.err != nil {
		return "no answer: " + a.err.Error()
	}
	text, lacks := a.text, []string(nil)
	if a.header.Get("X-Ms-Request-Id") == "" {
		text += " without x-ms-request-id"
	}
	if a.header.Get("X-Ms-Version") == "" {
		lacks = append(lacks, "no version")
	}
	if a.status >= http.StatusMultipleChoices && a.header.Get("X-Ms-Error-Code") == "" {
		lacks = append(lacks, map[bool]string{true: "code in the body", false: "no code"}[strings.Contains(a.text, " ")])
	}
	kind, _, err := mime.ParseMediaType(a.header.Get("Content-Type"))
	if err == nil && a.status >= http.StatusMultipleChoices && kind != "application/xml" && len(a.body) > 0 {
		lacks = append(lacks, kind)
	}
	if len(lacks) > 0 {
		text += " (" + strings.Join(lacks, ", ") + ")"
	}
	return text
}

// each makes n requests, a number of them at a time. It returns the answers, and their texts.
func each(atOnce, n int, send func(i int) answer) ([]answer, []string) {
	answers, texts := make([]answer, n), make([]string, n)
	slots := make(chan struct{}, atOnce)
	var requests sync.WaitGroup
	for i := range n {
		slots <- struct{}{}
		requests.Go(func() {
			answers[i] = send(i)
			texts[i] = answers[i].String()
			<-slots
		})
	}
	requests.Wait()
	return answers, texts
}

// tally counts texts, such as "15 × 201, 1 × 404 ContainerNotFound". If all are alike, it returns that text.
func tally(texts []string) string {
	counts := map[string]int{}
	for _, text := range texts {
		counts[text]++
	}
	var parts []string
	for _, text := range slices.Sorted(maps.Keys(counts)) {
		if len(counts) == 1 {
			return text
		}
		parts = append(parts, fmt.Sprintf("%d × %s", counts[text], text))
	}
	return strings.Join(parts, ", ")
}
