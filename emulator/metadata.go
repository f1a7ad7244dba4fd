package emulator

import (
	"bytes"
	"iter"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// metadataLimit is the limit for the total size of names and values, in bytes.
const metadataLimit = 8 << 10

const metadataPrefix = "x-ms-meta-"

// parseMetadata reads the metadata of a write. Names must be C# identifiers, and values consist of visible
// ASCII, spaces and tabs.
// https://learn.microsoft.com/rest/api/storageservices/naming-and-referencing-containers--blobs--and-metadata
func parseMetadata(h http.Header) (map[string]string, *answer) {
	var metadata map[string]string
	total := 0
	for key, values := range h {
		if len(key) < len(metadataPrefix) || !strings.EqualFold(key[:len(metadataPrefix)], metadataPrefix) {
			continue
		}
		name := strings.ToLower(key[len(metadataPrefix):])
		value := strings.Join(values, ",")
		if name == "" {
			return nil, fail("EmptyMetadataKey")
		}
		if !isIdentifier(name) {
			return nil, failWith("InvalidMetadata", "Name: "+name+".")
		}
		if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r > '~' }) {
			return nil, failWith("InvalidMetadata", "Value of: "+name+".")
		}
		total += len(name) + len(value)
		if metadata == nil {
			metadata = make(map[string]string)
		}
		metadata[name] = value
	}
	if total > metadataLimit {
		return nil, fail("MetadataTooLarge")
	}
	return metadata, nil
}

// isIdentifier reports whether an ASCII name is a C# identifier.
func isIdentifier(name string) bool {
	for i, r := range name {
		letter := r == '_' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
		digit := '0' <= r && r <= '9'
		if !letter && (!digit || i == 0) {
			return false
		}
	}
	return name != ""
}

// metadata is the metadata of a blob or container: names and values in one string, sorted by name, each with a
// zero byte after it. A map for each of millions of blobs would take several times as much memory as
// everything else.
type metadata string

// packMetadata packs a map and folds the names to lower case. A value must not contain a zero byte, which HTTP
// can't carry either.
func packMetadata(m map[string]string) metadata {
	folded := make(map[string]string, len(m))
	for name, value := range m {
		folded[strings.ToLower(name)] = value
	}
	var packed strings.Builder
	for _, name := range slices.Sorted(maps.Keys(folded)) {
		packed.WriteString(name + "\x00" + folded[name] + "\x00")
	}
	return metadata(packed.String())
}

// all yields names and values, sorted by name.
func (m metadata) all() iter.Seq2[string, string] {
	return func(yield func(name, value string) bool) {
		for rest := string(m); rest != ""; {
			var name, value string
			name, rest, _ = strings.Cut(rest, "\x00")
			value, rest, _ = strings.Cut(rest, "\x00")
			if !yield(name, value) {
				return
			}
		}
	}
}

// unpack returns the metadata as a map, or nil if there is none.
func (m metadata) unpack() map[string]string {
	if m == "" {
		return nil
	}
	return maps.Collect(m.all())
}

// set adds the metadata to the headers of an answer.
func (m metadata) set(h http.Header) {
	for name, value := range m.all() {
		h.Set(metadataPrefix+name, value)
	}
}

// write writes the metadata as an element of a listing.
func (m metadata) write(w *bytes.Buffer) {
	if m == "" {
		w.WriteString("<Metadata/>")
		return
	}
	w.WriteString("<Metadata>")
	for name, value := range m.all() {
		writeElement(w, name, value)
	}
	w.WriteString("</Metadata>")
}
