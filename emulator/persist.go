package emulator

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"
)

// Open returns an account that is kept in a file. It creates the file if needed; the directory must exist.
// The options are those of [New]. They are not kept in the file.
//
// Each write is committed to the file and synced before it is answered, so answered writes survive the
// process and a power failure. Open restores ETags, times, metadata, content headers, digests and deletions
// of containers under way, and no ETag is used twice. Faults, the log and late requests are not kept. Bodies
// are held in memory, too. Writes are committed one at a time. The end of a context does not interrupt a
// commit.
//
// If a write can't be made durable, its answer is 500 InternalError and it has no effect. All later writes
// fail the same way until the file is opened again. [Server.Put] and other methods without an answer panic.
// If the disk fails in the middle of a commit, the write may exist when the file is opened again, but only as
// a whole.
//
// Only one server can use a file at a time: Open fails at once if another one does, in any process. Open also
// fails if the file is damaged or is not a file of the emulator, and then leaves it unchanged. Call
// [Server.Close] when done.
func Open(path string, opts ...Option) (*Server, error) {
	s := New(opts...)
	stored, err := openFile(path)
	if err != nil {
		return nil, fmt.Errorf("emulator: open %q: %w", path, err)
	}
	s.state = stored
	return s, nil
}

// Close closes the file of a server from [Open] after the commit under way. Later reads are answered from
// memory, and later writes with 500 InternalError. Closing twice, or closing a server from [New], does
// nothing. Close a [Listener] first.
func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.file.close()
}

// The file is a bbolt database with the buckets below. A value is a record: a CRC of its place and of its
// content, and the content, which consists of fields in a fixed order.
//
//	emulator/head             schema, last ETag, number of containers and blobs
//	containers/<name>/self    a container
//	containers/<name>/b<blob> a blob; its body is at the end of the record
//	deleted/<name>            the time from which the name can be used again
const (
	bucketHead       = "emulator"
	bucketContainers = "containers"
	bucketDeleted    = "deleted"
	keyHead          = "head"
	keySelf          = "self"
	prefixBlob       = "b"
)

// fileSchema is the version of this format.
const fileSchema = 1

// file keeps a state. A nil file keeps nothing. The server's lock guards it.
type file struct {
	db    *bbolt.DB
	count uint64 // containers and blobs
	stop  error  // why no more writes are possible
}

var (
	errClosed  = errors.New("the server is closed; open its file again")
	errDamaged = errors.New("the file is damaged or not a file of the emulator; restore a copy, or remove the file to start empty")
	errNewer   = errors.New("the file was written by a newer emulator; use that version")
	errInUse   = errors.New("another server, in this process or another one, has the file open; close it, or use another file")
)

// openFile opens or creates a file and returns its content.
func openFile(path string) (state, error) {
	if path == "" {
		return state{}, errors.New("the path is empty; use New for a server in memory")
	}
	_, err := os.Stat(path)
	isNew := errors.Is(err, fs.ErrNotExist)
	f := &file{}
	// If bbolt panics here, the file stays locked until the process ends.
	err = guard(func() (err error) {
		f.db, err = bbolt.Open(path, 0o600, &bbolt.Options{
			Timeout:      1, // 0 would wait for the other server
			FreelistType: bbolt.FreelistMapType,
		})
		return err
	})
	var system syscall.Errno
	switch {
	case errors.Is(err, bbolterrors.ErrTimeout):
		return state{}, errInUse
	case errors.As(err, &system):
		return state{}, err
	case errors.Is(err, errDamaged):
		return state{}, err
	case err != nil:
		return state{}, fmt.Errorf("%w (%w)", errDamaged, err)
	}
	stored := newState()
	err = guard(func() error { return f.load(&stored) })
	if err == nil && isNew {
		err = syncDirectory(filepath.Dir(path))
	}
	if err != nil {
		return state{}, errors.Join(err, f.db.Close())
	}
	stored.file = f
	return stored, nil
}

// syncDirectory makes the name of a new file durable.
func syncDirectory(path string) error {
	if runtime.GOOS == "windows" {
		return nil // Windows can't sync a directory
	}
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// guard turns panics into errors, including those that come from reading memory beyond the end of the file:
// bbolt maps the file into memory and trusts its content.
func guard(do func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w (%v)", errDamaged, r)
		}
	}()
	return do()
}

func (f *file) close() error {
	if f == nil || f.db == nil {
		return nil
	}
	err := f.db.Close()
	f.db, f.stop = nil, errClosed
	return err
}

// commit makes a change durable. added is the number of containers and blobs that it adds.
func (f *file) commit(versions etag, added int, change func(*bbolt.Tx) error) error {
	if f == nil {
		return nil
	}
	if f.stop != nil {
		return f.stop
	}
	count := f.count + uint64(added) // a negative number wraps around twice
	var refused error
	err := guard(func() error {
		return f.db.Update(func(tx *bbolt.Tx) error {
			if refused = change(tx); refused == nil {
				refused = tx.Bucket([]byte(bucketHead)).Put([]byte(keyHead), seal(encodeHead(versions, count), bucketHead, keyHead))
			}
			return refused
		})
	})
	switch {
	case refused != nil:
		return fmt.Errorf("the file refuses the write: %w", refused)
	case err != nil:
		// Nobody knows what the disk contains now.
		f.stop = fmt.Errorf("a write could not be made durable: %w; check the disk, then close the server and open its file again", err)
		return f.stop
	}
	f.count = count
	return nil
}

// putContainer stores a container without its blobs.
func (f *file) putContainer(ct *container, versions etag, added int) error {
	return f.commit(versions, added, func(tx *bbolt.Tx) error {
		if err := tx.Bucket([]byte(bucketDeleted)).Delete([]byte(ct.name)); err != nil {
			return err
		}
		b, err := tx.Bucket([]byte(bucketContainers)).CreateBucketIfNotExists([]byte(ct.name))
		if err != nil {
			return err
		}
		return b.Put([]byte(keySelf), seal(ct.encode(), bucketContainers, ct.name, keySelf))
	})
}

// removeContainer removes a container with its blobs and holds its name until a point in time. The zero time
// does not hold it.
func (f *file) removeContainer(ct *container, versions etag, until time.Time) error {
	return f.commit(versions, -1-ct.blobs.Len(), func(tx *bbolt.Tx) error {
		if err := tx.Bucket([]byte(bucketContainers)).DeleteBucket([]byte(ct.name)); err != nil || until.IsZero() {
			return err
		}
		return tx.Bucket([]byte(bucketDeleted)).Put([]byte(ct.name), seal(appendTime(nil, until), bucketDeleted, ct.name))
	})
}

func (f *file) putBlob(ct *container, b *blob, versions etag, added int) error {
	return f.commit(versions, added, func(tx *bbolt.Tx) error {
		key := prefixBlob + b.name
		return tx.Bucket([]byte(bucketContainers)).Bucket([]byte(ct.name)).
			Put([]byte(key), seal(b.encode(), bucketContainers, ct.name, key))
	})
}

func (f *file) removeBlob(ct *container, name string, versions etag) error {
	return f.commit(versions, -1, func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte(bucketContainers)).Bucket([]byte(ct.name)).Delete([]byte(prefixBlob + name))
	})
}

// load reads everything into an empty state. It creates the buckets of a new file.
func (f *file) load(s *state) error {
	isNew := false
	err := f.db.View(func(tx *bbolt.Tx) error {
		if k, _ := tx.Cursor().First(); k == nil {
			isNew = true
			return nil
		}
		// bbolt's own check is useless here: it runs in a goroutine without guard, and some damage makes it
		// run forever.
		err := f.read(tx, s)
		if err == nil {
			err = checkPages(tx)
		}
		if err != nil && !errors.Is(err, errNewer) {
			err = fmt.Errorf("%w (%w)", errDamaged, err)
		}
		return err
	})
	if err != nil || !isNew {
		return err
	}
	return f.db.Update(func(tx *bbolt.Tx) error {
		for _, name := range []string{bucketHead, bucketContainers, bucketDeleted} {
			if _, err := tx.CreateBucket([]byte(name)); err != nil {
				return err
			}
		}
		return tx.Bucket([]byte(bucketHead)).Put([]byte(keyHead), seal(encodeHead(0, 0), bucketHead, keyHead))
	})
}

// checkPages checks that no page extends beyond the file. bbolt would trust such a page when it frees it.
func checkPages(tx *bbolt.Tx) error {
	for id, end := 0, int(tx.Size())/tx.DB().Info().PageSize; id < end; id++ {
		page, err := tx.Page(id)
		if err != nil {
			return err
		}
		if page.Type == "free" {
			continue // its size is out of date
		}
		if id += page.OverflowCount; id >= end {
			return fmt.Errorf("page %d ends at %d, behind the end of the file at %d", page.ID, id, end)
		}
	}
	return nil
}

func (f *file) read(tx *bbolt.Tx, s *state) error {
	head, containers, deleted := tx.Bucket([]byte(bucketHead)), tx.Bucket([]byte(bucketContainers)), tx.Bucket([]byte(bucketDeleted))
	if head == nil || containers == nil || deleted == nil {
		return errors.New("a bucket is missing")
	}
	payload, err := unseal(head.Get([]byte(keyHead)), bucketHead, keyHead)
	if err != nil {
		return err
	}
	if s.versions, f.count, err = decodeHead(payload); err != nil {
		return err
	}
	var found uint64
	if err := containers.ForEachBucket(func(name []byte) error {
		ct, err := readContainer(string(name), containers.Bucket(name))
		if err != nil {
			return err
		}
		found += 1 + uint64(ct.blobs.Len())
		s.containers.ReplaceOrInsert(ct)
		return nil
	}); err != nil {
		return err
	}
	if found != f.count {
		return fmt.Errorf("%d containers and blobs were found, want %d", found, f.count)
	}
	return deleted.ForEach(func(name, value []byte) error {
		payload, err := unseal(value, bucketDeleted, string(name))
		if err != nil {
			return err
		}
		r := fields{rest: payload}
		s.deleted[string(name)] = r.time()
		return r.end("deleted container " + string(name))
	})
}

func readContainer(name string, bucket *bbolt.Bucket) (*container, error) {
	payload, err := unseal(bucket.Get([]byte(keySelf)), bucketContainers, name, keySelf)
	if err != nil {
		return nil, err
	}
	ct, err := decodeContainer(name, payload)
	if err != nil {
		return nil, err
	}
	return ct, bucket.ForEach(func(k, value []byte) error {
		key := string(k)
		if key == keySelf {
			return nil
		}
		payload, err := unseal(value, bucketContainers, name, key)
		if err != nil {
			return err
		}
		b, err := decodeBlob(key[len(prefixBlob):], payload)
		if err != nil {
			return err
		}
		ct.blobs.ReplaceOrInsert(b)
		return nil
	})
}

// checksum returns the checksum of a record. It includes the record's place, so that no record is taken for
// another.
func checksum(payload []byte, place []string) uint32 {
	table := crc32.MakeTable(crc32.Castagnoli)
	var sum uint32
	for _, name := range place {
		sum = crc32.Update(sum, table, appendText(nil, name))
	}
	return crc32.Update(sum, table, payload)
}

// seal returns a record.
func seal(payload []byte, place ...string) []byte {
	record := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(payload)), checksum(payload, place))
	return append(record, payload...)
}

// unseal returns the content of a record. The result shares the memory of the file.
func unseal(record []byte, place ...string) ([]byte, error) {
	if len(record) < 4 || binary.BigEndian.Uint32(record) != checksum(record[4:], place) {
		return nil, fmt.Errorf("the checksum of %q does not match", place)
	}
	return record[4:], nil
}

func encodeHead(versions etag, count uint64) []byte {
	p := binary.AppendUvarint(nil, fileSchema)
	p = binary.AppendUvarint(p, uint64(versions))
	return binary.AppendUvarint(p, count)
}

func decodeHead(payload []byte) (versions etag, count uint64, err error) {
	r := fields{rest: payload}
	if schema := r.number(); schema != fileSchema && !r.bad {
		return 0, 0, fmt.Errorf("%w (its schema is %d, this version reads %d)", errNewer, schema, fileSchema)
	}
	versions, count = etag(r.number()), r.number()
	return versions, count, r.end("head")
}

func (ct *container) encode() []byte {
	p := binary.AppendUvarint(nil, uint64(ct.version))
	p = appendTime(p, ct.modified)
	p = appendMetadata(p, ct.metadata)
	if ct.lease.id == "" {
		return p
	}
	p = appendText(p, ct.lease.id)
	p = binary.AppendUvarint(p, uint64(ct.lease.duration))
	p = appendTime(p, ct.lease.until)
	return strconv.AppendBool(p, ct.lease.broken)
}

func decodeContainer(name string, payload []byte) (*container, error) {
	ct, r := newContainer(name), fields{rest: payload}
	ct.version, ct.modified, ct.metadata = etag(r.number()), r.time(), r.metadata()
	if len(r.rest) > 0 {
		ct.lease = r.lease()
	}
	return ct, r.end("container " + name)
}

func (b *blob) encode() []byte {
	h := b.headers()
	p := make([]byte, 0, 128+len(b.metadata)+len(b.body))
	p = binary.AppendUvarint(p, uint64(b.version))
	p = appendTime(appendTime(p, b.created), b.modified)
	p = append(p, b.md5[:]...)
	for _, text := range []string{h.mediaType, h.encoding, h.language, h.disposition, h.cacheControl, h.tier} {
		p = appendText(p, text)
	}
	p = appendMetadata(p, b.metadata)
	return append(p, b.body...)
}

func decodeBlob(name string, payload []byte) (*blob, error) {
	b, r := &blob{name: name}, fields{rest: payload}
	b.version, b.created, b.modified = etag(r.number()), r.time(), r.time()
	copy(b.md5[:], r.bytes(uint64(len(b.md5))))
	var h content
	for _, text := range []*string{&h.mediaType, &h.encoding, &h.language, &h.disposition, &h.cacheControl, &h.tier} {
		*text = r.text()
	}
	if h != (content{mediaType: defaultMediaType}) {
		b.content = &h
	}
	b.metadata = r.metadata()
	b.body = bytes.Clone(r.bytes(uint64(len(r.rest))))
	return b, r.end("blob " + name)
}

func appendText(p []byte, text string) []byte {
	return append(binary.AppendUvarint(p, uint64(len(text))), text...)
}

// appendTime appends a point in time. Reading it returns UTC.
func appendTime(p []byte, t time.Time) []byte {
	return binary.AppendUvarint(binary.AppendVarint(p, t.Unix()), uint64(t.Nanosecond()))
}

func appendMetadata(p []byte, m metadata) []byte {
	all := m.unpack()
	p = binary.AppendUvarint(p, uint64(len(all)))
	for name, value := range m.all() {
		p = appendText(appendText(p, name), value)
	}
	return p
}

// fields reads what the append functions wrote. Fields that can't be read are zero, and end reports the
// error.
type fields struct {
	rest []byte
	bad  bool
}

// end returns an error if a field could not be read or if data is left over.
func (r *fields) end(what string) error {
	if r.bad || len(r.rest) > 0 {
		return fmt.Errorf("the record of %s is malformed", what)
	}
	return nil
}

// bytes returns a slice of the record's memory.
func (r *fields) bytes(n uint64) []byte {
	if r.bad || n > uint64(len(r.rest)) {
		r.bad = true
		return nil
	}
	var b []byte
	b, r.rest = r.rest[:n], r.rest[n:]
	return b
}

func (r *fields) text() string { return string(r.bytes(r.number())) }

func (r *fields) number() uint64 {
	v, n := binary.Uvarint(r.rest)
	r.bytes(r.size(n))
	return v
}

func (r *fields) time() time.Time {
	seconds, n := binary.Varint(r.rest)
	r.bytes(r.size(n))
	nanoseconds := r.number()
	if nanoseconds >= uint64(time.Second) {
		r.bad = true
		return time.Time{}
	}
	return time.Unix(seconds, int64(nanoseconds)).UTC()
}

// size reads a length. An impossible length is an error.
func (r *fields) size(n int) uint64 {
	r.bad = r.bad || n <= 0
	return uint64(max(n, 0))
}

// lease reads the lease of a container, which is at the end of its record.
func (r *fields) lease() lease {
	l := lease{id: r.text(), duration: time.Duration(r.number()), until: r.time()}
	broken, err := strconv.ParseBool(string(r.bytes(uint64(len(r.rest)))))
	r.bad = r.bad || err != nil || l.id == "" || l.duration < 0
	l.broken = broken
	return l
}

func (r *fields) metadata() metadata {
	m := make(map[string]string)
	for range r.number() {
		name := r.text()
		m[name] = r.text()
		if r.bad {
			return "" // the number may be anything
		}
	}
	return packMetadata(m)
}
