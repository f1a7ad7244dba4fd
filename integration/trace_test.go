package main

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/planvault/azblob"
)

// TestNoSignature checks that the signature of a shared access signature appears in no error and no title.
func TestNoSignature(t *testing.T) {
	err := redact(&url.Error{Op: "Put", URL: "https://a.example/c/b?sv=1&sig=secret", Err: io.EOF})
	if !errors.Is(err, io.EOF) || strings.Contains(err.Error(), "secret") {
		t.Errorf("the error is %v", err)
	}
	target, err := onConnectionString("BlobEndpoint=https://a.example;SharedAccessSignature=sv=1&sig=secret", newHTTPClient)
	if err != nil {
		t.Fatal(err)
	}
	if want := "the account at https://a.example"; target.title != want {
		t.Errorf("the title is %q, want %q", target.title, want)
	}
}

func TestTrace(t *testing.T) {
	const plan, a, b = "01890a5d-ac96-774b-bcce-b302099a8057", "01890a5d-ac96-774b-bcce-b302099a8058", "01890a5d-ac96-774b-bcce-b302099a8059"
	put := func(name string, status int) azblob.RequestEvent {
		return azblob.RequestEvent{Name: "put", Method: http.MethodPut, Container: "p-2026-01-02", Blob: name, Status: status}
	}
	list := func(container string) azblob.RequestEvent {
		return azblob.RequestEvent{Name: "list", Method: http.MethodGet, Container: container, Blob: "plans/", Status: 200}
	}
	var got []string
	for _, l := range trace([]azblob.RequestEvent{
		put("open/"+plan, 201),
		put("actions/"+plan+"/"+a+".json", 201),
		put("plans/"+plan+"-object.json", 0),
		put("actions/"+plan+"/"+b+".json", 201),
		put("actions/"+plan+"/"+b+".json", 409),
		list("p-2026-01-02"), list("p-2026-01-03"),
	}) {
		got = append(got, strings.Join(strings.Fields(l.String()), " "))
	}
	want := []string{
		"PUT open/<plan> 201",
		"PUT actions/<plan>/… x 2 201",
		"PUT plans/<plan>-object.json no answer",
		"PUT actions/<plan>/… 409",
		"GET list plans/ x 2 in 2 containers 200",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
