package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
)

// answering is a service that answers everything with 200.
type answering func(*http.Request) error

func (a answering) Do(req *http.Request) (*http.Response, error) {
	if err := a(req); err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(""))}, nil
}

func TestCrash(t *testing.T) {
	for _, test := range []struct {
		name  string
		crash crash
		sent  []string
		noted []string
	}{
		{"before", crash{entry, 2, false}, []string{"a-entry.json", "x"}, []string{"a-entry.json 200 ", "x 200 ", "b-entry.json 0 not sent: crash"}},
		{"after", crash{entry, 2, true}, []string{"a-entry.json", "x", "b-entry.json"}, []string{"a-entry.json 200 ", "x 200 ", "b-entry.json 200 answer lost: crash"}},
		{"never", crash{object, 1, true}, []string{"a-entry.json", "x", "b-entry.json", "c"}, []string{"a-entry.json 200 ", "x 200 ", "b-entry.json 200 ", "c 200 "}},
	} {
		var sent, noted []string
		w := &wire{
			inner: answering(func(req *http.Request) error {
				sent = append(sent, strings.TrimPrefix(req.URL.Path, "/account/container/"))
				return nil
			}),
			base: "/account/",
			note: func(r request) {
				noted = append(noted, r.Blob+" "+strings.TrimSpace(http.StatusText(r.Status))+" "+r.Remark)
			},
		}
		crashed, err := w.dies(t.Context(), test.crash, func(ctx context.Context) error {
			for _, name := range []string{"a-entry.json", "x", "b-entry.json", "c"} {
				req, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://host/account/container/"+name, nil)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := w.Do(req); err != nil && ctx.Err() == nil {
					t.Errorf("%s: the process lives on after %v", test.name, err)
				}
			}
			return context.Cause(ctx)
		})
		dies := test.name != "never"
		if crashed != dies || dies != errors.Is(err, errCrashed) {
			t.Errorf("%s: crashed is %t, the error %v", test.name, crashed, err)
		}
		for i, n := range test.noted {
			test.noted[i] = strings.NewReplacer(" 200 ", " OK ", " 0 ", "  ").Replace(n)
		}
		if !slices.Equal(sent, test.sent) || !slices.Equal(noted, test.noted) {
			t.Errorf("%s: sent %q, want %q; noted %q, want %q", test.name, sent, test.sent, noted, test.noted)
		}
	}
}

// TestNoSignature sees that the signature of a shared access signature gets into no error and no title.
func TestNoSignature(t *testing.T) {
	w := &wire{
		inner: answering(func(req *http.Request) error {
			return &url.Error{Op: "Put", URL: req.URL.String(), Err: io.EOF}
		}),
		base: "/",
		note: func(request) {},
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "https://a.example/c/b?sv=1&sig=secret", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Do(req); !errors.Is(err, io.EOF) || strings.Contains(err.Error(), "secret") {
		t.Errorf("the error is %v", err)
	}
	target, err := onConnectionString("BlobEndpoint=https://a.example;SharedAccessSignature=sv=1&sig=secret", func() policy.Transporter { return w })
	if err != nil {
		t.Fatal(err)
	}
	if want := "the account at https://a.example"; target.title != want {
		t.Errorf("the title is %q, want %q", target.title, want)
	}
}

func TestTrace(t *testing.T) {
	const plan, a, b = "01890a5d-ac96-774b-bcce-b302099a8057", "01890a5d-ac96-774b-bcce-b302099a8058", "01890a5d-ac96-774b-bcce-b302099a8059"
	put := func(name string, status int) request {
		return request{Method: http.MethodPut, Container: "p-2026-01-02", Blob: name, Status: status}
	}
	var got []string
	for _, l := range trace([]request{
		put("open/"+plan, 201),
		put("actions/"+plan+"/"+a+".json", 201),
		put("plans/"+plan+"-object.json", 201),
		put("actions/"+plan+"/"+b+".json", 201),
		put("actions/"+plan+"/"+b+".json", 409),
		{Method: http.MethodGet, Container: "p-2026-01-02", About: "list plans/", Status: 200},
		{Method: http.MethodGet, Container: "p-2026-01-03", About: "list plans/", Status: 200},
	}) {
		got = append(got, strings.Join(strings.Fields(l.String()), " "))
	}
	want := []string{
		"PUT open/<plan> 201",
		"PUT actions/<plan>/… x 2 201",
		"PUT plans/<plan>-object.json 201",
		"PUT actions/<plan>/… 409",
		"GET list plans/ x 2 in 2 containers 200",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
