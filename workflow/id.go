package workflow

import (
	"crypto/sha256"
	"time"

	"github.com/google/uuid"
)

// NewV7 returns a new UUIDv7 (RFC 9562, section 5.7) of the present time. See [NewV7At].
//
// It differs from [uuid.NewV7], whose IDs never go back behind the latest time it has seen: after a clock was
// set wrong for a moment, all later IDs of the process would lie in the future.
func NewV7() uuid.UUID { return NewV7At(time.Now()) }

// NewV7At returns a new UUIDv7 of the time t. An ID has a time between 1970 and the year 10889: a time before counts as the
// first millisecond of these years, and a time after as the last. IDs sort by their times, to a quarter of a microsecond if
// the clock is that precise (RFC 9562, section 6.2, method 3). IDs of one time are random beyond that, so each is new.
func NewV7At(t time.Time) uuid.UUID {
	id := uuid.New() // random, and of the right variant
	setMilliseconds(&id, t)
	fraction := t.Nanosecond() % 1e6 * 512 / 125e3 // of the millisecond, in 4096ths; 1e6*4096 would not fit 32 bits
	id[6] = 0x70 | byte(fraction>>8)
	id[7] = byte(fraction)
	return id
}

// setMilliseconds sets the time of an ID.
func setMilliseconds(id *uuid.UUID, t time.Time) {
	ms := min(max(t.UnixMilli(), 0), 1<<48-1)
	for i := range 6 {
		id[i] = byte(ms >> (40 - 8*i))
	}
}

// NewV7From returns the UUIDv7 of a time and a business key, such as an order's number. The same key at the same
// millisecond gives the same ID, so a submission that is repeated stores no second plan: Create returns an error of kind
// ErrExists. Use a time that belongs to the key, such as that of the order, and keep it, or the day if the key begins with
// one; the vault refuses IDs that lie more than a day ahead. As with [NewV7At], a time before 1970 counts as 1970. Other keys
// give other IDs, except by chance, once in about 2^74.
func NewV7From(t time.Time, key string) uuid.UUID {
	sum := sha256.Sum256([]byte(key))
	id := uuid.UUID(sum[:16])
	setMilliseconds(&id, t)
	id[6], id[8] = 0x70|id[6]&0x0f, 0x80|id[8]&0x3f // the version and the variant
	return id
}

// IsV7 reports whether id is a UUIDv7 of the RFC's variant.
func IsV7(id uuid.UUID) bool {
	return id.Version() == 7 && id.Variant() == uuid.RFC4122
}

// Time returns the time of a UUIDv7, in UTC and whole milliseconds. It returns the zero time for any other
// UUID.
func Time(id uuid.UUID) time.Time {
	if !IsV7(id) {
		return time.Time{}
	}
	var ms int64
	for _, b := range id[:6] { // the first 48 bits are milliseconds since 1970, big-endian
		ms = ms<<8 | int64(b)
	}
	return time.UnixMilli(ms).UTC()
}
