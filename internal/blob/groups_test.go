package blob

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/planvault/azblob/emulator"
)

// names are the blobs of the tests of groups.
var names = []string{"p/0-1", "p/0-2", "p/1-1", "p/1-2-3", "p/2", "p/3-1"}

// TestListGroups expects each group once, and names without a delimiter, with pages of any size.
func TestListGroups(t *testing.T) {
	for _, limit := range []int{1, 2, 5000} {
		inWorld(t, func(t *testing.T, w *world) {
			for _, name := range []string{"0", "a/1", "a/2", "a/b/3", "ab", "b/1", "z"} {
				w.server.Put("box", name, nil, nil)
			}
			for prefix, want := range map[string][]string{
				"": {"0", "a/", "ab", "b/", "z"}, "a": {"a/", "ab"}, "a/": {"a/1", "a/2", "a/b/"}, "x": nil,
			} {
				got, _, err := all(w.ListGroups(t.Context(), "box", ListOptions{Prefix: prefix}, "/"))
				slices.Sort(got)
				if err != nil || !slices.Equal(got, want) {
					t.Errorf("%q by pages of %d: got %q, want %q, %v", prefix, limit, got, want, err)
				}
			}
			_, _, err := all(w.ListGroups(t.Context(), "no-such-box", ListOptions{}, "/"))
			wantError(t, "no container", err, AbsentContainer, false)
		}, emulator.Options{PageLimit: limit})
	}
}

// listedGroups returns the groups of a listing.
func listedGroups(t *testing.T, c *Client, delimiter string) []string {
	t.Helper()
	got, _, err := all(c.ListGroups(t.Context(), "box", ListOptions{Prefix: "p/", StartFrom: "p/0-2"}, delimiter))
	must(t, err)
	slices.Sort(got)
	return got
}

// TestGroupsWithoutDelimiter lists groups of a service that refuses the delimiter, ignores it, or groups by
// another one. The groups are the same. The client asks for them once only.
func TestGroupsWithoutDelimiter(t *testing.T) {
	want := []string{"p/0-", "p/1-", "p/2", "p/3-"}
	for what, ask := range map[string]func(req *http.Request, next sender) (*http.Response, error){
		"groups": func(req *http.Request, next sender) (*http.Response, error) { return next(req) },
		"refused": func(req *http.Request, next sender) (*http.Response, error) {
			return nil, answer(http.StatusBadRequest, "UnsupportedQueryParameter")
		},
		"a conflict": func(req *http.Request, next sender) (*http.Response, error) {
			return nil, answer(http.StatusConflict, "FeatureNotSupportedHere")
		},
		"ignored": func(req *http.Request, next sender) (*http.Response, error) {
			return made(page(blobNamed("<Name>p/0-2</Name>", "") + blobNamed("<Name>p/1-1</Name>", ""))), nil
		},
		"a slash": func(req *http.Request, next sender) (*http.Response, error) {
			return made(page("<BlobPrefix><Name>p/0-2/</Name></BlobPrefix>")), nil
		},
	} {
		for _, limit := range []int{1, 2, 5000} {
			inWorld(t, func(t *testing.T, w *world) {
				for _, name := range names {
					w.server.Put("box", name, nil, nil)
				}
				asked := 0
				c := w.over(t, func(req *http.Request, next sender) (*http.Response, error) {
					if req.URL.Query().Get("delimiter") != "-" {
						return next(req)
					}
					asked++
					return ask(req, next)
				})
				for range 2 {
					if got := listedGroups(t, c, "-"); !slices.Equal(got, want) {
						t.Errorf("%s by pages of %d: %q", what, limit, got)
					}
				}
				if what != "groups" && asked != 1 {
					t.Errorf("%s by pages of %d: asked %d times", what, limit, asked)
				}
			}, emulator.Options{PageLimit: limit})
		}
	}
}

// TestGroupsOfAHierarchy lists groups on an account with a hierarchical namespace. Directories are no blobs.
func TestGroupsOfAHierarchy(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		for _, name := range append(names, "d/e/f") {
			w.server.Put("box", name, nil, nil)
		}
		w.server.Remove("box", "d/e/f")
		if got := listedGroups(t, w.Client, "-"); !slices.Equal(got, []string{"p/0-", "p/1-", "p/2", "p/3-"}) {
			t.Errorf("groups: %q", got)
		}
		if got, _, err := all(w.List(t.Context(), "box", ListOptions{})); err != nil || !slices.Equal(got, names) {
			t.Errorf("blobs: %q, %v", got, err)
		}
		if got, _, err := all(w.ListGroups(t.Context(), "box", ListOptions{}, "/")); err != nil || !slices.Equal(got, []string{"d/", "p/"}) {
			t.Errorf("directories: %q, %v", got, err)
		}
	}, emulator.Options{HierarchicalNamespace: true})
}

// TestGroupsDenied lists groups without the right to. The client does not conclude that the service can't
// group.
func TestGroupsDenied(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.server.Put("box", "p/0-1", nil, nil)
		w.server.Inject(emulator.On(emulator.ListBlobs).Nth(1).Do(emulator.Answer(http.StatusForbidden, "AuthorizationFailure")))
		_, _, err := all(w.ListGroups(t.Context(), "box", ListOptions{}, "-"))
		wantError(t, "denied", err, Refused, false)
		listedGroups(t, w.Client, "-")
		if log := w.server.Requests(); len(log) != 2 || log[1].Delimiter != "-" {
			t.Errorf("%v", log)
		}
	})
}

// made returns an answer of the service with this page.
func made(page string) *http.Response {
	return &http.Response{
		StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(page)), ContentLength: int64(len(page)),
		Header: http.Header{"X-Ms-Request-Id": {"1"}, "X-Ms-Version": {"2026-02-06"}, "Content-Type": {"application/xml"}},
	}
}
