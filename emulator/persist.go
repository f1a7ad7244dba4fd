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
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"
)

// Open returns an account whose containers and blobs are those of a file, which
// is made if it is missing; its directory must be there. All options are as for
// [New]; none of them is kept in the file.
//
// Each write is committed to the file and synced before it is answered: what was
// answered outlives the process and the machine. ETags, times, metadata, content
// headers, digests and deletions of containers under way are after Open as they
// were, and no ETag is given out twice. Faults, the log and late requests are not
// kept. Bodies are held in memory, too. Writes are committed one at a time, and a
// context that ends does not break a commit off.
//
// A write that can't be made durable is answered with 500 InternalError and has
// no effect, and so are all later ones, since the file is not trusted any more
// until it is opened again. ([Server.Put] and the like have no answer: they
// panic.) Where the disk failed in the middle of a commit, the write may be found
// when the file is opened again; that is all or nothing, too.
//
// One server has a file at a time: Open fails at once if there is another, in
// this process or another one. It fails on a file that is damaged or not the
// emulator's, and leaves it as it is. End with [Server.Close].
func Open(path string, opts ...Option) (*Server, error) {
	s := New(opts...)
	stored, err := openFile(path)
	if err != nil {
		return nil, fmt.Errorf("emulator: open %q: %w", path, err)
	}
	s.state = stored
	return s, nil
}

// Close gives up the file of a server from [Open], when the request that takes
// effect at the moment has. Later reads are answered from memory, later writes
// with 500 InternalError. A second Close, and that of a server from [New], does
// nothing. Close a [Listener] first.
func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.file.close()
}

// The file is a bbolt database of these buckets. A value is a record: a CRC of
// where it lies and of what follows, which are fields in a fixed order.
//
//	emulator/head             schema, last ETag, number of containers and blobs
//	containers/<name>/self    a container
//	containers/<name>/b<blob> a blob; its body is the record's end
//	deleted/<name>            a name that can't be used yet, and until when
const (
	bucketHead       = "emulator"
	bucketContainers = "containers"
	bucketDeleted    = "deleted"
	keyHead          = "head"
	keySelf          = "self"
	prefixBlob       = "b"
)

// fileSchema is the version of all this.
const fileSchema = 1

// file is where a state is kept. A nil file keeps nothing. The server's lock
// guards it.
type file struct {
	db    *bbolt.DB
	count uint64 // containers and blobs
	stop  error  // why nothing can be written any more
}

var (
	errClosed  = errors.New("the server is closed: open its file again")
	errDamaged = errors.New("the file is damaged, or not the emulator's: put back a copy of it, or remove it to begin anew")
	errNewer   = errors.New("the file was written by a newer emulator: use that one")
	errInUse   = errors.New("another server has the file open, in this process or another: close that one, or give each a file of its own")
)

// openFile opens or makes a file, and returns what it holds.
func openFile(path string) (state, error) {
	if path == "" {
		return state{}, errors.New("a server that is to be kept needs a path; one in memory is made by New")
	}
	_, err := os.Stat(path)
	isNew := errors.Is(err, fs.ErrNotExist)
	f := &file{}
	// If bbolt panics here, it keeps the file until the process ends.
	err = guard(func() (err error) {
		f.db, err = bbolt.Open(path, 0o600, &bbolt.Options{
			Timeout:      1, // 0 would wait for the other one
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
		return nil // it has no such thing
	}
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// guard turns panics into errors, those among them that come of reading where
// the file has no bytes: bbolt maps it into memory, and believes it.
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

// commit makes a change durable, which adds so many containers and blobs.
func (f *file) commit(versions etag, added int, change func(*bbolt.Tx) error) error {
	if f == nil {
		return nil
	}
	if f.stop != nil {
		return f.stop
	}
	count := f.count + uint64(added) // a negative number wraps, and back
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
		return fmt.Errorf("the file does not take it: %w", refused)
	case err != nil:
		// Nobody knows what the disk has of it.
		f.stop = fmt.Errorf("a write could not be made durable: %w: see to the disk, then close the server and open its file again", err)
		return f.stop
	}
	f.count = count
	return nil
}

// putContainer keeps a container, with no word of its blobs.
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

// removeContainer removes a container with its blobs. Its name is held until
// then; the zero time does not hold it.
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

// load reads everything into an empty state. A new file gets its buckets.
func (f *file) load(s *state) error {
	isNew := false
	err := f.db.View(func(tx *bbolt.Tx) error {
		if k, _ := tx.Cursor().First(); k == nil {
			isNew = true
			return nil
		}
		// bbolt's own check is of no use here: it runs where no guard is, and has no
		// end on some damage.
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

// checkPages checks that no page claims to go beyond the file: bbolt would believe
// that when it frees the page.
func checkPages(tx *bbolt.Tx) error {
	for id, end := 0, int(tx.Size())/tx.DB().Info().PageSize; id < end; id++ {
		page, err := tx.Page(id)
		if err != nil {
			return err
		}
		if page.Type == "free" {
			continue // what it says of its size is out of date
		}
		if id += page.OverflowCount; id >= end {
			return fmt.Errorf("page %d ends at %d of %d", page.ID, id, end)
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
		return fmt.Errorf("%d containers and blobs of %d are there", found, f.count)
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

// checksum is that of a record. It knows the record's place, so that none is
// taken for another.
func checksum(payload []byte, place []string) uint32 {
	table := crc32.MakeTable(crc32.Castagnoli)
	var sum uint32
	for _, name := range place {
		sum = crc32.Update(sum, table, appendText(nil, name))
	}
	return crc32.Update(sum, table, payload)
}

// seal makes a record.
func seal(payload []byte, place ...string) []byte {
	record := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(payload)), checksum(payload, place))
	return append(record, payload...)
}

// unseal returns what a record holds. It lies in the file's memory.
func unseal(record []byte, place ...string) ([]byte, error) {
	if len(record) < 4 || binary.BigEndian.Uint32(record) != checksum(record[4:], place) {
		return nil, fmt.Errorf("the checksum of %q is wrong", place)
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
		return 0, 0, fmt.Errorf("%w (its schema is %d, and this one reads %d)", errNewer, schema, fileSchema)
	}
	versions, count = etag(r.number()), r.number()
	return versions, count, r.end("head")
}

func (ct *container) encode() []byte {
	p := binary.AppendUvarint(nil, uint64(ct.version))
	p = appendTime(p, ct.modified)
	return appendMetadata(p, ct.metadata)
}

func decodeContainer(name string, payload []byte) (*container, error) {
	ct, r := newContainer(name), fields{rest: payload}
	ct.version, ct.modified, ct.metadata = etag(r.number()), r.time(), r.metadata()
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

// appendTime writes an instant. It comes back in UTC.
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

// fields reads what the append functions wrote. What can't be read is zero, and
// is told by end.
type fields struct {
	rest []byte
	bad  bool
}

// end fails if something could not be read, or is left over.
func (r *fields) end(what string) error {
	if r.bad || len(r.rest) > 0 {
		return fmt.Errorf("the record of %s can't be read", what)
	}
	return nil
}

// bytes lie in the record's memory.
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

// size is that of a number; what is none is bad.
func (r *fields) size(n int) uint64 {
	r.bad = r.bad || n <= 0
	return uint64(max(n, 0))
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
