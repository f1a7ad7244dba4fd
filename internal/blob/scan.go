package blob

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"unicode/utf8"
)

// scanner reads XML from a stream in a fraction of the time that encoding/xml takes. It reads whatever it
// accepts as encoding/xml does, and checks all of it, skipped elements included. It accepts what the service
// sends: no document types, comments, CDATA sections or processing instructions, no prefixes of names, and in
// attributes only ASCII without entities.
type scanner struct {
	r      io.Reader
	pieces *bufio.Scanner
	// open holds the names of the open elements, one behind the other. begins says where each one begins.
	open   []byte
	begins []int
	begun  bool // whether the document has a declaration or an element
	empty  bool // whether the last start tag also ends its element
	err    error

	// The current token. The slices are valid until the next one is read.
	name       []byte // of a start tag
	attributes []byte // as they are in the tag
	text       []byte
	decoded    []byte // the memory of a text that is not as it was read
}

// tokenKind is the sort of a piece of a document.
type tokenKind int

const (
	failed tokenKind = iota // the scanner's err says why
	startTag
	endTag // also follows the start tag of an empty element
	textToken
)

// The scanner has a buffer of readSize, and a larger one for a tag or a text that needs it.
const (
	readSize = 16 << 10
	maxPiece = 1 << 20
)

func newScanner(r io.Reader) *scanner {
	s := &scanner{r: r, pieces: bufio.NewScanner(r)}
	s.pieces.Buffer(make([]byte, 0, readSize), maxPiece)
	s.pieces.Split(splitPieces)
	return s
}

// splitPieces is a [bufio.SplitFunc] for tags and the texts between them. A tag ends with the first '>' outside
// quotes.
func splitPieces(data []byte, atEOF bool) (advance int, piece []byte, err error) {
	switch {
	case len(data) == 0:
		return 0, nil, nil
	case data[0] != '<':
		n := bytes.IndexByte(data, '<')
		if n < 0 && atEOF {
			n = len(data)
		}
		if n < 0 {
			return 0, nil, nil
		}
		return n, data[:n], nil
	}
	quoted := false
	for i, c := range data {
		if c == '"' {
			quoted = !quoted
		} else if c == '>' && !quoted {
			return i + 1, data[:i+1], nil
		}
	}
	if atEOF {
		return 0, nil, io.ErrUnexpectedEOF
	}
	return 0, nil, nil
}

// fail ends the scan, if nothing has ended it already.
func (s *scanner) fail(format string, args ...any) tokenKind {
	if s.err == nil {
		s.err = fmt.Errorf(format, args...)
	}
	return failed
}

// next reads the next token. After a failure it only returns failed.
func (s *scanner) next() tokenKind {
	if s.empty && s.err == nil {
		s.empty = false
		s.leave()
		return endTag
	}
	for s.err == nil {
		if !s.pieces.Scan() {
			s.err = cmp.Or(s.pieces.Err(), io.ErrUnexpectedEOF)
			break
		}
		switch piece := s.pieces.Bytes(); {
		case piece[0] != '<':
			return s.decode(piece)
		case piece[1] == '/':
			return s.end(piece[2 : len(piece)-1])
		case s.begun || !isDeclaration.Match(piece):
			return s.start(piece[1 : len(piece)-1])
		}
		s.begun = true
	}
	return failed
}

// skip reads the rest of the current element.
func (s *scanner) skip() {
	for depth := 1; depth > 0; {
		switch s.next() {
		case failed:
			return
		case startTag:
			depth++
		case endTag:
			depth--
		}
	}
}

// rest reads what follows the document, which is of no interest: only a connection that was read to the end is
// reused.
func (s *scanner) rest() error {
	if s.err == nil {
		_, err := io.Copy(io.Discard, s.r)
		s.err = cmp.Or(s.pieces.Err(), err)
	}
	return s.err
}

// start reads a start tag.
func (s *scanner) start(tag []byte) tokenKind {
	s.begun = true
	tag, s.empty = bytes.CutSuffix(tag, []byte("/"))
	s.name = tag[:nameLength(tag)]
	s.attributes = tag[len(s.name):]
	if len(s.name) == 0 || len(s.attributes) > 0 && !areAttributes.Match(s.attributes) {
		return s.fail("<%.60s> is no tag", tag)
	}
	s.begins = append(s.begins, len(s.open))
	s.open = append(s.open, s.name...)
	return startTag
}

// areAttributes matches the attributes that the scanner can read.
var areAttributes = regexp.MustCompile(`^(\s+[A-Za-z_][-.\w]*="[ !#-%'-;=-~]*")*\s*$`)

// end reads an end tag.
func (s *scanner) end(tag []byte) tokenKind {
	if len(s.begins) == 0 {
		return s.fail("</%s> ends nothing", tag)
	}
	open := s.open[s.begins[len(s.begins)-1]:]
	if !bytes.Equal(bytes.TrimRight(tag, space), open) {
		return s.fail("<%s> is closed by </%s>", open, tag)
	}
	s.leave()
	return endTag
}

// leave ends the innermost element.
func (s *scanner) leave() {
	last := len(s.begins) - 1
	s.open, s.begins = s.open[:s.begins[last]], s.begins[:last]
}

// isDeclaration matches the declaration of documents that the scanner can read.
var isDeclaration = regexp.MustCompile(`^<\?xml version="1\.0"( encoding="(?i:utf-8)")?( standalone="yes")? ?\?>$`)

const space = " \t\r\n"

// nameLength returns the length of the name at the start of a text; 0 if there is none.
func nameLength(text []byte) int {
	for i, c := range text {
		letter := 'a' <= c|0x20 && c|0x20 <= 'z' || c == '_'
		if !letter && (i == 0 || c != '-' && c != '.' && (c < '0' || '9' < c)) {
			return i
		}
	}
	return len(text)
}

// isPlain tells the bytes that stand for themselves.
var isPlain = func() (plain [256]bool) {
	for c := byte(' '); c < utf8.RuneSelf; c++ {
		plain[c] = c != '<' && c != '>' && c != '&'
	}
	plain['\t'], plain['\n'] = true, true
	return plain
}()

// decode sets the current text to what a text between tags means.
func (s *scanner) decode(raw []byte) tokenKind {
	n := 0
	for n < len(raw) && isPlain[raw[n]] {
		n++
	}
	if n == len(raw) {
		s.text = raw
		return textToken
	}
	out := append(s.decoded[:0], raw[:n]...)
	for i := n; i < len(raw); {
		r, size := utf8.DecodeRune(raw[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			return s.fail("not UTF-8")
		case r == '\r': // with or without a line feed, it means one
			r = '\n'
			if bytes.HasPrefix(raw[i+1:], []byte("\n")) {
				size = 2
			}
		case r == '&':
			if size = bytes.IndexByte(raw[i:], ';') + 1; size == 0 {
				return s.fail("an entity has no end")
			}
			var err error
			if r, err = entity(string(raw[i+1 : i+size-1])); err != nil {
				return s.fail("%.20q is no entity", raw[i:i+size])
			}
		case r == '>' && bytes.HasSuffix(raw[:i], []byte("]]")):
			return s.fail("]]> outside a CDATA section")
		}
		if !isChar(r) {
			return s.fail("the character %U", r)
		}
		out = utf8.AppendRune(out, r)
		i += size
	}
	s.decoded, s.text = out, out
	return textToken
}

// entities are the entities that have names.
var entities = map[string]rune{"lt": '<', "gt": '>', "amp": '&', "apos": '\'', "quot": '"'}

// entity returns the character that an entity stands for.
func entity(name string) (rune, error) {
	if r, named := entities[name]; named {
		return r, nil
	}
	digits, base := name, 10
	if len(name) < 2 || name[0] != '#' {
		return 0, errors.New("unknown")
	} else if digits = name[1:]; digits[0] == 'x' {
		digits, base = digits[1:], 16
	}
	n, err := strconv.ParseUint(digits, base, 31)
	return rune(n), err
}

// isChar reports whether XML allows a character.
func isChar(r rune) bool {
	return r == '\t' || r == '\n' || r == '\r' || ' ' <= r && r <= 0xd7ff || 0xe000 <= r && r <= 0xfffd || 0x10000 <= r && r <= utf8.MaxRune
}
