package emulator

import (
	"bytes"
	"errors"
	"net/http"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"
)

// FuzzRecord decodes arbitrary bytes as each kind of record. Decoding must not panic, and an accepted record
// must survive encoding and decoding.
func FuzzRecord(f *testing.F) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 5, time.UTC)
	b := &blob{
		name: "a", body: []byte("body"), metadata: packMetadata(map[string]string{"k": "v", "l": ""}), version: 7, created: now, modified: now,
		content: &content{mediaType: "text/plain", tier: "Cool"},
	}
	f.Add(b.encode())
	f.Add((&blob{}).encode())
	f.Add((&container{version: 3, modified: now, metadata: b.metadata}).encode())
	f.Add(encodeHead(9, 2))
	f.Add(appendTime(nil, now))
	f.Add(bytes.Repeat([]byte{0xff}, 40))
	f.Fuzz(func(t *testing.T, payload []byte) {
		if b, err := decodeBlob("a", payload); err == nil {
			again, err := decodeBlob("a", b.encode())
			if err != nil || !reflect.DeepEqual(b, again) {
				t.Errorf("%+v is read again as %+v, %v", b, again, err)
			}
		}
		if ct, err := decodeContainer("a", payload); err == nil {
			again, err := decodeContainer("a", ct.encode())
			if err != nil || ct.version != again.version || !ct.modified.Equal(again.modified) || ct.metadata != again.metadata {
				t.Errorf("%+v is read again as %+v, %v", ct, again, err)
			}
		}
		if versions, count, err := decodeHead(payload); err == nil {
			if v, c, err := decodeHead(encodeHead(versions, count)); err != nil || v != versions || c != count {
				t.Errorf("%d, %d is read again as %d, %d, %v", versions, count, v, c, err)
			}
		}
		// A sealed record is valid only in its place.
		if got, err := unseal(seal(payload, "x", "y"), "x", "y"); err != nil || !bytes.Equal(got, payload) {
			t.Errorf("unsealed as %q, %v", got, err)
		}
		for _, place := range [][]string{{"x"}, {"xy"}, {"y", "x"}} {
			if _, err := unseal(seal(payload, "x", "y"), place...); err == nil {
				t.Errorf("a record was found at %q", place)
			}
		}
		if len(payload) < 4 {
			if _, err := unseal(payload); err == nil {
				t.Errorf("%q is no record", payload)
			}
		}
	})
}

func TestNewerSchemaIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "blobs")
	s, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	head := encodeHead(1, 0)
	head[0]++
	err = s.state.file.db.Update(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte(bucketHead)).Put([]byte(keyHead), seal(head, bucketHead, keyHead))
	})
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); !errors.Is(err, errNewer) || errors.Is(err, errDamaged) {
		t.Errorf("got %v", err)
	}
}

// TestWriteThatTheDiskRefuses limits the size of the file, like a full disk.
func TestWriteThatTheDiskRefuses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "blobs")
	s, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	s.Put("plans", "a", []byte("first"), nil)
	before, _ := s.Blob("plans", "a")
	put := func(body string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://localhost/"+DefaultAccount+"/plans/a", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer token")
		req.Header.Set("x-ms-blob-type", "BlockBlob")
		resp, err := s.Transport().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, resp.Header.Get("x-ms-error-code")
	}
	unchanged := func() {
		t.Helper()
		if b, _ := s.Blob("plans", "a"); !reflect.DeepEqual(b, before) {
			t.Errorf("stored is %+v", b)
		}
	}
	s.state.file.db.MaxSize = 1 << 16
	for _, body := range []string{strings.Repeat("x", 1<<20), "small"} {
		if status, code := put(body); status != http.StatusInternalServerError || code != codeInternalError {
			t.Errorf("answered with %d %s", status, code)
		}
		unchanged()
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(path); err != nil {
		t.Fatal(err)
	}
	unchanged()
	if status, _ := put("second"); status != http.StatusCreated {
		t.Errorf("after opening again: %d", status)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
