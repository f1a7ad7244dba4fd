package emulator_test

import (
	"crypto/md5" // the service's own checksum
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/crc64"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/planvault/azblob/emulator"
)

// testLimits sends requests at and beyond the limits of the service, and invalid ones. Each case has its own
// container.
func (f *fidelity) testLimits(t *testing.T) {
	cases := limitCases()
	for _, name := range slices.Sorted(maps.Keys(cases)) {
		f.answers.WriteString("\n" + name + "\n")
		m := newMemory()
		home := f.container(t, m)
		for _, a := range cases[name](home) {
			v := f.must(t, m, a)
			f.record(home, a, v)
			if a.op == emulator.PutBlob && v.reply[inAzurite].status < 300 {
				a = blobAsks()["head"](a.container, a.blob)
				f.record(home, a, f.must(t, m, a))
			}
			if t.Failed() {
				t.Fatalf("the case is %s", name)
			}
		}
	}
	f.answers.WriteString("\npages\n")
	f.testMarkerChains(t)
	f.testBetweenPages(t)
	f.testCreationTime(t)
	f.answers.WriteString("\nleases\n")
}

// account returns a request about the account, with pairs of names and values of parameters.
func account(op emulator.Op, method string, params ...string) *ask {
	a := &ask{op: op, method: method}
	for i := 0; i < len(params); i += 2 {
		a.where(params[i], params[i+1])
	}
	return a
}

func limitCases() map[string]func(home string) []*ask {
	list := func(home string, params ...string) *ask {
		a := containerAsks()["list"](home)
		for i := 0; i < len(params); i += 2 {
			a.where(params[i], params[i+1])
		}
		return a
	}
	get := blobAsks()["get"]
	head := blobAsks()["head"]
	sum := func(body string) string {
		s := md5.Sum([]byte(body))
		return digest(s[:])
	}
	crc := func(body string) string {
		return digest(binary.LittleEndian.AppendUint64(nil, crc64.Checksum([]byte(body), crc64.MakeTable(0x9A6C9329AC4BC9B5))))
	}

	return map[string]func(home string) []*ask{
		"leases": func(home string) []*ask {
			var asks []*ask
			released := func(a *ask) {
				asks = append(asks, a, leaseAsk(home, "release", "x-ms-lease-id", oneLease))
			}
			for _, duration := range []string{"", "-2", "-1", "0", "14", "15", "60", "61", "1.5", "x", "99999999999"} {
				released(acquireAsk(home, oneLease, duration))
			}
			for _, period := range []string{"-1", "0", "60", "61", "x"} {
				asks = append(asks, acquireAsk(home, oneLease, "-1"))
				released(leaseAsk(home, "break", "x-ms-lease-break-period", period))
			}
			for _, id := range []string{strings.ToUpper(oneLease), "lease"} {
				released(acquireAsk(home, id, "-1"))
			}
			for _, action := range []string{"", "steal", "RELEASE", "change"} {
				asks = append(asks, acquireAsk(home, oneLease, "-1"))
				released(leaseAsk(home, action, "x-ms-lease-id", oneLease, "x-ms-proposed-lease-id", anotherLease))
			}
			for _, action := range []string{"renew", "release"} {
				asks = append(asks, leaseAsk(home, action))
			}
			asks = append(asks, putAsk(home, "blob", "body"))
			for _, blob := range []string{"get", "head", "put", "delete"} {
				asks = append(asks, blobAsks()[blob](home, "blob").with("x-ms-lease-id", oneLease))
			}
			return asks
		},
		"metadata size": func(home string) []*ask {
			var asks []*ask
			for _, size := range []int{8191, 8192, 8193, 12000} {
				value := strings.Repeat("v", size-4)
				asks = append(asks,
					putAsk(home, fmt.Sprint(size), "body").with("x-ms-meta-name", value),
					putAsk(home, "set", "body"),
					(&ask{op: emulator.SetBlobMetadata, method: http.MethodPut, container: home, blob: "set"}).
						where("comp", "metadata").with("x-ms-meta-name", value),
					containerAsks()["set metadata"](home).with("x-ms-meta-name", value),
				)
			}
			return append(asks, putAsk(home, "headers", "body").with("x-ms-meta-name", strings.Repeat("v", 17_000)))
		},
		"metadata names": func(home string) []*ask {
			var asks []*ask
			for _, name := range []string{"a", "_a", "a1", "a_b", "UPPER", "1a", "a-b", "a.b", "", "a!"} {
				asks = append(asks,
					putAsk(home, "put"+name, "body").with("x-ms-meta-"+name, "value"),
					blobAsks()["set metadata"](home, "puta"), head(home, "puta"),
					list(home, "include", "metadata"),
				)
			}
			return asks
		},
		"metadata values": func(home string) []*ask {
			var asks []*ask
			for i, value := range []string{"", "a  b", "~!\"#$%&'()*+,-./:;<=>?@[]^`{|}", "ü", "日本", "a\tb", "\x7f", "=?utf-8?q?x?="} {
				if value == "\x7f" {
					continue // net/http does not send it
				}
				asks = append(asks,
					putAsk(home, fmt.Sprint(i), "body").with("x-ms-meta-name", value),
					list(home, "include", "metadata"),
				)
			}
			return asks
		},
		"container names": func(home string) []*ask {
			var asks []*ask
			for _, name := range []string{
				"ab", strings.Repeat("a", 64), "Abc", "a--b", "-ab", "ab-", "a_b", "a.b", "ü-ü", "$root", "$logs", "$web", "a%b",
			} {
				asks = append(asks, createAsk(name), list(name), get(name, "blob"))
			}
			return append(asks, createAsk(home+"-"+strings.Repeat("z", 62-len(home))))
		},
		"blob names": func(home string) []*ask {
			var asks []*ask
			for _, name := range []string{
				"a", strings.Repeat("n", 1024), strings.Repeat("n", 1025), strings.Repeat("ü", 500), "dot.", "slash/", "a//b", "/lead",
				"with blank", "per%cent", "per%25cent", "que?stion", "a+b=c&d", "ü/é/😀", "*'();:@,$#[]", "back\\slash", "tab\t", "<&>\"",
			} {
				asks = append(asks, putAsk(home, name, "body"), get(home, name), list(home, "prefix", name))
			}
			return append(asks, list(home), list(home, "delimiter", "/"))
		},
		"names that XML can't carry": func(home string) []*ask {
			return []*ask{
				putAsk(home, "a", "body"), putAsk(home, "b\x01", "body"), get(home, "b\x01"), putAsk(home, "b\uFFFE", "body"),
				list(home), list(home, "prefix", "a"), list(home, "delimiter", "\x01"),
			}
		},
		"max results": func(home string) []*ask {
			asks := []*ask{putAsk(home, "a", ""), putAsk(home, "b", "")}
			for _, n := range []string{"0", "1", "2", "3", "-1", "4999", "5000", "5001", "1000000", "x", "1.5", ""} {
				asks = append(asks, list(home, "maxresults", n),
					account(emulator.ListContainers, http.MethodGet, "comp", "list", "prefix", home, "maxresults", n))
			}
			return asks
		},
		"markers": func(home string) []*ask {
			return []*ask{
				putAsk(home, "a", ""), putAsk(home, "b", ""),
				list(home, "marker", ""),
				list(home, "marker", "no marker"),
				list(home, "marker", "2!"),
				account(emulator.ListContainers, http.MethodGet, "comp", "list", "prefix", home, "marker", "no marker"),
			}
		},
		"listings": func(home string) []*ask {
			var asks []*ask
			for _, name := range []string{"a", "a-b", "a/1", "a/2", "a/2/3", "a/2/4", "a0", "aa", "b", "b/", "B", "é", "ab", "abab"} {
				asks = append(asks, putAsk(home, name, name).with("x-ms-meta-name", "value of it"))
			}
			asks = append(asks, putAsk(home, "c", "without metadata"))
			for _, params := range [][]string{
				{},
				{"prefix", "a"},
				{"prefix", "a/"},
				{"prefix", "none"},
				{"prefix", "é"},
				{"prefix", "."},
				{"startFrom", "a/2"},
				{"startFrom", "a/2", "prefix", "a/"},
				{"startFrom", "0", "prefix", "a/"},
				{"startFrom", "zz"},
				{"startFrom", ""},
				{"delimiter", "/"},
				{"delimiter", "/", "prefix", "a/"},
				{"delimiter", "/", "prefix", "a"},
				{"delimiter", "/", "startFrom", "a/2"},
				{"delimiter", "/", "maxresults", "4"},
				{"delimiter", "b"},
				{"delimiter", "ab"},
				{"delimiter", ""},
				{"include", "metadata"},
				{"include", "metadata,copy,deleted,snapshots,uncommittedblobs,tags,versions"},
				{"include", "nonsense"},
				{"include", ""},
				{"timeout", "10"},
				{"timeout", "x"},
				{"nonsense", "1"},
			} {
				asks = append(asks, list(home, params...))
			}
			return append(asks,
				account(emulator.ListContainers, http.MethodGet, "comp", "list", "prefix", home),
				account(emulator.ListContainers, http.MethodGet, "comp", "list", "prefix", home, "include", "metadata"),
				containerAsks()["set metadata"](home),
				account(emulator.ListContainers, http.MethodGet, "comp", "list", "prefix", home, "include", "metadata"),
				account(emulator.ListContainers, http.MethodGet, "comp", "list", "prefix", "nothing-begins-so"),
			)
		},
		"digests": func(home string) []*ask {
			return []*ask{
				putAsk(home, "a", "body").with("Content-MD5", sum("body")),
				putAsk(home, "b", "body").with("Content-MD5", sum("other")),
				putAsk(home, "c", "body").with("Content-MD5", "AAAA"),
				putAsk(home, "d", "body").with("Content-MD5", "not base64"),
				putAsk(home, "e", "body").with("x-ms-blob-content-md5", sum("body")),
				putAsk(home, "f", "body").with("x-ms-blob-content-md5", sum("other")),
				putAsk(home, "g", "body").with("x-ms-blob-content-md5", sum("body")).with("Content-MD5", sum("other")),
				putAsk(home, "h", "body").with("x-ms-content-crc64", crc("body")),
				putAsk(home, "i", "body").with("x-ms-content-crc64", crc("other")),
				putAsk(home, "j", "body").with("x-ms-content-crc64", "AAAA"),
				putAsk(home, "k", "body").with("x-ms-content-crc64", crc("body")).with("Content-MD5", sum("body")),
			}
		},
		"content": func(home string) []*ask {
			all := putAsk(home, "all", "body")
			for _, name := range []string{"type", "encoding", "language", "disposition"} {
				all.with("x-ms-blob-content-"+name, "some/"+name)
			}
			return []*ask{
				all.with("x-ms-blob-cache-control", "no-cache"),
				get(home, "all"), list(home),
				putAsk(home, "plain", "body").with("Content-Type", "text/plain"),
				get(home, "plain"),
				putAsk(home, "plain headers", "body").with("Content-Encoding", "x").with("Content-Language", "y").with("Cache-Control", "z"),
				get(home, "plain headers"),
				putAsk(home, "both", "body").with("Content-Type", "text/plain").with("x-ms-blob-content-type", "text/html"),
				get(home, "both"),
				putAsk(home, "empty", ""), get(home, "empty"),
				putAsk(home, "hot", "").with("x-ms-access-tier", "Hot"), get(home, "hot"),
				putAsk(home, "cool", "").with("x-ms-access-tier", "Cool"),
				putAsk(home, "cold", "").with("x-ms-access-tier", "Cold"),
				putAsk(home, "tier", "").with("x-ms-access-tier", "Tepid"),
				putAsk(home, "archive", "").with("x-ms-access-tier", "Archive"),
				list(home),
				{op: emulator.PutBlob, method: http.MethodPut, container: home, blob: "no kind", body: []byte("body")},
				(&ask{op: emulator.PutBlob, method: http.MethodPut, container: home, blob: "kind", body: []byte("body")}).with("x-ms-blob-type", "FrogBlob"),
				(&ask{op: emulator.PutBlob, method: http.MethodPut, container: home, blob: "page"}).with("x-ms-blob-type", "PageBlob").with("x-ms-blob-content-length", "512"),
				(&ask{op: emulator.PutBlob, method: http.MethodPut, container: home, blob: "append"}).with("x-ms-blob-type", "AppendBlob"),
			}
		},
		"ranges": func(home string) []*ask {
			asks := []*ask{putAsk(home, "ten", "0123456789"), putAsk(home, "empty", "")}
			for _, spec := range []string{
				"bytes=0-0", "bytes=0-", "bytes=5-", "bytes=2-4", "bytes=0-9", "bytes=0-10", "bytes=9-9", "bytes=9-100", "bytes=10-10",
				"bytes=10-", "bytes=11-12", "bytes=100-", "bytes=3-1", "bytes=-5", "bytes=-", "bytes=a-b", "bytes=1-b", "bytes=0-1,3-4",
				"0-5", "bytes 0-5", "words=0-1", "bytes=0-99999999999999999999",
			} {
				for _, blob := range []string{"ten", "empty"} {
					asks = append(asks, get(home, blob).with("x-ms-range", spec))
				}
				asks = append(asks, get(home, "ten").with("Range", spec))
			}
			return append(asks,
				get(home, "ten").with("Range", "bytes=1-2").with("x-ms-range", "bytes=3-4"),
				get(home, "ten").with("x-ms-range", "bytes=3-4").with("x-ms-range-get-content-md5", "true"),
				get(home, "ten").with("x-ms-range", "bytes=3-4").with("x-ms-range-get-content-md5", "false"),
				get(home, "ten").with("x-ms-range-get-content-md5", "true"),
				get(home, "missing").with("x-ms-range", "bytes=3-4"),
				head(home, "ten").with("Range", "bytes=3-4"),
				head(home, "ten").with("x-ms-range", "bytes=3-4"),
			)
		},
		"authorization": func(home string) []*ask {
			forms := func(change func(*ask)) []*ask {
				var asks []*ask
				for _, a := range []*ask{
					get(home, "missing"), head(home, "missing"), putAsk(home, "new", "body"), list(home),
					account(emulator.ListContainers, http.MethodGet, "comp", "list", "prefix", home),
				} {
					change(a)
					asks = append(asks, a)
				}
				return asks
			}
			authorization := func(value string) func(*ask) {
				return func(a *ask) { a.tamper = map[string]string{"Authorization": value} }
			}
			at := func(d time.Duration) func(*ask) {
				return func(a *ask) { a.date = time.Now().Add(d).UTC().Format(http.TimeFormat) }
			}
			var asks []*ask
			for _, change := range []func(*ask){
				func(a *ask) { a.key = base64.StdEncoding.EncodeToString([]byte("another key")) },
				func(a *ask) { a.account = "nobody" },
				func(a *ask) { a.date = "none" },
				func(a *ask) { a.date = "yesterday" },
				at(-14 * time.Minute), at(-16 * time.Minute), at(14 * time.Minute), at(16 * time.Minute), at(-48 * time.Hour),
				authorization(""), authorization("SharedKey"), authorization("SharedKey devstoreaccount1:AAAA"),
				authorization("SharedKey nobody:AAAA"),
				authorization("SharedKeyLite devstoreaccount1:AAAA"), authorization("Basic AAAA"),
			} {
				asks = append(asks, forms(change)...)
			}
			for _, change := range [][2]string{
				{"method", "DELETE"}, {"path", "x"}, {"query", "timeout=5"}, {"x-ms-meta-a", "c"}, {"x-ms-meta-b", "c"},
				{"If-None-Match", ""}, {"Content-Type", "text/plain"}, {"Content-MD5", sum("body")}, {"Range", "bytes=0-1"},
				{"x-ms-date", time.Now().Add(time.Minute).UTC().Format(http.TimeFormat)}, {"x-ms-date", ""},
			} {
				a := putAsk(home, "new", "body").with("x-ms-meta-a", "b").with("If-None-Match", "*")
				a.tamper = map[string]string{change[0]: change[1]}
				asks = append(asks, a)
			}
			return append(asks, get(home, "new"))
		},
		"versions": func(home string) []*ask {
			var asks []*ask
			for _, version := range []string{"none", "2011-08-18", "2020-10-02", "2026-12-06", "3000-01-01", "x", "2026-13-45"} {
				for _, a := range []*ask{
					putAsk(home, "a", "body"), get(home, "a"), get(home, "missing"), list(home),
				} {
					a.version = version
					asks = append(asks, a)
				}
			}
			return append(asks,
				get(home, "a").with("x-ms-client-request-id", "it is me"),
				get(home, "missing").with("x-ms-client-request-id", "it is me"),
				head(home, "missing").with("x-ms-client-request-id", "it is me"),
				list(home).with("x-ms-client-request-id", "it is me"),
				createAsk(home).with("x-ms-client-request-id", "it is me"),
			)
		},
		"dates in conditions": func(home string) []*ask {
			asks := []*ask{putAsk(home, "a", "body")}
			for _, date := range []string{"yesterday", "2000-01-01", "2000-01-01T00:00:00Z", "Saturday, 01-Jan-00 00:00:00 GMT", "Sat Jan  1 00:00:00 2000", "0"} {
				asks = append(asks,
					get(home, "a").with("If-Modified-Since", date),
					putAsk(home, "a", "body").with("If-Unmodified-Since", date))
			}
			return asks
		},
		"batches": batchCases,
		"refused": func(home string) []*ask {
			unsupported := func(method, blob string, params ...string) *ask {
				a := account(emulator.Unsupported, method, params...)
				a.container, a.blob = home, blob
				return a
			}
			return []*ask{
				putAsk(home, "a", "body"), putAsk(home, "leased", "body"),
				get(home, "a").with("x-ms-lease-id", "00000000-0000-0000-0000-000000000000"),
				putAsk(home, "a", "body").with("x-ms-lease-id", "00000000-0000-0000-0000-000000000000"),
				blobAsks()["delete"](home, "a").with("x-ms-lease-id", "00000000-0000-0000-0000-000000000000"),
				containerAsks()["delete"](home).with("x-ms-lease-id", "00000000-0000-0000-0000-000000000000"),
				containerAsks()["properties"](home).with("x-ms-lease-id", "00000000-0000-0000-0000-000000000000"),
				unsupported(http.MethodPut, "leased", "comp", "lease").with("x-ms-lease-action", "acquire").with("x-ms-lease-duration", "15"),
				unsupported(http.MethodPut, "a", "comp", "snapshot"),
				unsupported(http.MethodGet, "a", "comp", "tags"),
				unsupported(http.MethodPut, "a", "comp", "properties"),
				unsupported(http.MethodPut, "a", "comp", "tier").with("x-ms-access-tier", "Hot"),
				unsupported(http.MethodPut, "b", "comp", "block", "blockid", "AAAA"),
				unsupported(http.MethodGet, "a", "comp", "blocklist"),
				unsupported(http.MethodPut, "a", "comp", "undelete"),
				unsupported(http.MethodGet, "", "restype", "container", "comp", "acl"),
				unsupported(http.MethodPut, "", "restype", "container", "comp", "lease").with("x-ms-lease-action", "break"),
				unsupported(http.MethodGet, "", "restype", "container", "comp", "blobs", "where", "a='b'"),
				unsupported(http.MethodPost, "a"),
				unsupported(http.MethodPatch, "a"),
				unsupported(http.MethodPost, "", "restype", "container"),
				unsupported(http.MethodGet, "", "restype", "nonsense"),
				unsupported(http.MethodGet, "", "restype", "container", "comp", "nonsense"),
				unsupported(http.MethodPut, "a", "comp", "nonsense"),
				get(home, "a").with("x-ms-nonsense", "1"),
				get(home, "a").where("nonsense", "1"),
				get(home, "a").with("x-ms-if-tags", "\"a\"='b'"),
				get(home, "a").where("snapshot", "2020-01-01T00:00:00.0000000Z"),
				blobAsks()["delete"](home, "a").with("x-ms-delete-snapshots", "nonsense"),
				blobAsks()["delete"](home, "a").with("x-ms-delete-snapshots", "only"),
				blobAsks()["delete"](home, "a").with("x-ms-delete-snapshots", "include"),
				createAsk(home).with("x-ms-blob-public-access", "blob"),
				get(home, "a").with("x-ms-encryption-key", "a"),
				get(home, "a").with("x-ms-meta-a", "b"),
				putAsk(home, "a", "body").with("x-ms-tags", "a=b"),
				putAsk(home, "a", "body").with("x-ms-copy-source", "http://x/"),
				list(home, "showonly", "deleted"),
				list(home, "endBefore", "x"),
			}
		},
		"account": func(string) []*ask {
			return []*ask{
				account(emulator.GetAccountInfo, http.MethodGet, "restype", "account", "comp", "properties"),
				account(emulator.GetAccountInfo, http.MethodHead, "restype", "account", "comp", "properties"),
				account(emulator.GetServiceProperties, http.MethodGet, "restype", "service", "comp", "properties"),
				account(emulator.GetServiceStats, http.MethodGet, "restype", "service", "comp", "stats"),
			}
		},
		"recreation": func(home string) []*ask {
			return []*ask{
				putAsk(home, "a", "body"),
				containerAsks()["delete"](home),
				get(home, "a"), head(home, "a"), list(home), putAsk(home, "a", "body"), containerAsks()["properties"](home),
				containerAsks()["delete"](home),
				createAsk(home),
				createAsk(home+"-b").with("x-ms-meta-layout", "2"), containerAsks()["properties"](home + "-b"),
				account(emulator.ListContainers, http.MethodGet, "comp", "list", "prefix", home, "include", "metadata"),
			}
		},
	}
}

// batchCases returns batches of deletes.
func batchCases(home string) []*ask {
	batch := func(items ...item) *ask {
		return (&ask{op: emulator.BatchDelete, method: http.MethodPost, container: home, items: items}).
			where("restype", "container").where("comp", "batch")
	}
	all := func(n int) []item {
		items := make([]item, n)
		for i := range items {
			items[i] = item{container: home, blob: fmt.Sprint(i)}
		}
		return items
	}
	at := func(blob string, header ...string) item {
		it := item{container: home, blob: blob}
		for i := 0; i < len(header); i += 2 {
			it.header = append(it.header, param{header[i], both(header[i+1])})
		}
		return it
	}
	ofAccount := batch(at("c"))
	ofAccount.container = ""
	ofAccount.query = ofAccount.query[1:]
	ofAccount.items = append(ofAccount.items, item{container: home + "-absent", blob: "c"}, at("e"))
	absent := batch(at("a"))
	absent.container = home + "-absent"
	absent.items[0].container = absent.container
	odd := batch(at("d"))
	odd.tamper = map[string]string{"Content-Type": "text/plain"}
	oddSigned := batch(at("d"))
	oddSigned.items = nil
	oddSigned.body = []byte("no batch")
	noBoundary := batch(at("d"))
	noBoundary.items = nil
	noBoundary.body = []byte("--x\r\n\r\n--x--\r\n")
	noBoundary.with("Content-Type", "multipart/mixed")
	textPlain := batch(at("d"))
	textPlain.items = nil
	textPlain.body = []byte("text")
	textPlain.with("Content-Type", "text/plain")
	return []*ask{
		putAsk(home, "a", "body"), putAsk(home, "b", "body"), putAsk(home, "c", "body"), putAsk(home, "d/e f", "body"), putAsk(home, "g", "body"),
		batch(at("a"), at("b", "If-Match", `"0x8D0000000000000"`), at("missing"), at("missing", "If-Match", "*"), at("missing", "If-None-Match", "*"), at("a")),
		batch(at("b", "If-None-Match", "*")),
		putAsk(home, "b", "body"),
		batch(at("b", "If-Match", "*", "If-None-Match", "*"), at("b", "If-Unmodified-Since", past), at("b", "If-Unmodified-Since", future)),
		ofAccount,
		batch(at("d/e f")),
		batch(all(256)...),
		batch(all(257)...),
		batch([]item{}...),
		batch(item{container: "other-" + home, blob: "a"}),
		batch(at("g"), item{container: "other-" + home, blob: "a"}),
		batch(item{container: home, blob: "g", unsigned: true}),
		batch(item{container: home, blob: "g", method: http.MethodGet}),
		batch(item{container: home, blob: "g", method: http.MethodPut, header: []param{{"x-ms-blob-type", both("BlockBlob")}}}),
		absent, odd, oddSigned, noBoundary, textPlain,
		blobAsks()["get"](home, "g"),
	}
}

// testMarkerChains pages through listings with every kind of grouping.
func (f *fidelity) testMarkerChains(t *testing.T) {
	m := newMemory()
	home := f.container(t, m)
	for _, name := range []string{"a", "a-b", "a/1", "a/2", "a/2/3", "a0", "b", "b/1", "b/2", "c", "c/d/e"} {
		f.must(t, m, putAsk(home, name, name))
	}
	for _, size := range []string{"1", "2", "3", "7"} {
		for _, params := range [][]string{
			nil, {"prefix", "a"}, {"startFrom", "a/2"}, {"delimiter", "/"}, {"delimiter", "/", "prefix", "a"}, {"delimiter", "/", "startFrom", "a/2"},
		} {
			marker := pair{}
			for page := 0; page == 0 || marker[inAzurite] != "" && page < 20; page++ {
				a := containerAsks()["list"](home).where("maxresults", size)
				for i := 0; i < len(params); i += 2 {
					a.where(params[i], params[i+1])
				}
				if page > 0 {
					a.query = append(a.query, param{"marker", marker})
				}
				v := f.must(t, m, a)
				f.record(home, a, v)
				for on, r := range v.reply {
					marker[on] = nextMarker(r.body)
				}
				if (marker[inAzurite] == "") != (marker[inEmulator] == "") {
					break
				}
			}
		}
	}
}

// testBetweenPages writes a blob whose name is between two pages of a listing.
func (f *fidelity) testBetweenPages(t *testing.T) {
	m := newMemory()
	home := f.container(t, m)
	f.must(t, m, putAsk(home, "a", ""))
	f.must(t, m, putAsk(home, "c", ""))
	a := containerAsks()["list"](home).where("maxresults", "1")
	v := f.must(t, m, a)
	f.must(t, m, putAsk(home, "b", ""))
	next := containerAsks()["list"](home)
	next.query = append(next.query, param{"marker", pair{nextMarker(v.reply[inAzurite].body), nextMarker(v.reply[inEmulator].body)}})
	f.record(home, next, f.must(t, m, next))
}

// testCreationTime checks the creation time of an overwritten blob.
func (f *fidelity) testCreationTime(t *testing.T) {
	m := newMemory()
	home := f.container(t, m)
	f.must(t, m, putAsk(home, "a", "first"))
	f.wait(1100 * time.Millisecond)
	f.must(t, m, putAsk(home, "a", "second"))
	v := f.must(t, m, blobAsks()["head"](home, "a"))
	for on, r := range v.reply {
		if created, modified := r.header.Get("X-Ms-Creation-Time"), r.header.Get("Last-Modified"); created != modified {
			t.Errorf("side %d: created %s, modified %s", on, created, modified)
		}
	}
}
