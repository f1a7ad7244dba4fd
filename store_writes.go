package azblob

import (
	"context"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/blob"
)

// A conditional write has a writeid, by which a vault recognizes its own write when the outcome was unknown.

// written is a write that took effect.
type written struct {
	write
	id   string // its writeid
	etag string
}

// put writes a blob with a new writeid. If the outcome is unknown, the store remembers the writeid. The same write then
// uses it again, and so recognizes a blob that the first attempt has written. The store forgets the writeid when a
// write with it has a certain outcome.
func (s *store) put(ctx context.Context, ref blob.Ref, body []byte, cond blob.Condition, metadata func(writeID string) (map[string]string, error)) (written, error) {
	w := written{write: write{ref, cond, body}}
	w.id = s.unknown.take(w.write)
	again := w.id != ""
	if !again {
		w.id = uuid.NewString()
	}
	m, err := metadata(w.id)
	if err != nil {
		return w, err
	}
	w.etag, err = s.client.Put(ctx, ref, body, m, cond)
	if blob.IsUnknown(err) || again && !settled(err) {
		s.unknown.keep(w.write, w.id)
	}
	return w, err
}

// settled reports whether the outcome of a request also settles an earlier request for the same version: the request
// took effect, or that version is no longer there.
func settled(err error) bool {
	return err == nil || blob.Is(err, blob.Mismatch, blob.Absent, blob.AbsentContainer)
}
