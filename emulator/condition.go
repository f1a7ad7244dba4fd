package emulator

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
	"time"
)

// conditions are the conditional headers of a request.
// https://learn.microsoft.com/rest/api/storageservices/specifying-conditional-headers-for-blob-service-operations
type conditions struct {
	match, noneMatch                  []string
	modifiedSince, unmodifiedSince    time.Time
	hasModifiedSince, hasUnmodifSince bool
}

// parseConditions reads the conditional headers.
func parseConditions(h http.Header) (conditions, *answer) {
	c := conditions{match: splitETags(h.Get("If-Match")), noneMatch: splitETags(h.Get("If-None-Match"))}
	var bad, alsoBad *answer
	c.modifiedSince, c.hasModifiedSince, bad = parseDate(h, "If-Modified-Since")
	c.unmodifiedSince, c.hasUnmodifSince, alsoBad = parseDate(h, "If-Unmodified-Since")
	return c, cmp.Or(bad, alsoBad)
}

func splitETags(header string) []string {
	if header == "" {
		return nil
	}
	tags := strings.Split(header, ",")
	for i := range tags {
		tags[i] = strings.TrimSpace(tags[i])
	}
	return tags
}

func parseDate(h http.Header, name string) (time.Time, bool, *answer) {
	value := h.Get(name)
	if value == "" {
		return time.Time{}, false, nil
	}
	t, err := http.ParseTime(value)
	if err != nil {
		return time.Time{}, false, failWith("InvalidHeaderValue", "Header: "+name+".")
	}
	return t, true, nil
}

// matches reports whether one of the tags stands for the version; "*" stands for every version.
func matches(tags []string, version etag) bool {
	return slices.ContainsFunc(tags, func(tag string) bool { return tag == "*" || version.is(tag) })
}

func isAny(tags []string) bool { return len(tags) == 1 && tags[0] == "*" }

// forRead checks the conditions of a read. If-Match and If-Unmodified-Since must both hold, and one of
// If-None-Match and If-Modified-Since. A missing blob (nil) meets all conditions except If-None-Match: *, so
// that the answer is 404.
func (c *conditions) forRead(b *blob) *answer {
	if isAny(c.noneMatch) && (b != nil || c.match == nil) {
		return fail("UnsatisfiableCondition")
	}
	if b == nil {
		return nil
	}
	if c.match != nil && !matches(c.match, b.Version) {
		return fail("ConditionNotMet")
	}
	if c.hasUnmodifSince && b.Modified.After(c.unmodifiedSince) {
		return fail("ConditionNotMet")
	}
	differs := c.noneMatch != nil && !matches(c.noneMatch, b.Version)
	newer := c.hasModifiedSince && b.Modified.After(c.modifiedSince)
	if (c.noneMatch != nil || c.hasModifiedSince) && !differs && !newer {
		return notModified()
	}
	return nil
}

// combination refuses combinations that a write must not have. A write may have one condition with one ETag,
// or one of two pairs: If-None-Match with If-Modified-Since, or If-Match with If-Unmodified-Since. Of a pair,
// the ETag decides.
func (c *conditions) combination() *answer {
	if len(c.match) > 1 || len(c.noneMatch) > 1 {
		return fail("MultipleConditionHeadersNotSupported")
	}
	match, none := len(c.match) > 0, len(c.noneMatch) > 0
	n := 0
	for _, has := range []bool{match, none, c.hasModifiedSince, c.hasUnmodifSince} {
		if has {
			n++
		}
	}
	pair := n == 2 && (none && c.hasModifiedSince || match && c.hasUnmodifSince)
	if n > 1 && !pair {
		return fail("MultipleConditionHeadersNotSupported")
	}
	return nil
}

// forWrite checks the conditions of a write of a blob. exists is the error for If-None-Match: * if the blob
// exists; it depends on the operation. If the blob is missing (nil), If-Match fails and conditions on time
// are ignored.
func (c *conditions) forWrite(b *blob, exists string) *answer {
	if bad := c.combination(); bad != nil {
		return bad
	}
	if b == nil {
		if c.match != nil {
			return fail("ConditionNotMet")
		}
		return nil
	}
	met := true
	switch {
	case isAny(c.noneMatch):
		return fail(exists)
	case c.noneMatch != nil:
		met = !matches(c.noneMatch, b.Version)
	case c.match != nil:
		met = matches(c.match, b.Version)
	default:
		return c.onTime(b.Modified)
	}
	if !met {
		return fail("ConditionNotMet")
	}
	return nil
}

// onTime checks the condition on time. There is at most one.
func (c *conditions) onTime(modified time.Time) *answer {
	met := true
	switch {
	case c.hasModifiedSince:
		met = modified.After(c.modifiedSince)
	case c.hasUnmodifSince:
		met = !modified.After(c.unmodifiedSince)
	}
	if !met {
		return fail("ConditionNotMet")
	}
	return nil
}
