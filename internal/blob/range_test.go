package blob

import (
	"strings"
	"testing"

	"github.com/planvault/azblob/emulator"
)

// TestGetRange reads parts of a blob, of one version of it, and what is no part of it.
func TestGetRange(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		ref, body := Ref{"box", "b"}, strings.Repeat("0123456789", 1000)
		etag, err := w.Put(t.Context(), ref, []byte(body), map[string]string{WriteID: "1", "state": "built"}, IfNew)
		must(t, err)
		w.server.Inject(emulator.On(emulator.GetBlob).Nth(1).Do(emulator.CutBody(0)), emulator.On(emulator.GetBlob).Nth(3).Do(emulator.Answer(503, "ServerBusy")))
		for _, r := range []struct{ offset, size int }{{0, 1}, {0, 10_000}, {0, 20_000}, {9_999, 5}, {17, 4_000}} {
			got, p, err := w.GetRange(t.Context(), ref, r.offset, r.size, etag)
			if want := body[r.offset:min(r.offset+r.size, len(body))]; err != nil || string(got) != want || p.ETag != etag || p.Metadata["state"] != "built" {
				t.Errorf("%+v: %d bytes, %+v, %v", r, len(got), p, err)
			}
		}
		if _, _, err := w.GetRange(t.Context(), ref, 0, 10, "0x1234"); !Is(err, Mismatch) {
			t.Errorf("another version: %v", err)
		}
		if _, _, err := w.GetRange(t.Context(), ref, 10_000, 10, etag); !Is(err, Refused) {
			t.Errorf("after the end: %v", err)
		}
		if _, _, err := w.GetRange(t.Context(), Ref{"box", "other"}, 0, 10, ""); !Is(err, Absent) {
			t.Errorf("no blob: %v", err)
		}
	})
}
