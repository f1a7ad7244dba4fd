package main

import (
	"fmt"
	"sync"
	"time"

	"github.com/planvault/azblob"
)

// silence is how long an account may fail to answer before a person hears of it. The vault tries for much longer.
const silence = 2 * time.Second

// watch tells a person when an account does not answer, and when it does again. It is safe for concurrent use.
type watch struct {
	account string
	say     func(string)

	mu       sync.Mutex
	timer    *time.Timer // runs from the first failure on, and at the start
	answered bool        // by the last try
	told     bool
	last     error
}

// newWatch returns a watch that waits for a first answer.
func newWatch(account string, say func(string)) *watch {
	w := &watch{account: account, say: say}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(silence, w.tell)
	return w
}

func (w *watch) observer() azblob.Observer {
	return azblob.Observer{
		Request: func(r azblob.Request) { w.note(r.Err, r.RequestID != "" && r.Status < 500) },
		Retry:   func(r azblob.Retried) { w.note(r.Err, false) },
	}
}

// note notes how a try ended.
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
		w.timer = time.AfterFunc(silence, w.tell)
	}
}

// tell is called when there was time enough for an answer.
func (w *watch) tell() {
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

// stop lets the watch say no more.
func (w *watch) stop() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answered = true
	if w.timer != nil {
		w.timer.Stop()
	}
	return nil
}
