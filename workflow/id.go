package workflow

import (
	"time"

	"github.com/google/uuid"
)

// NewV7 returns a new UUIDv7 (RFC 9562, section 5.7): IDs sort by their time of creation, in milliseconds.
func NewV7() uuid.UUID {
	// NewV7 fails only when the system's random source does, which crypto/rand turns into a crash since Go 1.24.
	return uuid.Must(uuid.NewV7())
}

// IsV7 says whether id is a UUIDv7 of the RFC's variant.
func IsV7(id uuid.UUID) bool {
	return id.Version() == 7 && id.Variant() == uuid.RFC4122
}

// Time returns the time inside a UUIDv7, in UTC and whole milliseconds; the zero time for any other UUID.
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
