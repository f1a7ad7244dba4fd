package web

import (
	"net/url"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage/driver"
)

// FuzzQuery checks that a form survives as an address, which the links from page to page rely on, and that nothing
// but times and IDs can be wrong with it.
func FuzzQuery(f *testing.F) {
	for _, form := range []string{
		"", "status=Failed&status=none", "prefix=a&contains=b&group=c", "after=2026-01-01&before=2026-01-01T03:00&ended-after=x",
		"page=0198c0de-0000-7000-8000-000000000001", "prefix=%ff%00", "prefix=+a+", "%zz", "prefix=%e2%80",
	} {
		f.Add(form)
	}
	f.Fuzz(func(t *testing.T, form string) {
		v, _ := url.ParseQuery(form)
		q := parseQuery(v)
		address := q.Encode()
		again, err := url.ParseQuery(address)
		if err != nil {
			t.Fatal(err)
		}
		if got := parseQuery(again); got.Encode() != address {
			t.Errorf("%q became %q and then %q", form, address, got.Encode())
		}
		filters, err := q.filters()
		if err == nil {
			if again, _ := parseQuery(again).filters(); !reflect.DeepEqual(again, filters) {
				t.Errorf("%q selects %+v, and its address %+v", form, filters, again)
			}
			_ = driver.CheckFilters(filters) // must not panic
		}
	})
}

// TestEveryFilterIsInTheForm fails if a field of the filters can't be set in the form.
func TestEveryFilterIsInTheForm(t *testing.T) {
	form := url.Values{"status": {"Failed"}}
	for _, f := range append(fields, page) {
		for _, text := range []string{"2026-11-22", uuid.NewString(), "a=b"} { // each field accepts one of them
			if alone := (query{url.Values{f.Name: {text}}}); form[f.Name] == nil {
				if _, err := alone.filters(); err == nil {
					form.Set(f.Name, text)
				}
			}
		}
	}
	got, err := parseQuery(form).filters()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range reflect.VisibleFields(reflect.TypeOf(got)) {
		if !slices.Contains(got.Fields(), f.Name) && f.Name != "ByIDs" { // the page finds a plan by its ID
			t.Errorf("nothing in the form sets %s", f.Name)
		}
	}
}

// TestQuote lets a shell read what was quoted.
func TestQuote(t *testing.T) {
	for _, word := range []string{"a", "", "it's", "a b", "$(id) `id` $HOME", "a\nb", `\"*?[]~!#&;|<>()`, "--prefix", "https://a/b?c=d&e"} {
		got, err := exec.CommandContext(t.Context(), "sh", "-c", "printf %s "+quote(word)).Output()
		if err != nil || string(got) != word {
			t.Errorf("%q is read as %q, %v", word, got, err)
		}
	}
}

func TestFormAsText(t *testing.T) {
	for form, want := range map[string]string{
		"": "", "status=failed&contains=checkout": "failed, name contains checkout", "status=Stopped&status=NotStarted": "not started or stopped",
		"id=0005f255&label=env%3Dprod": "ID contains 0005f255, labels env=prod", "after=2026-11-22": "created after 2026-11-22",
		"contains=" + strings.Repeat("x", 500): "name contains " + strings.Repeat("x", 60) + "…",
	} {
		v, _ := url.ParseQuery(form)
		if got := parseQuery(v).String(); got != want {
			t.Errorf("%q is %q, not %q", form, got, want)
		}
	}
}

func TestPartsOfIDs(t *testing.T) {
	for text, want := range map[string]bool{
		"5779f255": true, "1ca0-7467": true, "5779F2": true, "5779f": false, "deadbeef": false, "release 5779f255": false, "2.0.1": false,
		strings.Repeat("1", 33): false,
	} {
		if isPart(text) != want {
			t.Errorf("%q is a part of an ID: %t", text, !want)
		}
	}
}

// TestAge has the ages that the script of the pages must show in the same way.
func TestAge(t *testing.T) {
	now := time.Now()
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 900 * time.Millisecond: "0s", 1900 * time.Millisecond: "1s", 59*time.Second + 999*time.Millisecond: "59s",
		time.Minute: "1m00s", 61*time.Minute + 5*time.Second: "1h01m", 47*time.Hour + 59*time.Minute: "47h59m", 49 * time.Hour: "2d01h",
	} {
		if got := age(now, now.Add(-d)); got != want {
			t.Errorf("%v is %s, want %s", d, got, want)
		}
	}
}
