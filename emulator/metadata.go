package emulator

import (
	"net/http"
	"slices"
	"strings"
)

// metadataLimit is the most that names and values may take together, in bytes.
const metadataLimit = 8 << 10

const metadataPrefix = "x-ms-meta-"

// parseMetadata reads the metadata of a write. Names must be identifiers of C#,
// values visible ASCII, blanks and tabs.
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
			return nil, fail(codeEmptyMetadataKey)
		}
		if !isIdentifier(name) {
			return nil, failWith(codeInvalidMetadata, "Name: "+name+".")
		}
		if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r > '~' }) {
			return nil, failWith(codeInvalidMetadata, "Value of: "+name+".")
		}
		total += len(name) + len(value)
		if metadata == nil {
			metadata = make(map[string]string)
		}
		metadata[name] = value
	}
	if total > metadataLimit {
		return nil, fail(codeMetadataTooLarge)
	}
	return metadata, nil
}

// isIdentifier tells whether an ASCII name is an identifier of C#.
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

func setMetadata(h http.Header, metadata map[string]string) {
	for name, value := range metadata {
		h.Set(metadataPrefix+name, value)
	}
}

// writeMetadata writes metadata as listings have it, sorted by name.
func writeMetadata(w *strings.Builder, metadata map[string]string) {
	if len(metadata) == 0 {
		w.WriteString("<Metadata/>")
		return
	}
	names := make([]string, 0, len(metadata))
	for name := range metadata {
		names = append(names, name)
	}
	slices.Sort(names)
	w.WriteString("<Metadata>")
	for _, name := range names {
		w.WriteString("<" + name + ">")
		escapeXML(w, metadata[name])
		w.WriteString("</" + name + ">")
	}
	w.WriteString("</Metadata>")
}
