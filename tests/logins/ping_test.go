package logins_test

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/planvault/azblob/internal/settings"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/storage"

	"github.com/planvault/azblob/internal/vaulttest"
)

// TestPing pings a vault before and after its first plan. The ping leaves nothing.
func TestPing(t *testing.T) {
	vaulttest.OnServices(t, func(t *testing.T, open func(...azblob.Options) *azblob.Vault) {
		v := open()
		for _, exists := range []bool{false, true} {
			for _, opts := range []azblob.PingOptions{{}, {Writes: true, Deletes: true}} {
				report, err := v.Ping(t.Context(), opts)
				if err != nil || report.Exists != exists || report.Writable != opts.Writes || report.Deletable != report.Writable || report.Server == "" || report.Latency <= 0 || report.Skew.Abs() > 2*time.Second {
					t.Errorf("%+v, %v", report, err)
				}
			}
			vaulttest.Created(t, v, plantest.Small())
		}
		report, err := v.Admin().Check(t.Context(), azblob.CheckOptions{})
		if err != nil || len(report.Problems) > 0 {
			t.Errorf("it left something: %+v, %v", report, err)
		}
	})
}

// TestPingCost counts the requests of pings that succeed and that fail.
func TestPingCost(t *testing.T) {
	for name, test := range map[string]struct {
		rule *emulator.Rule
		want int
	}{
		"good":   {nil, 2},
		"busy":   {emulator.On(emulator.GetBlob).Do(emulator.Answer(503, "ServerBusy")), 1},
		"denied": {emulator.On(emulator.GetBlob).Do(emulator.Answer(403, "AuthorizationFailure")), 1},
		"lost":   {emulator.On(emulator.PutBlob).Do(emulator.LostAnswer()), 2},
	} {
		server := emulator.New(emulator.Options{})
		if test.rule != nil {
			server.Inject(test.rule)
		}
		_, err := vaulttest.OnEmulator(t, server).Ping(t.Context(), azblob.PingOptions{Writes: true})
		if n := len(server.Requests()); n != test.want || (err == nil) != (test.rule == nil) || errors.Is(err, storage.ErrUnknown) {
			t.Errorf("%s: %d requests, want %d; %v", name, n, test.want, err)
		}
		for c := range server.Containers() {
			t.Errorf("%s: it made %s", name, c)
		}
	}
}

// TestPingSaysWhatIsWrong pings through failures of every kind, in virtual time. Each takes at most ten
// seconds.
func TestPingSaysWhatIsWrong(t *testing.T) {
	for name, test := range map[string]struct {
		effect emulator.Effect
		err    error
		text   string
	}{
		"hangs":            {emulator.Silence(), storage.ErrUnavailable, "no answer within 10s"},
		"a proxy's page":   {emulator.Foreign(200, "text/html", "<html>please log in"), storage.ErrUnavailable, "please log in"},
		"a redirect":       {emulator.Redirect(302, "https://portal.invalid/login"), storage.ErrUnavailable, "a redirect to portal.invalid"},
		"busy":             {emulator.Answer(503, "ServerBusy"), storage.ErrUnavailable, "503 ServerBusy"},
		"being deleted":    {emulator.Answer(409, "ContainerBeingDeleted"), storage.ErrUnavailable, "ContainerBeingDeleted"},
		"disabled account": {emulator.Answer(403, "AccountIsDisabled"), storage.ErrDenied, "the account is disabled"},
		"firewall":         {emulator.Answer(403, "AuthorizationFailure"), storage.ErrDenied, "the network rules of the account block this machine"},
		"another version":  {emulator.Answer(400, ""), storage.ErrDenied, "the service may not know this version"},
		"wrong account":    {emulator.Answer(404, "ResourceNotFound"), storage.ErrDenied, "there is no such account"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := emulator.New(emulator.Options{})
				server.Inject(emulator.On().Do(test.effect))
				started := time.Now()
				_, err := vaulttest.OnEmulator(t, server).Ping(t.Context(), azblob.PingOptions{Writes: true})
				if !errors.Is(err, test.err) || !strings.Contains(storage.Detail(err), test.text) || strings.Contains(storage.Detail(err), "\n") {
					t.Errorf("got %v, want %v, %q", err, test.err, test.text)
				}
				if took := time.Since(started); took > 10*time.Second {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}

// TestPingThroughAProxyThatRemovesConditions must not report that all is well: every promise rests on them.
func TestPingThroughAProxyThatRemovesConditions(t *testing.T) {
	server := emulator.New(emulator.Options{})
	v := vaulttest.OnEmulator(t, server, settings.Over(vaulttest.Send(func(req *http.Request) (*http.Response, error) {
		req.Header.Del("If-Match")
		return server.Transport().Do(req)
	})))
	vaulttest.Created(t, v, plantest.Small())
	if report, err := v.Ping(t.Context(), azblob.PingOptions{Writes: true}); !errors.Is(err, storage.ErrUnavailable) || report.Writable {
		t.Errorf("%+v, %v", report, err)
	}
}

// TestPingOnSockets pings what is really there: a closed port, a server without TLS, and one whose
// certificate is not trusted.
func TestPingOnSockets(t *testing.T) {
	port, err := net.Listen("tcp", "127.0.0.1:0")
	vaulttest.Must(t, err)
	port.Close()
	plain := httptest.NewServer(emulator.New(emulator.Options{}))
	defer plain.Close()
	secure, err := emulator.New(emulator.Options{}).ListenTLS("127.0.0.1:0")
	vaulttest.Must(t, err)
	defer secure.Close()
	for endpoint, want := range map[string]struct {
		err  error
		text string
	}{
		"https://" + port.Addr().String():                         {storage.ErrUnavailable, "nothing listens there"},
		"https://" + strings.TrimPrefix(plain.URL, "http://"):     {storage.ErrUnavailable, "does not speak TLS"},
		"https://" + secure.Addr().String() + "/devstoreaccount1": {storage.ErrDenied, "the certificate is not the host's, or not trusted here"},
	} {
		v, err := azblob.New(t.Context(), "test", endpoint, vaulttest.Token{}, nil, azblob.Options{})
		vaulttest.Must(t, err)
		if _, err := v.Ping(t.Context(), azblob.PingOptions{}); !errors.Is(err, want.err) || !strings.Contains(err.Error(), want.text) {
			t.Errorf("got %v, want %v, %q", err, want.err, want.text)
		}
		vaulttest.Must(t, v.Close(t.Context()))
	}
}

// TestPingVault finds out whether a vault has a container, at the cost of a request only if the vault has seen none. The
// containers of other vaults, whose names begin in the same way, don't count.
func TestPingVault(t *testing.T) {
	before := time.Now().AddDate(0, 0, -2).UTC().Format("-2006-01-02")
	for name, test := range map[string]struct {
		containers []string
		look       bool // at the plans, before the ping
		exists     bool
		requests   int
	}{
		"nothing":             {nil, false, false, 2},
		"others":              {[]string{"test-2" + before, "test-control-a", "testing" + before, "test-x"}, true, false, 2},
		"a day":               {[]string{"test" + before}, false, true, 2},
		"a day that is known": {[]string{"test" + before}, true, true, 1},
		"a fleet":             {[]string{"test-control"}, false, true, 2},
		"today":               {[]string{time.Now().UTC().Format("test-2006-01-02")}, false, true, 1},
	} {
		server := emulator.New(emulator.Options{})
		for _, c := range test.containers {
			server.PutContainer(c, nil)
		}
		v, err := azblob.NewFromConnectionString(t.Context(), "test", server.ConnectionString(), nil, settings.Over(server.Transport()))
		vaulttest.Must(t, err)
		if test.look {
			_, err := storage.Collect(v.List(t.Context(), 1))
			vaulttest.Must(t, err)
		}
		server.ResetRequests()
		report, err := v.Ping(t.Context(), azblob.PingOptions{Vault: true})
		if n := len(server.Requests()); err != nil || report.Vault != test.exists || n != test.requests {
			t.Errorf("%s: %+v, %v, with %d requests", name, report, err, n)
		}
	}
	server := emulator.New(emulator.Options{})
	server.Inject(emulator.On(emulator.ListContainers).Do(vaulttest.Denied))
	if report, err := vaulttest.OnEmulator(t, server).Ping(t.Context(), azblob.PingOptions{Vault: true}); !errors.Is(err, storage.ErrDenied) || report.Server == "" {
		t.Errorf("without the right to list: %+v, %v", report, err)
	}
}

// TestPrefixes lists the vaults of an account, among containers of others.
func TestPrefixes(t *testing.T) {
	server := emulator.New(emulator.Options{PageLimit: 3})
	for _, c := range []string{
		"b-2026-03-01", "b-2025-12-31", "b-control", "a-2026-02-29", "a-2026-02-28", "a-b-2026-02-28", "new-control",
		"pictures", "b-2026-3-1", "2026-02-28", "control",
	} {
		server.PutContainer(c, nil)
	}
	day := func(y int, m time.Month, d int) storage.Day { return storage.Day{Year: y, Month: m, Day: d} }
	want := []azblob.PrefixReport{
		{Prefix: "a", Days: 1, First: day(2026, 2, 28), Last: day(2026, 2, 28)},
		{Prefix: "a-b", Days: 1, First: day(2026, 2, 28), Last: day(2026, 2, 28)},
		{Prefix: "b", Days: 2, First: day(2025, 12, 31), Last: day(2026, 3, 1)},
		{Prefix: "new"},
	}
	got, err := vaulttest.OnEmulator(t, server).Admin().Prefixes(t.Context())
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	server.Inject(emulator.On(emulator.ListContainers).Do(vaulttest.Denied))
	if got, err := vaulttest.OnEmulator(t, server).Admin().Prefixes(t.Context()); !errors.Is(err, storage.ErrDenied) {
		t.Errorf("without the right to list: %+v, %v", got, err)
	}
}

// TestPingTellsTheSkew pings with clocks that are off, with a key, whose signatures have a date, and with a
// token.
func TestPingTellsTheSkew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Second / 2) // the service's clock shows whole seconds
		for _, off := range []time.Duration{0, time.Minute, -time.Minute, 20 * time.Minute, -20 * time.Minute} {
			server := emulator.New(emulator.Options{Clock: func() time.Time { return time.Now().Add(-off) }})
			for login, v := range map[string]*azblob.Vault{"key": vaulttest.Signing(t, server), "token": vaulttest.WithToken(t, server)} {
				report, err := v.Ping(t.Context(), azblob.PingOptions{})
				refused := login == "key" && off.Abs() > 15*time.Minute
				if report.Skew != off || errors.Is(err, storage.ErrDenied) != refused || !refused && err != nil ||
					refused && !strings.Contains(err.Error(), "this machine's clock is ") {
					t.Errorf("%s, %v off: %+v, %v", login, off, report, err)
				}
			}
		}
	})
}

// TestPingWithLogins pings with rights to read and to write.
func TestPingWithLogins(t *testing.T) {
	server := emulator.New(emulator.Options{Tokens: tenant})
	for role, want := range map[emulator.Role][2]string{
		emulator.Contributor: {},
		emulator.Reader:      {"", "give the identity the role Storage Blob Data Contributor"},
		"":                   {"give the identity the role Storage Blob Data Reader", "give the identity the role Storage Blob Data Reader"},
	} {
		v, err := byToken(role, nil)(t.Context(), server, "", settings.Over(server.Transport()))
		vaulttest.Must(t, err)
		for i, opts := range []azblob.PingOptions{{}, {Writes: true}, {Deletes: true}} {
			report, err := v.Ping(t.Context(), opts)
			want := want[min(i, 1)]
			if want == "" && err != nil || want != "" && (!errors.Is(err, storage.ErrDenied) || !strings.Contains(err.Error(), want)) ||
				report.Writable != (err == nil && i == 1) || report.Deletable != (err == nil && i == 2) {
				t.Errorf("%q, %d: %+v, %v", role, i, report, err)
			}
		}
	}
}
