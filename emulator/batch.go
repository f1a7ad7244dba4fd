package emulator

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"
)

// batchLimit is the largest number of requests in a batch.
const batchLimit = 256

// parseBatch parses the items of a batch. https://learn.microsoft.com/rest/api/storageservices/blob-batch
func (s *Server) parseBatch(c *call) *answer {
	contentType := c.http.Header.Get("Content-Type")
	if contentType == "" {
		return failWith("MissingRequiredHeader", "Header: Content-Type.")
	}
	mediaType, params, err := mime.ParseMediaType(contentType)
	if err != nil || mediaType != "multipart/mixed" || params["boundary"] == "" {
		return batchFailure(failWith("InvalidHeaderValue", "Header: Content-Type."))
	}
	reader := multipart.NewReader(bytes.NewReader(c.body), params["boundary"])
	for {
		part, err := reader.NextRawPart()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return batchFailure(fail("InvalidInput"))
		}
		if len(c.items) == batchLimit {
			return batchFailure(fail("ExceedsMaxBatchRequestCount"))
		}
		item, ok := s.parseItem(c, part)
		if !ok {
			return batchFailure(fail("InvalidInput"))
		}
		c.items = append(c.items, item)
	}
	if len(c.items) == 0 {
		return batchFailure(fail("InvalidInput"))
	}
	return nil
}

// parseItem parses one request of a batch.
func (s *Server) parseItem(c *call, part *multipart.Part) (*call, bool) {
	id := part.Header.Get("Content-ID")
	if id == "" || strings.ContainsAny(id, "\r\n") {
		return nil, false
	}
	text, err := io.ReadAll(part)
	if err != nil {
		return nil, false
	}
	// A client may omit the empty line after the headers.
	r, err := http.ReadRequest(bufio.NewReader(io.MultiReader(bytes.NewReader(text), strings.NewReader("\r\n\r\n"))))
	if err != nil {
		return nil, false
	}
	if r.URL.Host != "" {
		return nil, false
	}
	r.Host = c.http.Host
	r.TLS = c.http.TLS
	r.URL.Scheme = c.http.URL.Scheme
	r.Body = http.NoBody
	item := s.parse(c.client, r, nil)
	if item.operation.op != DeleteBlob {
		return nil, false
	}
	if c.container != "" && item.container != c.container {
		return nil, false
	}
	item.contentID = id
	item.version = c.version // items don't carry a version
	item.entry.Op = BatchItem
	return item, true
}

// batch executes the items one after the other. Each one succeeds or fails by itself.
func (s *Server) batch(c *call) *answer {
	outcomes := make([]*answer, len(c.items))
	for i, item := range c.items {
		item.now, item.n, item.manners = c.now, c.n, c.manners
		outcomes[i] = s.doItem(item)
		outcomes[i].finish(item)
	}
	return batchAnswer(c, outcomes)
}

// doItem executes one item, or applies its fault.
func (s *Server) doItem(item *call) *answer {
	var own *answer
	if item.fault == nil || item.fault.applied {
		own = s.execute(item)
	}
	if item.fault != nil {
		return item.fault.answer()
	}
	return own
}

// batchAnswer builds the answer from the outcomes of the items.
func batchAnswer(c *call, outcomes []*answer) *answer {
	a := newAnswer(http.StatusAccepted)
	a.items = outcomes
	a.setParts(c, outcomes)
	return a
}

// batchFailure is the answer to a batch that is refused as a whole: a single part without an item. The
// service and Azurite send it, and the SDK understands it.
func batchFailure(failure *answer) *answer {
	a := newAnswer(http.StatusAccepted)
	a.code = failure.code
	a.failure = failure
	return a
}

// wrapFailure builds the body of the answer to a batch that is refused as a whole.
func (a *answer) wrapFailure(c *call) {
	part := a.failure.copy()
	part.header.Set("Content-Length", strconv.Itoa(len(part.body)))
	part.header.Set("X-Ms-Request-Id", requestID(c.n))
	part.header.Set("X-Ms-Version", c.version)
	a.setParts(c, []*answer{part})
}

// setParts makes answers the parts of a batch's answer.
func (a *answer) setParts(c *call, parts []*answer) {
	var body bytes.Buffer
	w := multipart.NewWriter(&body)
	_ = w.SetBoundary("batchresponse_" + requestID(c.n)) // it is valid, and writes to the buffer don't fail
	for i, part := range parts {
		header := textproto.MIMEHeader{"Content-Type": {"application/http"}}
		if a.failure == nil {
			header["Content-ID"] = []string{c.items[i].contentID}
		}
		p, _ := w.CreatePart(header)
		_, _ = fmt.Fprintf(p, "HTTP/1.1 %d %s\r\n", part.status, http.StatusText(part.status))
		_ = part.header.Write(p)
		_, _ = fmt.Fprintf(p, "\r\n%s\r\n", part.body)
	}
	_ = w.Close()
	a.header.Set("Content-Type", "multipart/mixed; boundary="+w.Boundary())
	a.body = body.Bytes()
}
