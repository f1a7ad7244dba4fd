package firsthour

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/planvault/azblob/internal/blob"
)

// probe is something to try on an account.
type probe struct {
	Finding // its number and texts
	try     func(ctx context.Context, x *trial)
}

// probes returns the probes in their order. The texts stand in docs/account.md, too.
func probes() []probe {
	var list []probe
	add := func(tried, expected, breaks string, try func(ctx context.Context, x *trial)) {
		list = append(list, probe{Finding{Number: len(list) + 1, Tried: tried, Expected: expected, Breaks: breaks}, try})
	}
	add("GET, HEAD, and versions that know startFrom",
		"200 with the service's marks; the vault's version knows startFrom",
		"no request works: open the vault WithServiceVersion", versions)
	add("Date and Last-Modified of 50 writes",
		"they differ by up to 5 seconds",
		"ages are wrong: grace periods and TTLs must be longer than the lag", dates)
	add("HEAD, GET, PUT and DELETE that are refused",
		"401 or 403 for a wrong login, 400 for a wrong version or http, with x-ms-request-id",
		"a refusal is retried, or does not say what to change", refusals)
	add(`PUT and DELETE with If-Match "0x0"`,
		"412, 404 for what is missing, 403 for a reader; nothing changes",
		"PingWrites and PingDeletes are wrong, or change a blob", conditions)
	add("PUT with If-None-Match *, twice, and two at once with 4 MiB",
		"one 201, the other 409 or 412; the blob is that of the first",
		"two Creates of one plan succeed", creations)
	add("listings: order, maxresults=1, startFrom, delimiter -",
		"names in byte order, each once; startFrom is inclusive; names are grouped",
		"listings lose plans, or cost more", listings)
	add("a batch of 256 deletes, with each kind of login",
		"202 with the right ETag or none, 412 with a wrong one, 404 for a missing blob",
		"Delete removes blobs one by one", batches)
	add("a container's lease of 15 s, and its removal",
		"201 again for the same ID; no delete without the lease or after it; the name is free within 5 minutes",
		"Expire drops no days, or days that it does not hold", leases)
	add("16 writes right after Create Container",
		"201 for all",
		"the first plans of a day wait", newborn)
	add("8 KiB of metadata: mixed case, %, =, RFC 2047",
		"HEAD and listings return what was written",
		"names that are not ASCII are listed wrongly", metadata)
	add("ranges of an empty and of a short blob",
		"416 InvalidRange of an empty blob and past the end, otherwise 206 with Content-Range",
		"listings can't read catalogues", ranges)
	add("a ramp of writes: new container, warm, across midnight",
		"no refusal, or 503 with x-ms-request-id",
		"vaults do not slow down when they should", ramp)
	add("hierarchical and geo-redundant accounts",
		"delimiter - is 200 or 400; the secondary answers 200, or 404 while it lags",
		"listings fail there, or reads in an outage", kinds)
	return list
}

// methods are those that the vault uses of blobs, first those that only read.
var methods = [...]string{"HEAD", "GET", "PUT", "DELETE"}

// startFromVersions are versions around that which brought startFrom, up to that of the SDK.
var startFromVersions = [...]string{"2025-11-05", "2026-02-06", "2026-04-06", "2026-06-06", "2026-12-06"}

func versions(ctx context.Context, x *trial) {
	x.must("PUT", x.put(ctx, x.container+"/versions/a", nil), "201")
	x.must("PUT", x.put(ctx, x.container+"/versions/b", nil), "201")
	for _, method := range methods[:2] {
		a := x.wire.send(ctx, method, x.container+"/versions/a", nil)
		x.note(method, a.marks(), "200", a.is("200") && a.header.Get("X-Ms-Version") != "" && a.etag() != "")
	}
	newest := x.wire
	newest.version = startFromVersions[len(startFromVersions)-1]
	x.seeEach(ctx, "the SDK's version "+newest.version, newest, methods[:2], x.container+"/versions/a", "200 or 400")
	honoured := func(version string) bool {
		w := x.wire
		w.version = version
		page, err := w.list(ctx, x.container+"?restype=container&comp=list&prefix=versions/&startFrom=versions/b")
		return err == nil && slices.Equal(page.names(), []string{"versions/b"})
	}
	for _, version := range startFromVersions {
		if honoured(version) {
			x.note("startFrom", "honoured from version "+version, "by "+x.wire.version, x.wire.version >= version)
			return
		}
	}
	x.note("startFrom", "by no version", "by "+x.wire.version, false)
}

func dates(ctx context.Context, x *trial) {
	const writes, most = 50, 5 * time.Second
	var low, high time.Duration
	for range writes {
		a := x.put(ctx, x.container+"/dates", nil)
		date, err := http.ParseTime(a.header.Get("Date"))
		modified, err2 := http.ParseTime(a.header.Get("Last-Modified"))
		if !a.is("201") || err != nil || err2 != nil {
			x.note("PUT", a.String(), "201 with Date and Last-Modified", false)
			return
		}
		low, high = min(low, modified.Sub(date)), max(high, modified.Sub(date))
	}
	x.note("Last-Modified minus Date", fmt.Sprintf("%v to %v", low, high), "-5s to 5s", low >= -most && high <= most)
}

func refusals(ctx context.Context, x *trial) {
	target := x.container + "/refusals"
	x.must("PUT", x.put(ctx, target, nil), "201")
	const denied = "401 or 403"
	wrongLogin, wrongVersion, old := x.wire, x.wire, x.wire
	wrongLogin.spoil = spoilLogin
	wrongVersion.version = "2099-01-01"
	old.late = 20 * time.Minute
	ways := []struct {
		what, expected string
		wire           wire
		cannot         string
	}{
		{"wrong login", denied, wrongLogin, ""},
		{"date 20 minutes off", denied, old, x.without(blob.KeyLogin)},
		{"expired signature", denied, x.signed("", "rwdlc", -time.Hour), x.without(blob.KeyLogin)},
		{"unknown version", "400", wrongVersion, ""},
		{"http", "400 or 401 or 403", x.insecure(), x.httpOnly()},
	}
	for _, way := range ways {
		if way.cannot != "" {
			x.cannot(way.what, way.cannot)
			continue
		}
		// What is not refused changes nothing.
		x.seeEach(ctx, way.what, way.wire, methods[:], target, way.expected, "If-Match", `"0x0"`)
	}
}

// spoilLogin makes what authorizes a request wrong.
func spoilLogin(req *http.Request) {
	zero := base64.StdEncoding.EncodeToString(make([]byte, 32))
	kind, _, _ := strings.Cut(req.Header.Get("Authorization"), ":")
	switch {
	case strings.HasPrefix(kind, "SharedKey"):
		req.Header.Set("Authorization", kind+":"+zero)
	case kind != "":
		req.Header.Set("Authorization", "Bearer "+zero)
	default:
		q := req.URL.Query()
		q.Set("sig", zero)
		req.URL.RawQuery = q.Encode()
	}
}

// insecure sends requests without TLS and without a login, which would be in clear text.
func (x *trial) insecure() wire {
	w := x.wire
	w.spoil = func(req *http.Request) {
		req.URL.Scheme = "http"
		req.URL.RawQuery = ""
		req.Header.Del("Authorization")
	}
	return w
}

// httpOnly says why requests without TLS can't be tried, or "".
func (x *trial) httpOnly() string {
	if x.wire.login.URL("", nil).Scheme != "https" {
		return "the endpoint is http already"
	}
	return ""
}

// without says why something can't be tried without a kind of login, or "".
func (x *trial) without(kind string) string {
	if is := x.wire.login.Kind(); is != kind {
		return "it takes " + kind + ", and the login is " + is
	}
	return ""
}

// signed sends requests with a shared access signature that ends in a while. Without the account's key it is not to be
// used.
func (x *trial) signed(container, permissions string, ends time.Duration) wire {
	w := x.wire
	if l, err := x.wire.login.Signed(container, permissions, time.Now().Add(ends)); err == nil {
		w.login = l
	}
	return w
}

func conditions(ctx context.Context, x *trial) {
	present, missing, nowhere := x.container+"/conditions", x.container+"/missing", x.Prefix+"-nowhere/blob"
	x.must("PUT", x.put(ctx, present, []byte("kept")), "201")
	both := func(what, target string, w wire, outcomes string) {
		x.seeEach(ctx, what, w, methods[2:], target, outcomes, "If-Match", `"0x0"`)
	}
	both("a present blob", present, x.wire, "412")
	both("a missing blob", missing, x.wire, "412 or 404")
	both("no container", nowhere, x.wire, "404 ContainerNotFound")
	if why := x.without(blob.KeyLogin); why != "" {
		x.cannot("a login that may only read", why)
	} else {
		reader := x.signed(x.container, "r", time.Hour/2)
		both("a present blob by a reader", present, reader, "403")
		both("a missing blob by a reader", missing, reader, "403")
	}
	x.unchanged(ctx, "the blob", present, []byte("kept"))
}

func creations(ctx context.Context, x *trial) {
	small, large := x.container+"/creations/small", x.container+"/creations/large"
	x.see("the first", x.put(ctx, small, []byte("first"), "If-None-Match", "*"), "201")
	x.see("the second", x.put(ctx, small, []byte("second"), "If-None-Match", "*"), "409 or 412")
	x.unchanged(ctx, "the blob", small, []byte("first"))
	bodies := [2][]byte{bytes.Repeat([]byte("a"), 4<<20), bytes.Repeat([]byte("b"), 4<<20)}
	answers := each(2, 2, func(i int) answer { return x.put(ctx, large, bodies[i], "If-None-Match", "*") })
	winner := slices.IndexFunc(answers, func(a answer) bool { return a.is("201") })
	ok := winner >= 0 && answers[1-winner].is("409 or 412")
	if x.note("two at once", tally(answers), "one 201, one 409 or 412", ok); ok {
		x.unchanged(ctx, "the blob of the winner", large, bodies[winner])
	}
}

// ids are those of plans. Their first groups differ.
var ids = [...]string{"01a1fc0b-e448-7000-8000-000000000001", "01a1fc0c-e448-7000-8000-000000000002"}

func listings(ctx context.Context, x *trial) {
	var names []string
	for _, id := range ids {
		for _, tail := range []string{"", "-change-1", "-delete"} {
			names = append(names, "plans/"+id+tail)
		}
	}
	for i := range names { // not in their order
		x.must("PUT", x.put(ctx, x.container+"/"+names[len(names)-1-i], nil), "201")
	}
	x.pages(ctx, "order", "", names)
	x.pages(ctx, "maxresults=1", "&maxresults=1", names)
	x.pages(ctx, "startFrom", "&startFrom="+names[3], names[3:])
	x.pages(ctx, "startFrom between names", "&startFrom="+names[2]+"-", names[3:])
	groups := []string{"plans/01a1fc0b-", "plans/01a1fc0c-"}
	if x.hierarchical(ctx) {
		x.cannot("delimiter -", "the account is hierarchical, see 13")
		return
	}
	x.pages(ctx, "delimiter -", "&delimiter=-", groups)
	x.pages(ctx, "delimiter - and startFrom", "&delimiter=-&startFrom="+groups[1], groups[1:])
}

// pages adds what a listing of plans/ returns.
func (x *trial) pages(ctx context.Context, what, parameters string, want []string) {
	all, err := x.wire.list(ctx, x.container+"?restype=container&comp=list&prefix=plans/"+parameters)
	if err != nil {
		x.note(what, err.Error(), "200", false)
		return
	}
	names := all.names()
	if slices.Equal(names, want) {
		x.note(what, "in order and complete", "in order and complete", true)
		return
	}
	x.note(what, "["+strings.Join(names, " ")+"]", "["+strings.Join(want, " ")+"]", false)
}

func newborn(ctx context.Context, x *trial) {
	name, ok := x.fresh(ctx)
	if !ok {
		return
	}
	answers := each(atOnce, atOnce, func(i int) answer { return x.put(ctx, fmt.Sprintf("%s/newborn/%d", name, i), nil) })
	x.note("16 writes", tally(answers), "16 × 201", all(answers, "201"))
}

func metadata(ctx context.Context, x *trial) {
	pairs := [][2]string{
		{"MixedCase", "aBcDeF"}, {"percent", "100%25 %zz"}, {"equals", "a=b=="}, {"encoded", "=?UTF-8?B?w6Q=?="}, {"filler", ""},
	}
	size := 0
	for _, p := range pairs {
		size += len(p[0]) + len(p[1])
	}
	pairs[4][1] = strings.Repeat("x", 8<<10-size)
	var headers []string
	for _, p := range pairs {
		headers = append(headers, "X-Ms-Meta-"+p[0], p[1])
	}
	x.must("PUT", x.put(ctx, x.container+"/metadata", nil, headers...), "201")
	compare := func(what string, got map[string]string) {
		var wrong []string
		for _, p := range pairs {
			if value := got[strings.ToLower(p[0])]; value != p[1] {
				wrong = append(wrong, fmt.Sprintf("%s is %.30q", p[0], value))
			}
		}
		seen := "as written"
		if len(wrong) > 0 {
			seen = strings.Join(wrong, ", ")
		}
		x.note(what, seen, "as written", len(wrong) == 0)
	}
	got := map[string]string{}
	for name, values := range x.wire.send(ctx, "HEAD", x.container+"/metadata", nil).header {
		if name, ok := strings.CutPrefix(strings.ToLower(name), "x-ms-meta-"); ok {
			got[name] = strings.Join(values, ",")
		}
	}
	compare("HEAD", got)
	page, err := x.wire.list(ctx, x.container+"?restype=container&comp=list&prefix=metadata&include=metadata")
	if err != nil || len(page.Blobs.Blob) != 1 {
		x.note("list", fmt.Sprintf("%d blobs, %v", len(page.Blobs.Blob), err), "1 blob", false)
		return
	}
	clear(got)
	for _, p := range page.Blobs.Blob[0].Metadata.Pairs {
		got[strings.ToLower(p.XMLName.Local)] = p.Value
	}
	compare("list", got)
}

func ranges(ctx context.Context, x *trial) {
	for _, r := range []struct {
		what, body, want, status, content string
	}{
		{"an empty blob", "", "bytes=0-1023", "416 InvalidRange", "bytes */0"},
		{"a short blob", "short", "bytes=0-1023", "206", "bytes 0-4/5"},
		{"past the end", "short", "bytes=10-20", "416 InvalidRange", "bytes */5"},
	} {
		target := x.container + "/ranges"
		x.must("PUT", x.put(ctx, target, []byte(r.body)), "201")
		a := x.wire.send(ctx, "GET", target, nil, "X-Ms-Range", r.want)
		content := a.header.Get("Content-Range")
		ok := a.is(r.status) && (content == r.content || a.status == http.StatusRequestedRangeNotSatisfiable && content == "")
		x.note(r.what, strings.TrimSpace(a.String()+" "+content), r.status+" "+r.content, ok)
	}
}
