package web

import (
	"net/url"
	"reflect"
	"slices"
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
