package emulator

import (
	"strings"
	"unicode/utf8"
)

// checkContainerName applies the rules of the service: 3 to 63 lower-case letters, digits and hyphens, no two
// hyphens in a row and none at either end.
func checkContainerName(name string) *answer {
	if strings.HasPrefix(name, "$") {
		return failWith("InvalidResourceName", "The emulator has no system containers.")
	}
	if len(name) < 3 || len(name) > 63 {
		return failWith("OutOfRangeInput", "Container names have 3 to 63 characters.")
	}
	for i, r := range name {
		switch {
		case 'a' <= r && r <= 'z', '0' <= r && r <= '9':
		case r == '-' && i > 0 && i < len(name)-1 && name[i-1] != '-':
		default:
			return fail("InvalidResourceName")
		}
	}
	return nil
}

// checkBlobName applies the rules of the service: 1 to 1,024 characters.
func checkBlobName(name string) *answer {
	if !utf8.ValidString(name) {
		return failWith("InvalidResourceName", "Blob names are UTF-8.")
	}
	if n := utf8.RuneCountInString(name); n < 1 || n > 1024 {
		return failWith("InvalidResourceName", "Blob names have 1 to 1,024 characters.")
	}
	return nil
}

// validXML reports whether XML can represent the text. (xml.EscapeText replaces what XML can't represent.)
func validXML(text string) bool {
	for i, r := range text {
		switch {
		case r == '\t', r == '\n', r == '\r':
		case r < ' ', r == 0xFFFE, r == 0xFFFF:
			return false
		case r == utf8.RuneError:
			if _, size := utf8.DecodeRuneInString(text[i:]); size == 1 {
				return false
			}
		}
	}
	return true
}
