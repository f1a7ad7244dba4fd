package firsthour

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/planvault/azblob/internal/blob"
)

// batchKinds are the kinds of deletes in a batch, and the answers to them.
var batchKinds = [...]struct{ what, expected string }{
	{"right ETag", "202"}, {"wrong ETag", "412"}, {"no ETag", "202"}, {"missing blob", "404"},
}

func batches(ctx context.Context, x *trial) {
	const full, few = 256, len(batchKinds)
	own := x.wire.login.Kind()
	x.batch(ctx, own, x.wire, full)
	for _, kind := range []string{blob.KeyLogin, blob.TokenLogin} {
		if kind != own {
			x.cannot("by "+kind, "the login is "+own)
		}
	}
	if why := x.without(blob.KeyLogin); why != "" {
		x.cannot("by a signature of the account or container", why)
		return
	}
	x.batch(ctx, "a signature of the account", x.signed("", "rwdlc", time.Hour/2), few)
	x.batch(ctx, "a signature of the container", x.signed(x.container, "rwdl", time.Hour/2), few)
}

// batch stores blobs, and deletes n in a batch.
func (x *trial) batch(ctx context.Context, by string, w wire, n int) {
	name := func(i int) string { return fmt.Sprintf("%s/batch/%d", x.container, i) }
	puts := each(atOnce, n, func(i int) answer {
		if i%len(batchKinds) == 3 {
			return answer{}
		}
		return x.put(ctx, name(i), nil)
	})
	var body bytes.Buffer
	m := multipart.NewWriter(&body)
	for i, p := range puts {
		var headers []string
		switch i % len(batchKinds) {
		case 0:
			headers = []string{"If-Match", p.etag()}
		case 1:
			headers = []string{"If-Match", `"0x0"`}
		}
		if err := w.item(ctx, m, i, name(i), headers); err != nil {
			x.note("by "+by, err.Error(), "202", false)
			return
		}
	}
	_ = m.Close() // a buffer takes all
	kind := "multipart/mixed; boundary=" + m.Boundary()
	a := w.send(ctx, "POST", x.container+"?restype=container&comp=batch", body.Bytes(), "Content-Type", kind)
	if !a.is("202") {
		x.see("by "+by, a, "202")
		return
	}
	items := a.items(n)
	ok := true
	var seen, expected []string
	for k, kind := range batchKinds {
		var of []answer
		for i := k; i < n; i += len(batchKinds) {
			of = append(of, items[i])
		}
		ok = ok && all(of, kind.expected)
		seen, expected = append(seen, kind.what+" "+tally(of)), append(expected, kind.what+" "+kind.expected)
	}
	x.note("by "+by, strings.Join(seen, ", "), strings.Join(expected, ", "), ok)
}

// item writes a delete, which is authorized as a request of its own.
func (w wire) item(ctx context.Context, m *multipart.Writer, i int, target string, headers []string) error {
	req, err := w.request(ctx, "DELETE", target, nil, headers...)
	if err != nil {
		return err
	}
	req.Header.Del("X-Ms-Version") // the batch has one for all
	if w.login.Kind() == blob.KeyLogin {
		if err := w.login.Authorize(req, time.Now()); err != nil {
			return err
		}
	}
	part, err := m.CreatePart(map[string][]string{
		"Content-Type": {"application/http"}, "Content-Transfer-Encoding": {"binary"}, "Content-ID": {strconv.Itoa(i)},
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(part, "DELETE %s HTTP/1.1\r\nContent-Length: 0\r\n", req.URL.RequestURI())
	_ = req.Header.Write(part)
	_, err = io.WriteString(part, "\r\n")
	return err
}

// items returns the answers to the n items of a batch. An item without an answer has an error.
func (a answer) items(n int) []answer {
	items := make([]answer, n)
	for i := range items {
		items[i].err = fmt.Errorf("the batch lacks it")
	}
	_, params, err := mime.ParseMediaType(a.header.Get("Content-Type"))
	if err != nil {
		return items
	}
	for r := multipart.NewReader(bytes.NewReader(a.body), params["boundary"]); ; {
		part, err := r.NextRawPart()
		if err != nil {
			return items
		}
		i, err := strconv.Atoi(strings.TrimSpace(part.Header.Get("Content-ID")))
		if err != nil || i < 0 || i >= n {
			continue
		}
		resp, err := http.ReadResponse(bufio.NewReader(io.MultiReader(part, strings.NewReader("\r\n\r\n"))), nil)
		if err != nil {
			items[i].err = err
			continue
		}
		body, _ := io.ReadAll(resp.Body)
		items[i] = answer{status: resp.StatusCode, header: resp.Header, body: body}
	}
}
