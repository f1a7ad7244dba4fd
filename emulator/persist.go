package emulator

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/gob"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
)

// Open returns an account that is kept in a file. It creates the file if needed; the directory must exist.
// The options are those of [New]. They are not kept in the file.
//
// Each write is in the file before it is answered, so answered writes survive the process, however it ends.
// They may not survive a power failure, because the file is not synced. Open restores ETags, times, metadata,
// content headers, digests, leases and deletions of containers under way, and no ETag is used twice. Faults,
// the log and late requests are not kept. Bodies are held in memory, too. The file grows with every write;
// Open removes what is out of date.
//
// If a write can't be stored, its answer is 500 InternalError and it has no effect. All later writes fail the
// same way until the file is opened again. [Server.Put] and other methods without an answer panic.
//
// Only one server can use a file at a time: Open fails at once if another one does, in any process. It locks a
// file with the same name and ".lock", which stays. Open also fails if the file is damaged before its last
// record or is not a file of the emulator, and then leaves it unchanged. Call [Server.Close] when done.
func Open(path string, opts ...Option) (*Server, error) {
	s := New(opts...)
	stored, err := openFile(path)
	if err != nil {
		return nil, fmt.Errorf("emulator: open %q: %w", path, err)
	}
	s.state = stored
	return s, nil
}

// Close closes the file of a server from [Open]. Later reads are answered from memory, and later writes with
// 500 InternalError. Closing twice, or closing a server from [New], does nothing. Close a [Listener] first.
func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.file.close()
}

// The file begins with fileHead. Each record after it has two big-endian numbers of four bytes, its length
// and its CRC-32C, and a part of one stream of gobs: a [change]. A process that is killed may leave a part of
// a record at the end, whose write was not answered.
const fileHead = "azblob emulator 2\n"

// changes yields what makes an empty state this one.
func (s *state) changes(yield func(change) error) error {
	err := yield(change{Versions: s.versions})
	s.containers.Ascend(func(ct *container) bool {
		if err == nil {
			err = yield(change{Container: ct.Name, Self: ct})
		}
		ct.blobs.Ascend(func(b *blob) bool {
			if err == nil {
				err = yield(change{Container: ct.Name, Blob: b})
			}
			return err == nil
		})
		return err == nil
	})
	for name, until := range s.deleted {
		if err == nil {
			err = yield(change{Container: name, Self: &container{Name: name}, Removed: true, Until: until})
		}
	}
	return err
}

// file keeps a state. A nil file keeps nothing. The server's lock guards it.
type file struct {
	log    *os.File
	lock   io.Closer
	gobs   *gob.Encoder // writes to record
	record bytes.Buffer
	stop   error // why no more writes are possible
}

var (
	errClosed  = errors.New("the server is closed; open its file again")
	errDamaged = errors.New("the file is damaged or not a file of the emulator; restore a copy, or remove the file to start empty")
	errInUse   = errors.New("another server, in this process or another one, has the file open; close it, or use another file")
)

// openFile opens or creates a file and returns its content.
func openFile(path string) (_ state, err error) {
	if path == "" {
		return state{}, errors.New("the path is empty; use New for a server in memory")
	}
	stored, f := newState(), &file{}
	if f.lock, err = lockFile(path + ".lock"); err != nil {
		return state{}, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.close())
		}
	}()
	old, err := os.Open(path)
	switch {
	case err == nil:
		err = errors.Join(stored.load(bufio.NewReader(old)), old.Close())
	case errors.Is(err, fs.ErrNotExist):
		err = nil
	}
	if err != nil {
		return state{}, err
	}
	// The new file replaces the old one once it is complete.
	if f.log, err = os.Create(path + ".new"); err != nil {
		return state{}, err
	}
	if _, err = f.log.WriteString(fileHead); err != nil {
		return state{}, err
	}
	f.gobs = gob.NewEncoder(&f.record)
	if err = stored.changes(f.append); err != nil {
		return state{}, err
	}
	if err = os.Rename(f.log.Name(), path); err != nil {
		return state{}, err
	}
	stored.file = f
	return stored, nil
}

// append writes a change to the file.
func (f *file) append(c change) error {
	if f == nil {
		return nil
	}
	if f.stop != nil {
		return f.stop
	}
	f.record.Reset()
	f.record.Write(make([]byte, 8))
	err := f.gobs.Encode(c)
	if err == nil {
		r := f.record.Bytes()
		binary.BigEndian.PutUint32(r, uint32(len(r)-8))
		binary.BigEndian.PutUint32(r[4:], checksum(r[8:]))
		_, err = f.log.Write(r)
	}
	if err != nil {
		f.stop = fmt.Errorf("a write could not be stored: %w; check the disk, then close the server and open its file again", err)
	}
	return f.stop
}

func (f *file) close() error {
	if f == nil || f.stop == errClosed {
		return nil
	}
	f.stop = errClosed
	var err error
	if f.log != nil {
		err = f.log.Close()
	}
	return errors.Join(err, f.lock.Close())
}

func checksum(data []byte) uint32 { return crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli)) }

// load makes all changes of a file. It stops at a record that was not completed.
func (s *state) load(r *bufio.Reader) error {
	head := make([]byte, len(fileHead))
	if n, err := io.ReadFull(r, head); err != nil || string(head) != fileHead {
		return fmt.Errorf("%w (it begins with %q, %v)", errDamaged, head[:n], err)
	}
	var record bytes.Buffer
	for gobs := gob.NewDecoder(&record); ; {
		if err := readRecord(&record, r); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		var c change
		err := gobs.Decode(&c)
		if err == nil {
			err = s.apply(c)
		}
		if err != nil {
			return fmt.Errorf("%w (%w)", errDamaged, err)
		}
	}
}

// readRecord adds the content of a record to w. The end of the file is io.EOF, also in the middle of a record.
func readRecord(w *bytes.Buffer, r io.Reader) error {
	var head [8]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return io.EOF
	}
	length := int64(binary.BigEndian.Uint32(head[:]))
	if n, err := io.CopyN(w, r, length); err != nil || n != length {
		return io.EOF
	}
	if checksum(w.Bytes()) != binary.BigEndian.Uint32(head[4:]) {
		return fmt.Errorf("%w (the checksum of a record does not match)", errDamaged)
	}
	return nil
}
