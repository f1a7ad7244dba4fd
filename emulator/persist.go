package emulator

import (
	"bytes"
	"encoding/gob"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// Open returns an account that is kept in a file, a bbolt database. It creates the file if needed; the
// directory must exist. The options are those of [New]. They are not kept in the file.
//
// Each write is in the file before it is answered, so answered writes survive the process, however it ends.
// They may not survive a power failure, because the file is not synced. Open restores containers with their
// metadata and leases, and blobs with their ETags, times and metadata. No ETag is used twice. Faults, the log,
// late requests, policies and the names of deleted containers are not kept. Bodies are held in memory, too.
//
// If a write can't be stored, its answer is 500 InternalError and it has no effect. [Server.Put] and other
// methods without an answer panic.
//
// Only one server can use a file at a time: Open fails at once if another one does, in any process. Open also
// fails if the file is damaged or is not a file of the emulator. Call [Server.Close] when done.
func Open(path string, o Options) (*Server, error) {
	s := New(o)
	// bbolt tries once if the timeout is shorter than its pause between two tries.
	options := &bbolt.Options{Timeout: time.Millisecond, NoSync: true, NoGrowSync: true, NoFreelistSync: true}
	db, err := bbolt.Open(path, 0o600, options)
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		err = errors.New("another server, in this process or another one, has the file open; close it, or use another file")
	case err == nil:
		err = errors.Join(db.Update(createBuckets), db.View(s.state.load))
		if err != nil {
			err = errors.Join(err, db.Close())
		}
	}
	if err != nil {
		return nil, fmt.Errorf("emulator: open %q: %w", path, err)
	}
	s.state.file = db
	return s, nil
}

// Close closes the file of a server from [Open]. Later reads are answered from memory, and later writes with
// 500 InternalError. Closing twice, or closing a server from [New], does nothing. Close a [Listener] first.
func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state.file == nil {
		return nil
	}
	return s.state.file.Close()
}

// The buckets of the file. containerBucket maps the name of a container to the container; its sequence is the
// last ETag in use. blobBucket has a bucket for each container, which maps the name of a blob to the blob.
var (
	containerBucket = []byte("containers")
	blobBucket      = []byte("blobs")
)

func createBuckets(tx *bbolt.Tx) error {
	_, err := tx.CreateBucketIfNotExists(containerBucket)
	_, also := tx.CreateBucketIfNotExists(blobBucket)
	return errors.Join(err, also)
}

// store makes a change in the file.
func (c change) store(tx *bbolt.Tx) error {
	containers, blobs, name := tx.Bucket(containerBucket), tx.Bucket(blobBucket), []byte(c.container)
	if err := containers.SetSequence(uint64(c.versions)); err != nil {
		return err
	}
	switch {
	case c.self != nil && c.removed:
		return errors.Join(containers.Delete(name), blobs.DeleteBucket(name))
	case c.self != nil:
		_, err := blobs.CreateBucketIfNotExists(name)
		return errors.Join(err, put(containers, c.container, c.self))
	case c.removed:
		return blobs.Bucket(name).Delete([]byte(c.blob.Name))
	default:
		return put(blobs.Bucket(name), c.blob.Name, c.blob)
	}
}

func put[T any](b *bbolt.Bucket, name string, value *T) error {
	var w bytes.Buffer
	if err := gob.NewEncoder(&w).Encode(value); err != nil {
		return err
	}
	return b.Put([]byte(name), w.Bytes())
}

// each yields the values of a bucket.
func each[T any](b *bbolt.Bucket, yield func(*T)) error {
	return b.ForEach(func(name, data []byte) error {
		value := new(T)
		if err := gob.NewDecoder(bytes.NewReader(data)).Decode(value); err != nil {
			return fmt.Errorf("%q is damaged: %w", name, err)
		}
		yield(value)
		return nil
	})
}

// load adds everything in a file to an empty state.
func (s *state) load(tx *bbolt.Tx) error {
	s.versions = etag(tx.Bucket(containerBucket).Sequence())
	err := each(tx.Bucket(containerBucket), func(ct *container) { s.apply(change{container: ct.Name, self: ct}) })
	s.containers.Ascend(func(ct *container) bool {
		err = errors.Join(err, each(tx.Bucket(blobBucket).Bucket([]byte(ct.Name)), func(b *blob) {
			s.apply(change{container: ct.Name, blob: b})
		}))
		return true
	})
	return err
}
