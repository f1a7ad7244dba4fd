package listing

import (
	"bytes"
	"encoding/binary"
	"time"

	"github.com/google/uuid"
)

// A key is the first half of an ID: 48 bits of milliseconds and 16 others. The first 8 digits of an ID name its minute,
// which has 65.5 seconds. These are how many keys a unit has.
const (
	Millisecond = 1 << 16
	Minute      = 1 << 32
	day         = 24 * 60 * 60 * 1000 * Millisecond
)

// KeyOf returns the key of an ID.
func KeyOf(id uuid.UUID) uint64 { return binary.BigEndian.Uint64(id[:8]) }

// IDOf returns the first ID with a key.
func IDOf(key uint64) (id uuid.UUID) {
	binary.BigEndian.PutUint64(id[:8], key)
	return id
}

// FirstID returns an ID that sorts before those of a time, and after those of earlier milliseconds. The nearest time
// that a UUIDv7 can hold stands for a time that it can't.
func FirstID(t time.Time) uuid.UUID {
	const last = 1<<48 - 1
	var ms uint64
	switch { // Go has times whose milliseconds overflow
	case t.After(time.UnixMilli(last)):
		ms = last
	case t.After(time.UnixMilli(0)):
		ms = uint64(t.UnixMilli())
	}
	return IDOf(ms * Millisecond)
}

// Less reports whether an ID sorts before another.
func Less(a, b uuid.UUID) bool { return bytes.Compare(a[:], b[:]) < 0 }

// Next returns the first ID that sorts after another.
func Next(id uuid.UUID) uuid.UUID {
	for i := len(id) - 1; i >= 0; i-- {
		if id[i]++; id[i] != 0 {
			break
		}
	}
	return id
}

// Span is a range of IDs. It has From and not To.
type Span struct{ From, To uuid.UUID }

// Unit returns the size of the groups of a span.
func (s Span) Unit() uint64 {
	if s.InOne(Minute) {
		return Millisecond
	}
	return Minute
}

// InOne reports whether all IDs of the span are of one minute, or of one millisecond.
func (s Span) InOne(size uint64) bool { return KeyOf(s.From)/size == s.last()/size }

// last returns the key of the last ID of the span.
func (s Span) last() uint64 {
	key := KeyOf(s.To)
	if s.To == IDOf(key) {
		return key - 1
	}
	return key
}

// share returns the part of a day that lies in the span and before now.
func (s Span) share(now time.Time) float64 {
	from, to := KeyOf(s.From), min(KeyOf(s.To), KeyOf(FirstID(now)))
	if to <= from { // written by a clock ahead
		to = KeyOf(s.To)
	}
	return float64(max(1, to-from)) / day
}
