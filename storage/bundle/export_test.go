package bundle

import (
	"bytes"
	"context"
	"crypto/sha256"
	"io"

	"github.com/google/uuid"

	"github.com/planvault/azblob/workflow"
)

// Ends returns where the records of the plans in a bundle end.
func Ends(ctx context.Context, r io.Reader) (ends []int, err error) {
	err = each(ctx, r, ImportOptions{Concurrency: 1}, new(VerifyReport), handler{
		begin: ctx.Err,
		do:    func(context.Context, *workflow.Plan) error { return nil },
		done: func(p passed) error {
			ends = append(ends, int(p.next))
			return p.err
		},
	})
	return ends, err
}

// WithFormat returns a bundle of another format.
func WithFormat(format int) ([]byte, error) {
	return written(func(w *writer) {
		w.begin(Manifest{Format: format, Schema: schema})
		w.finish(end{})
	})
}

// WithContent returns a bundle with a whole record of a plan that has any content.
func WithContent(text []byte) []byte { return WithSize(text, len(text)) }

// WithSize is WithContent with a header that says how long the content is.
func WithSize(text []byte, size int) []byte {
	b, err := written(func(w *writer) {
		w.begin(Manifest{Format: format, Schema: schema})
		var id uuid.UUID
		copy(id[:], text)
		w.put(newRecord(kindPlan, id, size, w.encoder.EncodeAll(text, nil)))
		w.finish(end{Plans: 1})
	})
	if err != nil {
		panic(err)
	}
	return b
}

func written(write func(w *writer)) ([]byte, error) {
	encoder, err := newEncoder(1)
	if err != nil {
		return nil, err
	}
	defer encoder.Close()
	var out bytes.Buffer
	w := &writer{w: &out, chain: sha256.New(), encoder: encoder}
	write(w)
	return out.Bytes(), w.err
}
