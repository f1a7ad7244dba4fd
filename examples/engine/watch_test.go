package main

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/planvault/azblob"
)

// TestWatch checks that silence is reported once, within 3 seconds, and so is its end.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said []string
		begun := time.Now()
		w := newWatch("acc", func(text string) {
			said = append(said, fmt.Sprint(time.Since(begun).Truncate(time.Second), " ", text))
		})
		o := w.observer()
		wait := func(d time.Duration) {
			time.Sleep(d)
			synctest.Wait()
		}
		fails := func() {
			o.Request(t.Context(), azblob.RequestEvent{Err: errors.New("refused")})
			o.Retry(t.Context(), azblob.RetryEvent{Err: errors.New("refused")})
		}
		wait(10 * time.Second) // no answer and no error
		o.Request(t.Context(), azblob.RequestEvent{Status: 404, RequestID: "r"})
		wait(10 * time.Second)
		fails() // at 20s
		wait(time.Second)
		o.Request(t.Context(), azblob.RequestEvent{Status: 200, RequestID: "r"})
		wait(9 * time.Second)
		fails() // at 30s
		wait(time.Second)
		o.Request(t.Context(), azblob.RequestEvent{Status: 200}) // by a proxy
		o.Retry(t.Context(), azblob.RetryEvent{Err: errors.New("no answer of the service's")})
		wait(time.Second)
		o.Request(t.Context(), azblob.RequestEvent{Status: 503, RequestID: "r"})
		wait(time.Second)
		o.Request(t.Context(), azblob.RequestEvent{Status: 201, RequestID: "r"})
		fails() // at 33s
		if err := w.stop(); err != nil {
			t.Error(err)
		}
		wait(time.Minute)
		want := []string{
			"2s acc has not answered for 2s; trying again",
			"10s acc answers again",
			"32s acc has not answered for 2s; trying again: no answer of the service's",
			"33s acc answers again",
		}
		if !slices.Equal(said, want) {
			t.Errorf("got  %q\nwant %q", said, want)
		}
	})
}
