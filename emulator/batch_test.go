package emulator_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/planvault/azblob/emulator"
)

// codes returns the error codes of a batch's items; "" is a success.
func codes(t *testing.T, responses []*container.BatchResponseItem) (all []string) {
	t.Helper()
	for i, item := range responses {
		if item.ContentID == nil || *item.ContentID != i {
			t.Errorf("item %d is about %v", i, item.ContentID)
		}
		var failure *azcore.ResponseError
		switch {
		case item.Error == nil:
			all = append(all, "")
		case errors.As(item.Error, &failure):
			all = append(all, fmt.Sprintf("%d %s", failure.StatusCode, failure.ErrorCode))
		default:
			t.Error(item.Error)
		}
	}
	return all
}

// batchBody returns the body of a batch with the boundary "b".
func batchBody(items ...string) string {
	var w strings.Builder
	for i, item := range items {
		fmt.Fprintf(&w, "--b\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\nContent-ID: %d\r\n\r\n%s\r\n", i, item)
	}
	w.WriteString("--b--\r\n")
	return w.String()
}

func TestBatchRefusals(t *testing.T) {
	const fine = "DELETE /devstoreaccount1/plans/a HTTP/1.1\r\nAuthorization: Bearer x\r\n\r\n"
	for name, body := range map[string]string{
		"empty":           "",
		"no items":        batchBody(),
		"not HTTP":        batchBody("hello"),
		"not a delete":    batchBody("PUT /devstoreaccount1/plans/a HTTP/1.1\r\n\r\n"),
		"container":       batchBody("DELETE /devstoreaccount1/plans?restype=container HTTP/1.1\r\n\r\n"),
		"other container": batchBody(fine, "DELETE /devstoreaccount1/other/a HTTP/1.1\r\n\r\n"),
		"other account":   batchBody("DELETE /other/plans/a HTTP/1.1\r\n\r\n"),
		"batch":           batchBody("POST /devstoreaccount1/plans?restype=container&comp=batch HTTP/1.1\r\n\r\n"),
		"no id":           "--b\r\nContent-Type: application/http\r\n\r\n" + fine + "\r\n--b--\r\n",
		"no end":          "--b\r\nContent-ID: 0\r\n\r\n" + fine,
	} {
		s := emulator.New(emulator.Options{})
		s.Put("plans", "a", nil, nil)
		_, text := raw(t, s, "POST", "/plans?restype=container&comp=batch", body, map[string]string{"Content-Type": "multipart/mixed; boundary=b"})
		if !strings.Contains(text, "InvalidInput") || s.Len("plans") != 1 {
			t.Errorf("%s: got %q", name, text)
		}
		if name == "empty" {
			continue
		}
		if r := s.Requests()[0]; r.Code != "InvalidInput" {
			t.Errorf("%s: the log has %s", name, r)
		}
	}
	s := emulator.New(emulator.Options{})
	s.PutContainer("plans", nil)
	for contentType, code := range map[string]string{"text/plain": "InvalidHeaderValue", "multipart/mixed": "InvalidHeaderValue"} {
		resp, text := raw(t, s, "POST", "/plans?restype=container&comp=batch", batchBody(fine), map[string]string{"Content-Type": contentType})
		if resp.StatusCode != http.StatusAccepted || !strings.Contains(text, code) {
			t.Errorf("%s: got %d, %q", contentType, resp.StatusCode, text)
		}
	}
	resp, _ := raw(t, s, "POST", "/plans?restype=container&comp=batch", batchBody(fine), nil)
	if resp.StatusCode != http.StatusBadRequest {
		t.Errorf("no content type: got %d", resp.StatusCode)
	}
}
