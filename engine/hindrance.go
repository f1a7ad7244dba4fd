package engine

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
)

// hindrance is why the writes of a plan are being repeated.
type hindrance struct {
	err  error
	told bool
	next time.Time // when to tell
}

// tellAfter is how long a hindrance lasts before anybody is told, and tellInterval how often they are.
const tellAfter, tellInterval = 10 * time.Second, time.Minute

// hindered notes that a write of a plan failed and is repeated, or, if err is nil, that the last one succeeded.
func (e *Engine) hindered(ctx context.Context, plan uuid.UUID, err error) {
	text, tell := e.noteHindrance(plan, err)
	if tell == nil {
		return
	}
	e.opts.Observer.Hindered(ctx, HinderedEvent{plan, err})
	tell(text)
}

// report sets who says elsewhere what hinders the engine, or nobody.
func (e *Engine) report(tell func(string)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.tell = tell
}

// noteHindrance returns what hinders the engine now and whom to tell, or nobody if that is known.
func (e *Engine) noteHindrance(plan uuid.UUID, err error) (text string, tell func(string)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if tell = e.tell; tell == nil {
		tell = func(string) {}
	}
	h := e.hindrances[plan]
	switch {
	case err == nil && h == nil:
		return "", nil
	case err == nil:
		if delete(e.hindrances, plan); !h.told {
			return "", nil
		}
	case h == nil:
		e.hindrances[plan] = &hindrance{err: err, next: time.Now().Add(tellAfter)}
		return "", nil
	case time.Now().Before(h.next):
		return "", nil
	default:
		*h = hindrance{err, true, time.Now().Add(tellInterval)}
	}
	return e.allHindrancesLocked(), tell
}

// allHindrancesLocked returns the first of the hindrances that were told, and the number of the others.
func (e *Engine) allHindrancesLocked() string {
	var told []uuid.UUID
	for id, h := range e.hindrances {
		if h.told {
			told = append(told, id)
		}
	}
	if len(told) == 0 {
		return ""
	}
	first := slices.MinFunc(told, func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) })
	text := fmt.Sprintf("plan %s: %v", first, e.hindrances[first].err)
	if more := len(told) - 1; more > 0 {
		text += fmt.Sprintf("; and %d more plans", more)
	}
	return text
}
