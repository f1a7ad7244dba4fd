package firsthour_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/azurite/azuritetest"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/firsthour"
	"github.com/planvault/azblob/internal/goldentest"
	"github.com/planvault/azblob/internal/merge"
)

// probed runs all probes, and returns what they found.
func probed(ctx context.Context, c firsthour.Config) (findings []firsthour.Finding, err error) {
	err = firsthour.Run(ctx, c, func(f firsthour.Finding) error {
		findings = append(findings, f)
		return nil
	})
	return findings, err
}

// onEmulator runs all probes with the account's key, in virtual time, and checks that nothing is left.
func onEmulator(t *testing.T, server *emulator.Server, c firsthour.Config) []firsthour.Finding {
	t.Helper()
	if c.Credential == nil && c.Endpoint == "" {
		c.ConnectionString = server.ConnectionString()
	}
	if c.Transport == nil {
		c.Transport = server.Transport()
	}
	findings, err := probed(t.Context(), c)
	if err != nil || len(findings) != firsthour.Count() {
		t.Fatalf("%d findings, %v", len(findings), err)
	}
	if left := slices.Collect(server.Containers()); len(left) > 0 {
		t.Errorf("containers are left: %v", left)
	}
	return findings
}

const page = "../../docs/account.md"

// TestPage compares the table of the first hour in the documentation with runs on the three services.
func TestPage(t *testing.T) {
	efforttest.NotShort(t, "it needs Azurite")
	var reports [3][]firsthour.Finding
	for i, options := range [][]emulator.Options{nil, {emulator.Options{RealAnswers: 1}}} {
		synctest.Test(t, func(t *testing.T) {
			reports[i] = onEmulator(t, emulator.New(merge.Fields(options...)), firsthour.Config{})
		})
	}
	a := azuritetest.Start(t)
	var err error
	if reports[2], err = probed(t.Context(), firsthour.Config{ConnectionString: a.ConnectionString(), Transport: a.HTTPClient(), Wait: a.Advance}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	const head = "| probe | emulator | with real answers | Azurite | if it differs |\n| --- | --- | --- | --- | --- |\n"
	before, rest, found := strings.Cut(string(text), head)
	_, after, ended := strings.Cut("\n"+rest, "\n\n")
	if !found || !ended {
		t.Fatal("the page has no table of the first hour")
	}
	var rows strings.Builder
	for i, f := range reports[0] {
		fmt.Fprintf(&rows, "| %d. %s |", f.Number, f.Tried)
		for _, report := range reports {
			fmt.Fprintf(&rows, " %s |", cell(report[i]))
		}
		fmt.Fprintf(&rows, " %s |\n", f.Breaks)
	}
	goldentest.Equal(t, page, []byte(before+head+rows.String()+"\n"+after))
}

// cell is what the page says of a finding.
func cell(f firsthour.Finding) string {
	switch {
	case f.Verdict == firsthour.AsExpected:
		return "ok"
	case f.Number == 12: // it takes a minute
		return f.Verdict
	}
	return f.Verdict + ": " + f.Summary(true)
}

// network changes requests on their way, and answers on theirs.
type network struct {
	to      policy.Transporter
	request func(*http.Request)
	answer  func(*http.Request, *http.Response)
}

func (n network) Do(req *http.Request) (*http.Response, error) {
	if n.request != nil {
		n.request(req)
	}
	resp, err := n.to.Do(req)
	if err == nil && n.answer != nil {
		n.answer(req, resp)
	}
	return resp, err
}

// token is a credential whose tokens the emulator accepts.
type token struct{}

func (token) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	end := time.Now().Add(time.Hour)
	return azcore.AccessToken{Token: emulator.NewClaims("tenant", emulator.Contributor, end).Token(), ExpiresOn: end}, nil
}

const endpoint = "https://devstoreaccount1.blob.core.windows.net"

// TestDifferences damages what the service answers. Only the probes of what is damaged say so.
func TestDifferences(t *testing.T) {
	efforttest.NotShort(t, "TestKindsOfAccounts sends the same requests")
	without := func(header string) func(*http.Request) { return func(r *http.Request) { r.Header.Del(header) } }
	parameter := func(name, value string) func(*http.Request) {
		return func(r *http.Request) {
			if q := r.URL.Query(); q.Has(name) {
				q.Set(name, value)
				r.URL.RawQuery = q.Encode()
			}
		}
	}
	set := func(method, path, header string, value func(*http.Response) string) func(*http.Request, *http.Response) {
		return func(req *http.Request, resp *http.Response) {
			if req.Method == method && strings.Contains(req.URL.String(), path) {
				resp.Header.Set(header, value(resp))
			}
		}
	}
	status := func(path string, code int) func(*http.Request, *http.Response) {
		return func(req *http.Request, resp *http.Response) {
			if strings.Contains(req.URL.String(), path) {
				resp.StatusCode = code
				resp.Header.Del("X-Ms-Error-Code")
			}
		}
	}
	startLater := func(r *http.Request) {
		if strings.Contains(r.URL.RawQuery, "prefix=plans/pages-") {
			r.URL.RawQuery += "&startFrom=plans/pages-0001"
		}
	}
	text := func(s string) func(*http.Response) string { return func(*http.Response) string { return s } }
	late := func(resp *http.Response) string {
		modified, _ := http.ParseTime(resp.Header.Get("Last-Modified"))
		return modified.Add(-6 * time.Second).Format(http.TimeFormat)
	}
	type damage struct {
		number  int
		says    string
		request func(*http.Request)
		answer  func(*http.Request, *http.Response)
		rule    *emulator.Rule
	}
	damages := map[string]damage{
		"startFrom is ignored":      {number: 1, says: "startFrom: works in no version", request: parameter("startFrom", "")},
		"no version":                {number: 1, says: "HEAD: 200 (no version)", answer: set("HEAD", "versions/a", "X-Ms-Version", text(""))},
		"Date lags":                 {number: 2, says: "0s to 6s", answer: set("PUT", "dates", "Date", late)},
		"a proxy refuses":           {number: 3, says: "GET 401 InvalidAuthenticationInfo without x-ms-request-id", answer: set("GET", "refusals", "X-Ms-Request-Id", text(""))},
		"conditions are ignored":    {number: 4, says: "PUT 201, DELETE 202; the blob: 404", request: without("If-Match")},
		"creations are not guarded": {number: 5, says: "the second: 201", request: without("If-None-Match")},
		"no delimiter":              {number: 6, says: "delimiter -: [plans/01a1fc0b-e448", request: parameter("delimiter", "/")},
		"startFrom is refused":      {number: 6, says: "startFrom: 400 UnsupportedQueryParameter", rule: emulator.On(emulator.ListBlobs).Path("first-hour-*").Nth(9).Do(emulator.Answer(400, "UnsupportedQueryParameter"))},
		"no batches":                {number: 7, says: "by a token: 501", rule: emulator.On(emulator.BatchDelete).Do(emulator.Answer(501, "NotImplemented"))},
		"half a batch":              {number: 7, says: "62 × 404 BlobNotFound, 2 × the answer to a batch lacks an item", rule: emulator.On(emulator.BatchDelete).Do(emulator.CutBatch(250))},
		"no lease twice":            {number: 8, says: "acquire again: 409 LeaseAlreadyPresent", rule: emulator.On(emulator.LeaseContainer).Nth(3).Do(emulator.Answer(409, "LeaseAlreadyPresent"))},
		"deletions never end":       {number: 8, says: "not within 5m0s", rule: emulator.On(emulator.CreateContainer).Range(3, 63).Do(emulator.Answer(409, "ContainerBeingDeleted"))},
		"late containers":           {number: 9, says: "16 writes: 404 ContainerNotFound; the container is there: within 14s", rule: emulator.On(emulator.PutBlob).Path("newborn/*").Range(1, 30).Do(emulator.Answer(404, "ContainerNotFound"))},
		"metadata is decoded":       {number: 10, says: "HEAD: percent is \"100% %zz\"", answer: set("HEAD", "metadata", "X-Ms-Meta-Percent", text("100% %zz"))},
		"ranges are forgotten":      {number: 11, says: "an empty blob: 400", rule: emulator.On(emulator.GetBlob).Path("ranges").Nth(1).Do(emulator.Answer(400, "InvalidRange"))},
		"conditions are not read":   {number: 11, says: "the version that is there: 200", request: without("If-None-Match")},
		"an outage without marks":   {number: 12, says: "a new container: 503 without x-ms-request-id (no version, no code, text/html) after", rule: emulator.On(emulator.PutBlob).Path("ramp/*").Every(100).Do(emulator.Foreign(503, "text/html", "busy"))},
		"snapshots go, too":         {number: 14, says: "delete a blob with a snapshot: 202", answer: status("comp=snapshot", 201)},
		"pages lack a name":         {number: 15, says: "all pages: [plans/pages-0001", request: startLater},
		"bodies are cut":            {number: 16, says: "the blob: has changed", rule: emulator.On(emulator.GetBlob).Path("larg[e]").Do(emulator.CutBody(100))},
	}
	// The probes share two runs, but a changed request, which other probes may send too, has a run of its own.
	runs := map[string]map[int]damage{"answers": {}, "other answers": {}}
	for _, name := range slices.Sorted(maps.Keys(damages)) {
		switch d := damages[name]; {
		case d.request != nil:
			runs[name] = map[int]damage{d.number: d}
		case runs["answers"][d.number].number == 0:
			runs["answers"][d.number] = d
		default:
			runs["other answers"][d.number] = d
		}
	}
	for name, damages := range runs {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := emulator.New(emulator.Options{Tokens: "tenant", NoLog: true})
				config := firsthour.Config{Endpoint: endpoint, Credential: token{}, Ramp: damages[12].number != 0, Transport: server.Transport(), Version: "2026-12-06"}
				alone := false
				for _, d := range damages {
					if config.Transport = (network{config.Transport, d.request, d.answer}); d.rule != nil {
						server.Inject(d.rule)
					}
					alone = alone || d.request != nil
				}
				for _, f := range onEmulator(t, server, config) {
					d, damaged := damages[f.Number]
					if got := f.Summary(true); damaged && (f.Verdict != firsthour.Differs || !strings.Contains(got, d.says)) {
						t.Errorf("%d %s: %s", f.Number, f.Verdict, got)
					} else if !damaged && f.Verdict == firsthour.Differs && !alone {
						t.Errorf("probe %d differs, too: %s", f.Number, got)
					}
				}
			})
		})
	}
}

// TestKindsOfAccounts probes accounts and logins of other kinds: nothing differs, and what can't be tried is said.
func TestKindsOfAccounts(t *testing.T) {
	for name, test := range map[string]struct {
		options []emulator.Options
		change  func(*emulator.Server)
		config  func(*emulator.Server) firsthour.Config
		says    []string // in the findings, in their order
	}{
		"key":          {says: []string{"http not tried: the endpoint is http already", "by a token not tried: the login is the account's key", "hierarchical: the account is flat", "versions: the account keeps none; snapshots: the account keeps none: 501 NotImplemented; deleted blobs: the account keeps none"}},
		"hierarchical": {options: []emulator.Options{{HierarchicalNamespace: true}}, says: []string{"delimiter - not tried: the account is hierarchical, see 13", "delimiter -: 400", "startFrom: in order and complete", "again: 409"}},
		"no right to the kind": {change: func(s *emulator.Server) {
			s.Inject(emulator.On(emulator.GetAccountInfo).Do(emulator.Answer(403, "AuthorizationFailure")))
		}, says: []string{"the login may not ask what the account is: 403 AuthorizationFailure"}},
		"signature of all": {config: func(s *emulator.Server) firsthour.Config {
			return firsthour.Config{Endpoint: endpoint + "?" + s.AccountSAS(emulator.Permissions{Allowed: "rwdlc"})}
		}, says: []string{"wrong login: HEAD and ", "date 20 minutes off not tried: the login is a shared access signature, which does not sign the date; expired signature not tried: it takes the account's key", "http: 401", "a present blob by a reader, a missing blob by a reader not tried: it takes the account's key, and the login is a shared access signature"}},
		"token": {config: func(*emulator.Server) firsthour.Config {
			return firsthour.Config{Endpoint: endpoint, Credential: token{}}
		}, says: []string{"wrong login: HEAD and PUT and DELETE 401", "expired signature: HEAD and GET and PUT 403", "a present blob by a reader: 403", "by a token: right ETag 202", "by a signature of the account not tried", "by a signature of the container: right ETag 202"}},
		"all is kept": {config: func(s *emulator.Server) firsthour.Config {
			return firsthour.Config{ConnectionString: s.ConnectionString(), Transport: network{to: s.Transport(), answer: keeps()}}
		}, says: []string{`versions: "v1" and "v2"; delete a blob with a snapshot: 409 SnapshotsPresent; delete it with its snapshot: 202; undelete: 200; the deleted blob: unchanged`}},
		"a ramp that is slowed": {change: func(s *emulator.Server) {
			s.Inject(emulator.On(emulator.PutBlob).Path("ramp/*").Every(100).Do(emulator.Answer(503, "ServerBusy")))
		}, config: func(s *emulator.Server) firsthour.Config {
			return firsthour.Config{ConnectionString: s.ConnectionString(), Ramp: true}
		}, says: []string{"a new container", "a warm container", "across midnight: 503 ServerBusy after"}}, // answers that are the same share one text
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := emulator.New(merge.Fields(append(test.options, emulator.Options{Tokens: "tenant"}, emulator.Options{RealAnswers: 2}, emulator.Options{NoLog: true})...))
				if test.change != nil {
					test.change(server)
				}
				var config firsthour.Config
				if test.config != nil {
					config = test.config(server)
				}
				var all strings.Builder
				for _, f := range onEmulator(t, server, config) {
					if fmt.Fprintln(&all, f.Summary(false)); f.Verdict == firsthour.Differs {
						t.Errorf("%d differs: %s", f.Number, f.Summary(true))
					}
				}
				rest := all.String()
				for _, want := range test.says {
					_, after, found := strings.Cut(rest, want)
					if rest = after; !found {
						t.Fatalf("nothing says %q:\n%s", want, all.String())
					}
				}
			})
		})
	}
}

// keeps returns what makes the answers those of an account with versions, snapshots and soft delete.
func keeps() func(*http.Request, *http.Response) {
	writes := 0
	return func(req *http.Request, resp *http.Response) {
		is := func(method, path string) bool {
			return req.Method == method && strings.Contains(req.URL.String(), path)
		}
		answer := func(status int, code, body string) {
			resp.StatusCode, resp.Body = status, io.NopCloser(strings.NewReader(body))
			resp.Header.Set("X-Ms-Error-Code", code)
		}
		switch {
		case is("PUT", "comp=snapshot"):
			answer(201, "", "")
		case is("PUT", "comp=undelete"):
			answer(200, "", "")
		case is("PUT", "kept/a"):
			writes++
			resp.Header.Set("X-Ms-Version-Id", fmt.Sprintf("v%d", writes))
		case is("DELETE", "kept/a") && req.Header.Get("X-Ms-Delete-Snapshots") == "":
			answer(409, "SnapshotsPresent", "")
		case is("DELETE", "kept/a"):
			answer(202, "", "")
		case is("GET", "include=deleted"):
			answer(200, "", "<EnumerationResults><Blobs><Blob><Name>kept/b</Name><Deleted>true</Deleted></Blob></Blobs></EnumerationResults>")
		case is("GET", "kept/b"):
			answer(200, "", "kept")
		}
	}
}

// TestInterrupt ends the context at each request, with its answer or without one. Nothing is left.
func TestInterrupt(t *testing.T) {
	for nth, more := int64(1), true; more; nth += efforttest.Pick[int64](61, 23, 1) * (1 + 20*(nth/400)) { // from there on, most are those of probe 15
		synctest.Test(t, func(t *testing.T) {
			server := emulator.New(emulator.Options{})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var sent atomic.Int64
			config := firsthour.Config{ConnectionString: server.ConnectionString(), Transport: network{server.Transport(), func(*http.Request) {
				if sent.Add(1) == nth && nth%2 == 0 {
					cancel()
				}
			}, func(*http.Request, *http.Response) {
				if sent.Load() == nth {
					cancel()
				}
			}}}
			_, err := probed(ctx, config)
			if more = ctx.Err() != nil; more && err == nil && sent.Load() > nth+10 {
				t.Errorf("request %d: it goes on", nth)
			}
			if left := slices.Collect(server.Containers()); len(left) > 0 {
				t.Errorf("request %d: containers are left: %v, %v", nth, left, err)
			}
		})
	}
}

// TestWhatIsLeft lets removals fail. The error names what is left, whether the run was interrupted or not.
func TestWhatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := emulator.New(emulator.Options{})
		config := firsthour.Config{ConnectionString: server.ConnectionString(), Transport: server.Transport()}
		server.Inject(emulator.On(emulator.DeleteContainer).Path("first-hour-????????-2000-01-01").Do(emulator.Answer(403, "AuthorizationFailure")))
		findings, err := probed(t.Context(), config)
		left := slices.Collect(server.Containers())
		if err == nil || len(left) != 1 || !strings.Contains(err.Error(), "container "+left[0]+" is left, delete it by hand: 403 AuthorizationFailure") {
			t.Errorf("%d findings, %v, %v", len(findings), err, left)
		}
		server.ClearFaults()
		server.RemoveContainer(left[0])
		lost := server.Clone() // the container is made, and the answer lost
		lost.Inject(emulator.On(emulator.CreateContainer).Do(emulator.LostAnswer()))
		config.Transport = lost.Transport()
		if _, err := probed(t.Context(), config); err == nil || len(slices.Collect(lost.Containers())) > 0 {
			t.Errorf("after a lost answer: %v, %v", err, slices.Collect(lost.Containers()))
		}
		config.Transport = server.Transport()
		server.Inject(emulator.On(emulator.CreateContainer).Do(emulator.Answer(403, "AuthorizationPermissionMismatch")))
		if _, err := probed(t.Context(), config); err == nil || strings.Contains(err.Error(), "is left") || !strings.Contains(err.Error(), "create container first-hour-") {
			t.Errorf("without the right to create containers: %v", err)
		}
	})
}

// TestKilledRuns kills runs. The next one removes what they left, and neither what looks alike nor what a run that is at
// work has.
func TestKilledRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := emulator.New(emulator.Options{})
		const vault, other = "first-hour-00000000-2026-11-23", "first-hours-2026-11-23"
		server.PutContainer(vault, nil)
		server.PutContainer(other, nil)
		run := func(kill int) (swept []string, err error) {
			transport := server.Transport()
			if kill > 0 {
				transport.Inject(emulator.On().Nth(kill).Do(emulator.Crash()))
			}
			transport.Inject(emulator.On(emulator.CreateContainer).Range(3, 20).Do(emulator.Answer(409, "ContainerBeingDeleted")))
			c := firsthour.Config{ConnectionString: server.ConnectionString(), Transport: transport, Swept: func(prefix string, left error) {
				swept = append(swept, fmt.Sprint(firsthour.Made(prefix), left))
			}}
			return swept, firsthour.Run(t.Context(), c, func(f firsthour.Finding) error {
				if transport.Crashed() {
					return emulator.ErrCrashed
				} else if f.Verdict == firsthour.Differs {
					t.Errorf("%d differs: %s", f.Number, f.Summary(true))
				}
				return nil
			})
		}
		for _, kill := range []int{5, 365} {
			if _, err := run(kill); err == nil {
				t.Errorf("killed at request %d: no error", kill)
			}
		}
		if n := len(slices.Collect(server.Containers())); n < 4 {
			t.Errorf("%d containers are there", n)
		}
		var both sync.WaitGroup
		swept, errs := [2][]string{}, [2]error{}
		for i := range 2 {
			both.Go(func() {
				time.Sleep(time.Duration(i) * (70 * time.Second)) // in the middle of the other one's probe of leases
				swept[i], errs[i] = run(0)
			})
		}
		both.Wait()
		if left := slices.Collect(server.Containers()); !slices.Equal(left, []string{vault, other}) || errs[0] != nil || errs[1] != nil {
			t.Errorf("%v are left; %v", left, errs)
		}
		if !slices.Equal(swept[0], []string{"true <nil>"}) || !slices.Equal(swept[1], []string{"true 412 LeaseIdMissing"}) {
			t.Errorf("swept: %q", swept)
		}
	})
}
