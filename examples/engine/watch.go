package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/planvault/azblob"
)

// silence is how long an account may fail to answer before watch says so. The vault itself retries for much
// longer.
const silence = 2 * time.Second

// watch calls say when an account does not answer, and when it answers again. It is safe for concurrent use.
type watch struct {
	account string
	say     func(string)

	mu       sync.Mutex
	timer    *time.Timer // runs from the start and from the first failure
	answered bool        // the last try was answered
	told     bool
	last     error
}

// newWatch returns a watch that waits for a first answer.
func newWatch(account string, say func(string)) *watch {
	w := &watch{account: account, say: say}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(silence, w.complain)
	return w
}

func (w *watch) observer() azblob.Observer {
	return azblob.Observer{
		Request: func(_ context.Context, r azblob.RequestEvent) { w.note(r.Err, r.RequestID != "" && r.Status < 500) },
		Retry:   func(_ context.Context, r azblob.RetryEvent) { w.note(r.Err, false) },
	}
}

// note records the outcome of a try.
func (w *watch) note(err error, answered bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answered = answered
	if err != nil {
		w.last = err
	}
	switch {
	case answered && w.told:
		w.told = false
		w.say(w.account + " answers again")
	case !answered && !w.told && w.timer == nil:
		w.timer = time.AfterFunc(silence, w.complain)
	}
}

// complain is called when silence has passed. It says that the account does not answer, unless it did
// meanwhile.
func (w *watch) complain() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = nil
	if w.answered {
		return
	}
	w.told = true
	text := fmt.Sprintf("%s has not answered for %v; trying again", w.account, silence)
	if w.last != nil {
		text += ": " + w.last.Error()
	}
	w.say(text)
}

// stop silences the watch.
func (w *watch) stop() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answered = true
	if w.timer != nil {
		w.timer.Stop()
	}
	return nil
}
