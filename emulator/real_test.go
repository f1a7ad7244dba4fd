package emulator_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/planvault/azblob/emulator"
)

// TestRealDates counts how often Date is before the Last-Modified of the same answer.
func TestRealDates(t *testing.T) {
	behind := map[time.Duration]int{}
	s := emulator.New(emulator.Options{RealAnswers: 1})
	s.PutContainer("plans", nil)
	for range 1000 {
		resp, _ := raw(t, s, "PUT", "/plans/b", "body", map[string]string{"x-ms-blob-type": "BlockBlob"})
		date, err := http.ParseTime(resp.Header.Get("Date"))
		must(t, err)
		modified, err := http.ParseTime(resp.Header.Get("Last-Modified"))
		must(t, err)
		behind[modified.Sub(date)]++
	}
	if n := behind[time.Second]; n < 400 || n > 460 || behind[2*time.Second] == 0 || len(behind) != 3 {
		t.Errorf("Date is behind Last-Modified by %v", behind)
	}
}

// TestRealPages lists blobs and containers with the SDK. Each is listed once, whatever the pages.
func TestRealPages(t *testing.T) {
	onBothWires(t, func(t *testing.T, s *emulator.Server, c *container.Client) {
		var names, want []string
		for i := range 500 {
			want = append(want, fmt.Sprintf("b%03d", i))
			s.Put("plans", want[i], nil, nil)
		}
		var resp *http.Response
		sizes := map[int]int{}
		for p := c.NewListBlobsFlatPager(&container.ListBlobsFlatOptions{MaxResults: to.Ptr(int32(10))}); p.More(); {
			page, err := p.NextPage(policy.WithCaptureResponse(t.Context(), &resp))
			must(t, err)
			for _, b := range page.Segment.BlobItems {
				names = append(names, *b.Name)
			}
			sizes[len(page.Segment.BlobItems)]++
			if resp.ContentLength >= 0 || resp.Header.Get("Content-Length") != "" {
				t.Errorf("the page announces its length")
			}
		}
		if !slices.Equal(names, want) || sizes[0] == 0 || len(sizes) < 4 || sizes[10] < 30 {
			t.Errorf("listed %d blobs on pages of sizes %v", len(names), sizes)
		}
		if _, text := raw(t, s, "GET", "/?comp=list", "", nil); !strings.HasPrefix(text, "\ufeff<?xml") {
			t.Errorf("the listing begins with %.20q", text)
		}
	}, emulator.Options{RealAnswers: 2})
}

// TestRealBatches deletes a blob that exists and one that does not.
func TestRealBatches(t *testing.T) {
	onBothWires(t, func(t *testing.T, s *emulator.Server, c *container.Client) {
		s.Put("plans", "a", nil, nil)
		answer, err := deleteBatch(t, c, "a", "missing")
		must(t, err)
		for _, item := range answer.Responses {
			if *item.Version != "2018-11-09" || item.RequestID == nil {
				t.Errorf("item %d: %+v", *item.ContentID, item)
			}
		}
		want(t, answer.Responses[1].Error, http.StatusNotFound, "BlobNotFound")
	}, emulator.Options{RealAnswers: 3})
	s := emulator.New(emulator.Options{RealAnswers: 4})
	s.PutContainer("plans", nil)
	resp, text := raw(t, s, "POST", "/plans?restype=container&comp=batch", batchBody("DELETE /devstoreaccount1/plans/a HTTP/1.1\r\nAuthorization: Bearer x\r\n\r\n"),
		map[string]string{"Content-Type": "multipart/mixed; boundary=b"})
	if !strings.Contains(text, "\r\n\r\n\ufeff<?xml") || strings.Contains(text, "\r\nDate:") || resp.Header.Get("X-Ms-Version") != "2026-12-06" {
		t.Errorf("%v, %q", resp.Header, text)
	}
}

// TestRealRefusals checks which marks each refusal lacks, always or half of the time.
func TestRealRefusals(t *testing.T) {
	newer := map[string]string{"x-ms-version": "2027-01-01"}
	put := map[string]string{"x-ms-version": "2027-01-01", "x-ms-blob-type": "BlockBlob"}
	nobody := map[string]string{"Authorization": ""}
	const code, version = "X-Ms-Error-Code", "X-Ms-Version"
	for _, tc := range []struct {
		method, path      string
		header            map[string]string
		status            int
		never, half, html string
	}{
		{"HEAD", "/plans/a?timeout=x", nil, 400, code + version, "", ""},
		{"GET", "/plans/a", newer, 400, code + version, "", ""},
		{"HEAD", "/plans/a", newer, 400, code + version, "", ""},
		{"PUT", "/plans/a", put, 400, code + version, "", ""},
		{"PUT", "/plans/a", nil, 400, "", "", ""},
		{"GET", "/plans/a", nobody, 401, "", version, ""},
		{"GET", "/plans/missing", nil, 404, "", code, ""},
		{"HEAD", "/plans/missing", nil, 404, "", "", ""},
		{"DELETE", "/plans/missing", nil, 404, "", "", ""},
	} {
		t.Run(fmt.Sprint(tc.method, tc.path, tc.status, tc.header["x-ms-version"]), func(t *testing.T) {
			s := emulator.New(emulator.Options{RealAnswers: 5})
			s.Put("plans", "a", nil, nil)
			has, html := map[string]int{}, 0
			for range 40 {
				resp, text := raw(t, s, tc.method, tc.path, "", tc.header)
				if resp.StatusCode != tc.status || resp.Header.Get("X-Ms-Request-Id") == "" || resp.Header.Get("Date") == "" {
					t.Fatalf("got %d with %v", resp.StatusCode, resp.Header)
				}
				for _, name := range []string{code, version} {
					has[name] += len(resp.Header[name])
				}
				html += strings.Count(text, "<html>")
			}
			for _, name := range []string{code, version} {
				never, half := strings.Contains(tc.never, name), strings.Contains(tc.half, name)
				if n := has[name]; never != (n == 0) || half != (n > 5 && n < 35) {
					t.Errorf("%d of 40 have %s", n, name)
				}
			}
			if (html > 0 && html < 40) != (tc.html != "") {
				t.Errorf("%d of 40 are HTML", html)
			}
		})
	}
}
