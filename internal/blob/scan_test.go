package blob

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

// scan returns the tokens of a document up to the end of its root.
func scan(r io.Reader) (tokens []string, err error) {
	s := newScanner(r)
	for depth := 0; ; {
		switch s.next() {
		case failed:
			return nil, s.err
		case startTag:
			depth++
			tag := "<" + string(s.name)
			for _, a := range regexp.MustCompile(`([-.\w]+)="([^"]*)"`).FindAllSubmatch(s.attributes, -1) {
				tag += fmt.Sprintf(" %s=%q", a[1], a[2])
			}
			tokens = append(tokens, tag)
		case endTag:
			tokens = append(tokens, "/")
			if depth--; depth == 0 {
				return tokens, nil
			}
		case textToken:
			tokens = append(tokens, "text "+string(s.text))
		}
	}
}

// scanByLibrary is scan by encoding/xml.
func scanByLibrary(r io.Reader) (tokens []string, err error) {
	d := xml.NewDecoder(r)
	for depth := 0; ; {
		t, err := d.Token()
		if err != nil {
			return nil, err
		}
		switch t := t.(type) {
		case xml.StartElement:
			depth++
			tag := "<" + t.Name.Local
			for _, a := range t.Attr {
				tag += fmt.Sprintf(" %s=%q", a.Name.Local, a.Value)
			}
			tokens = append(tokens, tag)
		case xml.EndElement:
			tokens = append(tokens, "/")
			if depth--; depth == 0 {
				return tokens, nil
			}
		case xml.CharData:
			tokens = append(tokens, "text "+string(t))
		}
	}
}

// documents are accepted by encoding/xml; the scanner refuses those of refusedDocuments.
var documents = []string{
	`<a/>`, `<a />`, `<a></a >`, `<a b="1" c="'2'"/>`, "<a\tb=\"1\"\r\n/>", `<a_0-9.3/>`,
	"<a>x&amp;y&apos;&quot;&gt;&#65;&#x4a;</a>", "<a>1\r\n2\r3\n4&#13;5\t</a>", "<a>é€\U0001F600\ud7ff\ue000\ufffd</a>", "<a>]] > ]&#93;></a>",
	"\ufeff \r\n<a/>", "text<a/>", "<a>\x7f</a>",
	`<?xml version="1.0"?><a/>`, `<?xml version="1.0" encoding="UTF-8" standalone="yes" ?><a/>`, "\ufeff<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<a/>",
	`<a b=">"></a>`, `<a b="/"/>`, `<a><b><c/></b><d>x</d></a>`, "<a>" + strings.Repeat("long ", readSize) + "</a>", `<a b="` + strings.Repeat("x", readSize) + `"/>`,
}

var refusedDocuments = []string{
	`<!DOCTYPE a><a/>`, `<?php x?><a/>`, `<a><?xml version="1.0"?></a>`, `<é/>`, `<a é="1"/>`, "<a>&#xD800;</a>", `<a b="1"c="2"></a>`, `<a b='1'/>`, `<a b = "1"/>`, `<a b="é"/>`, `<a b="&lt;"/>`, `<x:a y:b="1"></x:a>`,
	"<a>x<![CDATA[y]]></a>", "<!--x--><a/>", "<a>" + strings.Repeat(" ", maxPiece) + "</a>",
}

// malformed documents are refused by encoding/xml too.
var malformed = []string{
	``, `text`, `<`, `<a`, `<a>`, `<a><b></a>`, `<a><b></a></b>`, `</a>`, `<a></b>`, `<a></ab>`, `<a></a b>`, `<a></>`, `<>`, `< a/>`, `<1/>`, `<a/ >`,
	`<a b></a>`, `<a b=1></a>`, `<a b="<"></a>`, `<a b="1></a>`, `<a b="&x;"/>`, `<a ="1"/>`, `<a <b/>></a>`,
	`<a>&</a>`, `<a>& b;</a>`, `<a>&lt</a>`, `<a>&nbsp;</a>`, `<a>&;</a>`, `<a>&#;</a>`, `<a>&#x;</a>`, `<a>&#0;</a>`, `<a>&#X41;</a>`, `<a>&#-1;</a>`, `<a>&#x110000;</a>`, `<a>&#xffffffffff;</a>`,
	"<a>\xff</a>", "<a>\x00</a>", "<a>\x1b</a>", "<a>\ufffe</a>", "<a>\xed\xa0\x80</a>", "<a>\xc3</a>", "<a>]]></a>", `<?xml version="1.1"?><a/>`, `<?xml version="1.0" encoding="latin1"?><a/>`, `<?xml version="1.0"`,
}

func TestScanner(t *testing.T) {
	for _, text := range documents {
		want, err := scanByLibrary(strings.NewReader(text))
		if err != nil {
			t.Fatalf("encoding/xml refuses %.80q: %v", text, err)
		}
		for how, r := range map[string]io.Reader{"whole": strings.NewReader(text), "byte by byte": iotest.OneByteReader(strings.NewReader(text)), "with its end": iotest.DataErrReader(strings.NewReader(text))} {
			if got, err := scan(r); err != nil || !slices.Equal(got, want) {
				t.Errorf("%.80q, %s: %.200q, %v, want %.200q", text, how, got, err, want)
			}
		}
		for n := range min(len(text), 1000) {
			if got, err := scan(strings.NewReader(text[:n])); err == nil {
				t.Errorf("%.80q is a document: %q", text[:n], got)
			}
		}
	}
	for i, text := range slices.Concat(refusedDocuments, malformed) {
		if got, err := scan(strings.NewReader(text)); err == nil {
			t.Errorf("%.80q is accepted: %q", text, got)
		}
		if _, err := scanByLibrary(strings.NewReader(text)); (err == nil) != (i < len(refusedDocuments)) {
			t.Errorf("encoding/xml reads %.80q: %v", text, err)
		}
	}
	for r, want := range map[io.Reader]error{iotest.ErrReader(io.ErrNoProgress): io.ErrNoProgress, strings.NewReader("<a>"): io.ErrUnexpectedEOF} {
		if _, err := scan(r); err != want {
			t.Errorf("%v, want %v", err, want)
		}
	}
}

// FuzzScanner compares the scanner with encoding/xml: they must agree on what the scanner accepts.
func FuzzScanner(f *testing.F) {
	for _, text := range slices.Concat(documents[:len(documents)-2], refusedDocuments[:14], malformed, []string{page(blobNamed("<Name>n</Name>", "")), groupsPage, containersPage}) {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := scan(bytes.NewReader(text))
		if err != nil {
			return
		}
		if want, err := scanByLibrary(bytes.NewReader(text)); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q, encoding/xml reads %q, %v", got, want, err)
		}
	})
}
