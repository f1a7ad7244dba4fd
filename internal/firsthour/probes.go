package firsthour

import (
	"cmp"
	"context"
	"crypto/md5" // the service's checksum of blobs is MD5
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"

	"github.com/planvault/azblob/internal/blob"
)

// probe is something to try on an account, what is expected, and what breaks in the vault if it differs.
type probe struct {
	tried, expected, breaks string
	try                     func(x *trial)
}

func newProbe(tried, expected, breaks string, try func(x *trial)) probe {
	return probe{tried, expected, breaks, try}
}

// probes are all probes in their order. docs/account.md has their texts, too.
var probes = []probe{
	newProbe("GET and HEAD; the versions that support startFrom",
		"200 with the service's headers; startFrom works in the vault's version",
		"no request works: open the vault with Options.APIVersion", versions),
	newProbe("Date and Last-Modified of 50 writes", "they differ by at most 5 seconds",
		"ages are wrong: make grace periods and TTLs longer than the lag", dates),
	newProbe("HEAD, GET, PUT and DELETE that must be refused",
		"401 or 403 for a wrong login, 400 for a wrong version or http, with x-ms-request-id",
		"a refusal is retried, or its error names no remedy", refusals),
	newProbe(`PUT and DELETE with If-Match "0x0"`, "412, 404 for what is missing, 403 for a reader; nothing changes",
		"Writes and Deletes of PingOptions report wrong rights, or change a blob", conditions),
	newProbe("PUT with If-None-Match *: twice, and two at once with 4 MiB",
		"one 201, the other 409 or 412; the blob is the first one's", "two Creates of one plan succeed", creations),
	newProbe("listings: order, maxresults=1, startFrom, delimiter -",
		"every name once, in byte order; startFrom is inclusive; the delimiter groups names",
		"listings lose plans, or cost more", listings),
	newProbe("a batch of 256 deletes, with each kind of login",
		"202 with the right ETag or none, 412 with a wrong one, 404 for a missing blob",
		"Delete removes blobs one by one", batches),
	newProbe("a container's lease of 15 s, and its deletion",
		"the same ID acquires it again; no delete without the lease or after it; the name is free within 5 minutes",
		"Expire drops no days, or days that it does not hold", leases),
	newProbe("16 writes right after Create Container", "201 for all, or at least within 10 seconds",
		"the first plans of a day wait for up to 10 seconds, and fail if it takes longer", newborn),
	newProbe("8 KiB of metadata: mixed case, %, =, RFC 2047", "HEAD and listings return what was written",
		"listings show wrong names if they are not ASCII", metadata),
	newProbe("ranges of an empty and of a short blob; If-None-Match",
		"416 InvalidRange for an empty blob and past the end, otherwise 206 with Content-Range; 304 ConditionNotMet",
		"listings can't read catalogues; reads of running plans wait", ranges),
	newProbe("a ramp of writes: new container, warm, across midnight", "no refusal, or 503 with x-ms-request-id",
		"vaults do not slow down when they should", ramp),
	newProbe("hierarchical accounts", "200 or 400 for delimiter -", "listings fail there", kinds),
	newProbe("what the account keeps: versions, snapshots, deleted blobs",
		"a version for each write; 409 SnapshotsPresent for a blob with snapshots; a deleted blob comes back",
		"docs/account.md is wrong about kept copies", kept),
	newProbe("a listing of 5,001 blobs", "a page of at most 5,000 with a marker; every name once, in byte order",
		"listings lose plans", fullPages),
	newProbe("a body of 8 MiB", "201 in one request, 400 Md5Mismatch for another MD5; it is read as it was written",
		"large plans can't be stored, or are damaged", largeBody),
}

// What requests have in common, and the refusal of a write whose condition does not hold.
var (
	reads     = []string{"HEAD", "GET"}
	writes    = []string{"PUT", "DELETE"}
	ifMissing = []string{"If-None-Match", "*"}
	ifNever   = []string{"If-Match", `"0x0"`}
)

const (
	exists = "409 or 412"
	asList = ofContainer + "&comp=list&prefix="
)

// startFromVersions are versions around that which brought startFrom, up to that of the SDK.
var startFromVersions = [...]string{"2025-11-05", "2026-02-06", "2026-04-06", "2026-06-06", "2026-12-06"}

func versions(x *trial) {
	target := x.container + "/versions/a"
	x.put(target, "")
	x.put(x.container+"/versions/b", "")
	for _, method := range reads {
		a := x.send(method, target, nil)
		x.note(method, a.String(), "200", a.is("200") && a.header.Get("X-Ms-Version") != "" && a.header.Get("ETag") != "")
	}
	w := x.wire
	w.version = startFromVersions[len(startFromVersions)-1]
	x.askBy(reads, "the SDK's version "+w.version, w, target, "200 or 400")
	for _, w.version = range startFromVersions {
		names, _, err := w.list(x.container + asList + "versions/&startFrom=versions/b")
		if err == nil && slices.Equal(names, []string{"versions/b"}) {
			x.note("startFrom", "works from version "+w.version, "in version "+x.version, x.version >= w.version)
			return
		}
	}
	x.note("startFrom", "works in no version", "in version "+x.version, false)
}

func dates(x *trial) {
	const most = 5 * time.Second
	var low, high time.Duration
	for range 50 {
		a := x.send("PUT", x.container+"/dates", nil)
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

func refusals(x *trial) {
	const denied = "401 or 403"
	target := x.container + "/refusals"
	x.put(target, "")
	ask := func(what, outcomes string, change func(w *wire)) {
		w := x.wire
		change(&w)
		x.askBy(slices.Concat(reads, writes), what, w, target, outcomes, ifNever...) // what is not refused changes nothing
	}
	ask("wrong login", denied, func(w *wire) { w.spoil = spoilLogin })
	ask("date 20 minutes off", denied, func(w *wire) {
		w.late = 20 * time.Minute
		if kind := x.login.Kind(); kind != blob.KeyLogin {
			w.cannot = "the login is " + kind + ", which does not sign the date"
		}
	})
	ask("expired signature", denied, func(w *wire) { *w = x.signed(x.container, "rwd", -time.Hour) })
	ask("unknown version", "400", func(w *wire) { w.version = "2099-01-01" })
	ask("http", "400 or 401 or 403", func(w *wire) {
		w.spoil = func(req *http.Request) { // a login would be in clear text
			req.URL.Scheme, req.URL.RawQuery = "http", ""
			req.Header.Del("Authorization")
		}
		if w.login.URL("").Scheme != "https" {
			w.cannot = "the endpoint is http already"
		}
	})
}

// secret matches what authorizes a request, after what says how it does.
var secret = regexp.MustCompile(`(^SharedKey .*:|^Bearer |\bsig=)[^&]+`)

// spoilLogin makes what authorizes a request wrong.
func spoilLogin(req *http.Request) {
	spoilt := "${1}" + strings.Repeat("A", 44)
	req.URL.RawQuery = secret.ReplaceAllString(req.URL.RawQuery, spoilt)
	if login := req.Header.Get("Authorization"); login != "" {
		req.Header.Set("Authorization", secret.ReplaceAllString(login, spoilt))
	}
}

// signed sends requests with a shared access signature that ends in a while.
func (x *trial) signed(container, permissions string, ends time.Duration) wire {
	w := x.wire
	if x.login.Kind() == blob.TokenLogin && container != "" {
		x.sent(blob.ClassOther) // for the key
	}
	var err error
	if w.login, err = x.login.Signed(x.ctx, x.version, container, permissions, time.Now().Add(ends)); err != nil {
		w.cannot = err.Error()
	}
	return w
}

func conditions(x *trial) {
	present, missing := x.container+"/conditions", x.container+"/missing"
	x.put(present, "kept")
	x.askBy(writes, "a present blob", x.wire, present, "412", ifNever...)
	x.askBy(writes, "a missing blob", x.wire, missing, "412 or 404", ifNever...)
	x.askBy(writes, "no container", x.wire, x.prefix+"-nowhere/blob", "404 ContainerNotFound", ifNever...)
	reader := x.signed(x.container, "r", time.Hour/2)
	x.askBy(writes, "a present blob by a reader", reader, present, "403", ifNever...)
	x.askBy(writes, "a missing blob by a reader", reader, missing, "403", ifNever...)
	x.unchanged("the blob", present, "kept")
}

func creations(x *trial) {
	small, large := x.container+"/creations/small", x.container+"/creations/large"
	x.see("the first", x.send("PUT", small, []byte("first"), ifMissing...), "201")
	x.see("the second", x.send("PUT", small, []byte("second"), ifMissing...), exists)
	x.unchanged("the blob", small, "first")
	bodies := [2]string{strings.Repeat("a", 4<<20), strings.Repeat("b", 4<<20)}
	answers, texts := each(2, 2, func(i int) answer { return x.send("PUT", large, []byte(bodies[i]), ifMissing...) })
	winner := slices.IndexFunc(answers, func(a answer) bool { return a.is("201") })
	ok := winner >= 0 && answers[1-winner].is(exists)
	if x.note("two at once", tally(texts), "one 201, one "+exists, ok); ok {
		x.unchanged("the blob of the winner", large, bodies[winner])
	}
}

// ids are those of plans. Their first groups differ.
var ids = [...]string{"01a1fc0b-e448-7000-8000-000000000001", "01a1fc0c-e448-7000-8000-000000000002"}

func listings(x *trial) {
	var names []string
	for _, id := range ids {
		names = append(names, "plans/"+id, "plans/"+id+"-change-1", "plans/"+id+"-delete")
	}
	for _, name := range slices.Backward(names) { // not in their order
		x.put(x.container+"/"+name, "")
	}
	x.pages("order", "", names)
	x.pages("maxresults=1", "&maxresults=1", names)
	x.pages("startFrom", "&startFrom="+names[3], names[3:])
	x.pages("startFrom between names", "&startFrom="+names[2]+"-", names[3:])
	if x.info().header.Get(hierarchical) == "true" {
		x.skip("delimiter -", "the account is hierarchical, see 13")
		return
	}
	groups := []string{"plans/01a1fc0b-", "plans/01a1fc0c-"}
	x.pages("delimiter -", "&delimiter=-", groups)
	x.pages("delimiter - and startFrom", "&delimiter=-&startFrom="+groups[1], groups[1:])
}

// pages adds what a listing of plans/ returns.
func (x *trial) pages(what, parameters string, want []string) {
	names, _, err := x.list(x.container + asList + "plans/" + parameters)
	switch {
	case err != nil:
		x.note(what, err.Error(), "200", false)
	case slices.Equal(names, want):
		x.note(what, "in order and complete", "in order and complete", true)
	default:
		x.note(what, fmt.Sprint(names), fmt.Sprint(want), false)
	}
}

// deletes are those of a batch, by turns, and the answers to them.
var deletes = [...]struct{ what, etag, expected string }{
	{"right ETag", "", "202"}, {"wrong ETag", "0x0", "412"}, {"no ETag", "", "202"}, {"missing blob", "", "404"},
}

func batches(x *trial) {
	own := x.login.Kind()
	x.batch("by "+own, x.wire, 256)
	for _, kind := range []string{blob.KeyLogin, blob.TokenLogin} {
		if kind != own {
			x.skip("by "+kind, "the login is "+own)
		}
	}
	x.batch("by a signature of the account", x.signed("", "rwdlc", time.Hour/2), len(deletes))
	x.batch("by a signature of the container", x.signed(x.container, "rwdl", time.Hour/2), len(deletes))
}

// batch stores blobs, and deletes n in a batch.
func (x *trial) batch(what string, w wire, n int) {
	if w.cannot != "" {
		x.skip(what, w.cannot)
		return
	}
	targets := make([]blob.Target, n)
	each(atOnce, n, func(i int) (a answer) {
		kind := deletes[i%len(deletes)]
		targets[i] = blob.Target{Name: fmt.Sprintf("batch/%d", i), ETag: kind.etag}
		if kind.what != "missing blob" {
			a = x.send("PUT", x.container+"/"+targets[i].Name, nil)
		}
		if kind.what == "right ETag" {
			targets[i].ETag = strings.Trim(a.header.Get("ETag"), `"`)
		}
		return a
	})
	w.sent(blob.ClassOther)
	ctx, cancel := context.WithTimeout(w.ctx, answerLimit)
	defer cancel()
	outcomes, err := w.login.DeleteBatch(ctx, w.version, x.container, targets)
	if err != nil {
		x.note(what, outcome(err), "202", false)
		return
	}
	ok := true
	var seen, expected []string
	for k, kind := range deletes {
		var of []string
		for i := k; i < n; i += len(deletes) {
			of = append(of, outcome(outcomes[i]))
			ok = ok && oneOf(of[len(of)-1], kind.expected)
		}
		seen, expected = append(seen, kind.what+" "+tally(of)), append(expected, kind.what+" "+kind.expected)
	}
	x.note(what, strings.Join(seen, ", "), strings.Join(expected, ", "), ok)
}

// outcome describes the outcome of a delete in a batch.
func outcome(err error) string {
	if err == nil {
		return "202"
	} else if refusal, ok := errors.AsType[*azcore.ResponseError](err); ok {
		return strings.TrimSpace(fmt.Sprint(refusal.StatusCode, " ", refusal.ErrorCode))
	}
	return err.Error()
}

// Times of the probe of leases: beyond the end of one, between two looks at a name that is not free yet, and the longest
// that it may take.
const (
	leaseOver = 17 * time.Second
	freePause = 5 * time.Second
	freeLimit = 5 * time.Minute
)

func leases(x *trial) {
	if !x.fresh() {
		return
	}
	at := x.newest() + ofContainer
	acquire := func(what string) {
		x.ask(what, "201", "PUT", at+"&comp=lease",
			"X-Ms-Lease-Action", "acquire", "X-Ms-Lease-Duration", "15", "X-Ms-Proposed-Lease-Id", x.lease[1])
	}
	acquire("acquire")
	acquire("acquire again")
	if x.Wait(x.ctx, leaseOver) != nil {
		return
	}
	x.ask("delete when the lease is over", "412", "DELETE", at, x.lease...)
	acquire("acquire after that")
	x.ask("delete without the lease", "412", "DELETE", at)
	x.ask("delete with it", "202", "DELETE", at, x.lease...)
	x.freed(x.newest())
}

// freed adds what the service says of a container that is being deleted, until its name is free.
func (x *trial) freed(name string) {
	const being = "409 ContainerBeingDeleted"
	for after := time.Duration(0); ; after += freePause {
		a := x.send("PUT", name+ofContainer, nil, "X-Ms-Meta-"+mark, "1")
		switch {
		case a.is("201"):
			x.note("the name is free", "within "+after.String(), "within "+freeLimit.String(), true)
			return
		case after >= freeLimit:
			x.note("the name is free", "not within "+freeLimit.String(), "within "+freeLimit.String(), false)
			return
		case after == 0:
			x.see("create again", a, being)
			x.ask("GET of the container", "404", "GET", name+ofContainer)
			x.ask("GET of a blob", "404", "GET", name+"/blob")
			names, _, err := x.list("?comp=list&prefix=" + x.prefix)
			x.note("listed still", fmt.Sprint(slices.Contains(names, name)), "false", err == nil && !slices.Contains(names, name))
		case !a.is(being):
			x.see("create again", a, being)
			return
		}
		if x.Wait(x.ctx, freePause) != nil {
			return
		}
	}
}

// atOnce is how many requests are under way at a time.
const atOnce = 16

// newFor is how long vaults wait for a container that is not there yet, and newbornLimit how long the probe does.
const (
	newFor       = 10 * time.Second
	newbornLimit = time.Minute
)

func newborn(x *trial) {
	if !x.fresh() {
		return
	}
	_, texts := each(atOnce, atOnce, func(i int) answer {
		return x.send("PUT", fmt.Sprintf("%s/newborn/%d", x.newest(), i), nil)
	})
	x.note("16 writes", tally(texts), "201 for all", tally(texts) == "201")
	for after := time.Duration(0); after <= newbornLimit; after += time.Second {
		if a := x.send("PUT", x.newest()+"/newborn/later", nil); !a.is("404 ContainerNotFound") {
			x.note("the container is there", "within "+after.String(), "within "+newFor.String(), after <= newFor)
			return
		}
		if x.Wait(x.ctx, time.Second) != nil {
			return
		}
	}
	x.note("the container is there", "not within "+newbornLimit.String(), "within "+newFor.String(), false)
}

func metadata(x *trial) {
	pairs := []string{"MixedCase", "aBcDeF", "percent", "100%25 %zz", "equals", "a=b==", "encoded", "=?UTF-8?B?w6Q=?=", "filler", ""}
	pairs[9] = strings.Repeat("x", 8<<10-len(strings.Join(pairs, "")))
	var headers []string
	for p := range slices.Chunk(pairs, 2) {
		headers = append(headers, "X-Ms-Meta-"+p[0], p[1])
	}
	target := x.container + "/metadata"
	x.put(target, "", headers...)
	compare := func(what string, value func(name string) string) {
		var wrong []string
		for p := range slices.Chunk(pairs, 2) {
			if got := value(p[0]); got != p[1] {
				wrong = append(wrong, fmt.Sprintf("%s is %.30q", p[0], got))
			}
		}
		x.note(what, cmp.Or(strings.Join(wrong, ", "), "as written"), "as written", len(wrong) == 0)
	}
	header := x.send("HEAD", target, nil).header
	compare("HEAD", func(name string) string { return header.Get("X-Ms-Meta-" + name) })
	_, items, err := x.list(x.container + asList + "metadata&include=metadata")
	if err != nil || len(items) != 1 {
		x.note("list", fmt.Sprintf("%d blobs, %v", len(items), err), "1 blob", false)
		return
	}
	compare("list", func(name string) string { return items[0].Metadata[strings.ToLower(name)] })
}

func ranges(x *trial) {
	target := x.container + "/ranges"
	ask := func(what, body, want, status, content string) {
		x.put(target, body)
		a := x.send("GET", target, nil, "X-Ms-Range", want)
		got := a.header.Get("Content-Range")
		ok := a.is(status) && (got == content || got == "" && a.is("416"))
		x.note(what, strings.TrimSpace(a.String()+" "+got), status+" "+content, ok)
	}
	ask("an empty blob", "", "bytes=0-1023", "416 InvalidRange", "bytes */0")
	ask("a short blob", "short", "bytes=0-1023", "206", "bytes 0-4/5")
	ask("past the end", "short", "bytes=10-20", "416 InvalidRange", "bytes */5")
	etag := x.send("HEAD", target, nil).header.Get("ETag")
	x.ask("the version that is there", "304 ConditionNotMet", "GET", target, "If-None-Match", etag)
}

// RampWrites is how many blobs a ramp writes at most, and RampTime how long it takes.
const (
	RampWrites = 60_000
	RampTime   = time.Minute
)

// rampWorkers is how many writes are under way at the end of a ramp.
const rampWorkers = 256

func ramp(x *trial) {
	if !x.Ramp {
		x.skip("writes", "--ramp was not given")
		return
	}
	for i, what := range []string{"a new container", "a warm container", "across midnight"} {
		if i != 1 && !x.fresh() {
			return
		}
		workers := []int{4, 4, rampWorkers}[i]
		written, took, refused := x.climb(fmt.Sprintf("%s/ramp/%d-", x.newest(), i), workers)
		if refused == nil {
			x.note(what, fmt.Sprintf("no refusal of %d writes in %v", written, took), "no refusal, or 503", true)
		} else {
			x.note(what, fmt.Sprintf("%s after %d writes in %v", refused, written, took), "no refusal, or 503", refused.is("503"))
		}
	}
}

// climb writes with ever more workers, until the service refuses a write or a third of the ramp is used up.
func (x *trial) climb(names string, workers int) (written int, took time.Duration, refused *answer) {
	began := time.Now()
	for written < RampWrites/3 && time.Since(began) < RampTime/3 && x.ctx.Err() == nil && refused == nil {
		n := min(workers*32, RampWrites/3-written)
		answers, _ := each(workers, n, func(i int) answer { return x.send("PUT", fmt.Sprintf("%s%06d", names, written+i), nil) })
		if i := slices.IndexFunc(answers, func(a answer) bool { return a.status != http.StatusCreated }); i >= 0 {
			n, refused = i, &answers[i]
		}
		written, workers = written+n, min(2*workers, rampWorkers)
	}
	return written, time.Since(began).Round(100 * time.Millisecond), refused
}

// hierarchical is the header that says whether an account has a hierarchical namespace.
const hierarchical = "X-Ms-Is-Hns-Enabled"

// info asks what kind of account this is.
func (x *trial) info() answer { return x.send("GET", "?restype=account&comp=properties", nil) }

// kinds tries what only some accounts have.
func kinds(x *trial) {
	info := x.info()
	switch {
	case !info.is("200"):
		x.skip("hierarchical", "the login may not ask what the account is: "+info.String())
	case info.header.Get(hierarchical) == "true":
		x.ask("delimiter -", "200 or 400", "GET", x.container+asList+"plans/&delimiter=-")
		last := "plans/" + ids[1]
		x.pages("startFrom", "&startFrom="+last, []string{last, last + "-change-1", last + "-delete"})
		x.ask("PUT with If-None-Match", "201", "PUT", x.container+"/directory/blob", ifMissing...)
		x.ask("again", exists, "PUT", x.container+"/directory/blob", ifMissing...)
	default:
		x.skip("hierarchical", "the account is flat")
	}
}

func kept(x *trial) {
	target, deleted := x.container+"/kept/a", x.container+"/kept/b"
	first, second := x.send("PUT", target, []byte("1")), x.send("PUT", target, []byte("2"))
	const version = "X-Ms-Version-Id"
	if a, b := first.header.Get(version), second.header.Get(version); a+b == "" {
		x.skip("versions", lacks(second, "201"))
	} else {
		x.note("versions", fmt.Sprintf("%q and %q", a, b), "two", a != "" && b != "" && a != b)
	}
	if a := x.send("PUT", target+"?comp=snapshot", nil); a.is("201") {
		x.ask("delete a blob with a snapshot", "409 SnapshotsPresent", "DELETE", target)
		x.ask("delete it with its snapshot", "202", "DELETE", target, "X-Ms-Delete-Snapshots", "include")
	} else {
		x.skip("snapshots", lacks(a, "201"))
	}
	x.put(deleted, "kept")
	x.send("DELETE", deleted, nil)
	a := x.send("GET", x.container+asList+"kept/b&include=deleted", nil)
	if !a.is("200") || !strings.Contains(string(a.body), "<Deleted>true</Deleted>") {
		x.skip("deleted blobs", lacks(a, "200"))
		return
	}
	x.ask("undelete", "200", "PUT", deleted+"?comp=undelete")
	x.unchanged("the deleted blob", deleted, "kept")
}

// lacks says that the account has none of something, and the answer that shows it if that is no success.
func lacks(a answer, success string) string {
	if a.is(success) {
		return "the account keeps none"
	}
	return "the account keeps none: " + a.String()
}

func fullPages(x *trial) {
	const atOnce = 64
	names := make([]string, blob.MaxPage+1)
	for i := range names {
		names[i] = fmt.Sprintf("plans/pages-%04d", i)
	}
	_, texts := each(atOnce, len(names), func(i int) answer { return x.send("PUT", x.container+"/"+names[i], nil) })
	if written := tally(texts); written != "201" {
		x.note("writes", written, "201 for all", false)
	}
	page := x.send("GET", x.container+asList+"plans/pages-", nil)
	items, next, err := blob.ReadPage(page.body)
	ok := page.is("200") && err == nil && next != "" && len(items) <= blob.MaxPage
	x.note("the first page", fmt.Sprintf("%s with %d blobs, marker %t", page, len(items), next != ""), "200 with at most 5,000 blobs, marker true", ok)
	x.pages("all pages", "pages-", names)
}

func largeBody(x *trial) {
	body := []byte(strings.Repeat("8 MiB of", 1<<20))
	sum, target := md5.Sum(body), x.container+"/large"
	ask := func(what, outcomes string, sum [md5.Size]byte) {
		x.see(what, x.send("PUT", target, body, "Content-MD5", base64.StdEncoding.EncodeToString(sum[:])), outcomes)
	}
	ask("PUT", "201", sum)
	ask("PUT with another MD5", "400 Md5Mismatch", [md5.Size]byte{})
	x.unchanged("the blob", target, string(body))
}
