package logins_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/planvault/azblob/internal/merge"
	"github.com/planvault/azblob/internal/settings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"

	"github.com/planvault/azblob/internal/vaulttest"
)

// tenant issues the tokens that the emulator accepts.
const tenant = "72f988bf-86f1-41af-91ab-2d7cd011db47"

// opener opens a vault with a login.
type opener func(ctx context.Context, server *emulator.Server, today string, opts ...azblob.Options) (*azblob.Vault, error)

const (
	hostStyle = "https://devstoreaccount1.blob.core.windows.net"
	pathStyle = "http://127.0.0.1:10000/devstoreaccount1"
)

// bearer is a credential whose tokens have claims.
type bearer func() (claims emulator.Claims, expires time.Time)

func (b bearer) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	claims, expires := b()
	return azcore.AccessToken{Token: claims.Token(), ExpiresOn: expires}, nil
}

// holder is a credential of a holder of a role. change may change its claims.
func holder(role emulator.Role, change func(*emulator.Claims)) bearer {
	return func() (emulator.Claims, time.Time) {
		expires := time.Now().Add(time.Hour)
		claims := emulator.NewClaims(tenant, role, expires)
		if change != nil {
			change(&claims)
		}
		return claims, expires
	}
}

func byToken(role emulator.Role, change func(c *emulator.Claims, today string)) opener {
	return func(ctx context.Context, _ *emulator.Server, today string, opts ...azblob.Options) (*azblob.Vault, error) {
		cred := holder(role, func(c *emulator.Claims) {
			if change != nil {
				change(c, today)
			}
		})
		return azblob.New(ctx, "test", hostStyle, cred, plantest.Register(), merge.Fields(opts...))
	}
}

func byString(text func(server *emulator.Server) string) opener {
	return func(ctx context.Context, server *emulator.Server, _ string, opts ...azblob.Options) (*azblob.Vault, error) {
		return azblob.NewFromConnectionString(ctx, "test", text(server), plantest.Register(), merge.Fields(opts...))
	}
}

// byAccountSAS alternates between the two ways to give a signature.
func byAccountSAS(endpoint string, p func() emulator.Permissions) opener {
	return func(ctx context.Context, server *emulator.Server, _ string, opts ...azblob.Options) (*azblob.Vault, error) {
		signature := server.AccountSAS(p())
		if p().Types == "" {
			return azblob.NewFromURL(ctx, "test", endpoint+"/?"+signature, plantest.Register(), merge.Fields(opts...))
		}
		return azblob.NewFromConnectionString(ctx, "test", "BlobEndpoint="+endpoint+";SharedAccessSignature=?"+signature, plantest.Register(), merge.Fields(opts...))
	}
}

func allowed(p emulator.Permissions) func() emulator.Permissions {
	return func() emulator.Permissions { return p }
}

func byContainerSAS(allowed string) opener {
	return func(ctx context.Context, server *emulator.Server, today string, opts ...azblob.Options) (*azblob.Vault, error) {
		return azblob.NewFromURL(ctx, "test", hostStyle+"/"+today+"?"+server.ContainerSAS(today, emulator.Permissions{Allowed: allowed}), plantest.Register(), merge.Fields(opts...))
	}
}

// logins are the rows of the table of logins in docs/account.md.
var logins = map[string]opener{
	"token: Storage Blob Data Contributor on the account":   byToken(emulator.Contributor, nil),
	"token: Storage Blob Data Contributor on one container": byToken(emulator.Contributor, func(c *emulator.Claims, today string) { c.Container = today }),
	"token: Storage Blob Data Reader on the account":        byToken(emulator.Reader, nil),
	"token without a role":                                  byToken("", nil),
	"token that has expired":                                byToken(emulator.Contributor, func(c *emulator.Claims, _ string) { c.Expires = time.Now().Add(-time.Minute).Unix() }),
	"token for another audience":                            byToken(emulator.Contributor, func(c *emulator.Claims, _ string) { c.Audience = "https://management.azure.com" }),
	"token of another tenant":                               byToken(emulator.Contributor, func(c *emulator.Claims, _ string) { c.Issuer = "https://sts.windows.net/other/" }),
	"account key":                                           byString((*emulator.Server).ConnectionString),
	"`UseDevelopmentStorage=true`":                          byString(func(*emulator.Server) string { return "UseDevelopmentStorage=true" }),
	"account key that is wrong or was changed": byString(func(s *emulator.Server) string {
		return strings.Replace(s.ConnectionString(), "Eby8vdM0", "AAAAAAAA", 1)
	}),
	"account SAS: `srt=sco`, `sp=rwdlc`":  byAccountSAS(hostStyle, allowed(emulator.Permissions{Allowed: "rwdlc"})),
	"account SAS: `srt=sco`, `sp=rwlc`":   byAccountSAS(hostStyle, allowed(emulator.Permissions{Allowed: "rwlc", Types: "sco"})),
	"account SAS: `srt=sco`, `sp=rwdc`":   byAccountSAS(hostStyle, allowed(emulator.Permissions{Allowed: "rwdc"})),
	"account SAS: `srt=sco`, `sp=rl`":     byAccountSAS(hostStyle, allowed(emulator.Permissions{Allowed: "rl"})),
	"account SAS: `srt=o`, `sp=rwdlc`":    byAccountSAS(hostStyle, allowed(emulator.Permissions{Allowed: "rwdlc", Types: "o"})),
	"account SAS: `ss=q`":                 byAccountSAS(hostStyle, allowed(emulator.Permissions{Allowed: "rwdlc", Services: "q"})),
	"account SAS: `spr=https`, over http": byAccountSAS(pathStyle, allowed(emulator.Permissions{Allowed: "rwdlc", HTTPS: true})),
	"account SAS that has expired": byAccountSAS(hostStyle, func() emulator.Permissions {
		return emulator.Permissions{Allowed: "rwdlc", Expiry: time.Now().Add(-time.Second)}
	}),
	"account SAS that starts later": byAccountSAS(hostStyle, func() emulator.Permissions {
		return emulator.Permissions{Allowed: "rwdlc", Start: time.Now().Add(time.Minute)}
	}),
	"container SAS: `sp=rwdlc`": byContainerSAS("rwdlc"),
	"container SAS: `sp=rl`":    byContainerSAS("rl"),
}

// table reads a table of docs/account.md: by the first cell of a row, the other ones.
func table(t *testing.T, heading string) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("../../docs/account.md")
	vaulttest.Must(t, err)
	_, table, _ := strings.Cut(string(text), heading)
	_, table, _ = strings.Cut(table, " --- |\n")
	table, _, _ = strings.Cut(table, "\n\n")
	rows := map[string][]string{}
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		rows[cells[0]] = cells[1:]
	}
	return rows
}

// quoted returns the words in backquotes of a cell.
func quoted(cell string) (words []string) {
	for i, word := range strings.Split(cell, "`") {
		if i%2 == 1 {
			words = append(words, word)
		}
	}
	return words
}

// checkRow compares a row of a table with what became of each question. The last cell has what the errors say.
func checkRow(t *testing.T, login string, row []string, outcomes ...error) {
	t.Helper()
	var got []string
	for _, err := range outcomes {
		got = append(got, map[bool]string{true: "yes", false: "no"}[err == nil])
		if err != nil && !errors.Is(err, storage.ErrDenied) {
			t.Errorf("%s: it is not ErrDenied: %v", login, err)
		}
	}
	all, texts := errors.Join(outcomes...), quoted(row[len(outcomes)])
	if !slices.Equal(got, row[:len(outcomes)]) || (len(texts) == 0) != (all == nil) {
		t.Errorf("%s: the row says %v, and it is %v\n%v", login, row, got, all)
	}
	for _, want := range texts {
		if !strings.Contains(fmt.Sprint(all), want) {
			t.Errorf("%s: no error says %q\n%v", login, want, all)
		}
	}
}

// TestLogins runs each row of the table of logins in docs/account.md on an emulator that checks logins.
func TestLogins(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	rows := table(t, "| login | ")
	for login := range rows {
		if logins[login] == nil {
			t.Errorf("the row %q is not tested", login)
		}
	}
	for login, open := range logins {
		t.Run(login, func(t *testing.T) {
			row := rows[login]
			if row == nil {
				t.Fatal("docs/account.md has no such row")
			}
			synctest.Test(t, func(t *testing.T) {
				checkRow(t, login, row, tryLogin(t, open)...)
			})
		})
	}
}

// tryLogin returns what becomes of the questions of a login's row.
func tryLogin(t *testing.T, open opener) (outcomes []error) {
	server := emulator.New(emulator.Options{Tokens: tenant})
	owner := vaulttest.Signing(t, server)
	plan, other := vaulttest.Created(t, owner, plantest.Small()), vaulttest.Created(t, owner, plantest.Small())
	today := "test-" + workflow.Time(plan.ID).Format(time.DateOnly)
	vault := func(opts ...azblob.Options) *azblob.Vault {
		v, err := open(t.Context(), server, today, append(opts, settings.Over(server.Transport()))...)
		vaulttest.Must(t, err)
		return v
	}
	v := vault()
	cell := func(err error) { outcomes = append(outcomes, err) }
	listed := func(v *azblob.Vault) error {
		list, err := storage.Collect(v.List(t.Context(), 0))
		if err == nil && !slices.Contains(vaulttest.IDs(list), plan.ID) {
			err = errors.New("the plan is not listed")
		}
		return errors.Join(v.Recovery(t.Context()), err)
	}
	tomorrow := plantest.Small() // a change of a day that has passed needs more rights
	tomorrow.ID = workflow.NewV7At(time.Now().Add(24 * time.Hour))
	cell(v.Create(t.Context(), tomorrow))
	cell(v.Create(t.Context(), plantest.Small()))
	cell(errors.Join(vaulttest.ErrOf(v.Read(t.Context(), plan.ID)), vaulttest.ErrOf(v.Exists(t.Context(), plan.ID))))
	plan.State.Status, plan.State.Start = workflow.Running, time.Now()
	cell(errors.Join(v.UpdatePlan(t.Context(), plan), v.Delete(t.Context(), other.ID)))
	cell(listed(v))
	cell(listed(vault(azblob.Options{DayProbing: 2})))
	return outcomes
}

// TestLoginExpires checks that work goes on with the next token when one expires, and that an error names an
// expired token or signature.
func TestLoginExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := emulator.New(emulator.Options{Tokens: tenant})
		asked := 0
		renewed := bearer(func() (emulator.Claims, time.Time) {
			asked++
			return holder(emulator.Contributor, nil)()
		})
		fixed := emulator.NewClaims(tenant, emulator.Contributor, time.Now().Add(time.Hour))
		// The credential does not know that its token will expire, or that it was revoked.
		stuck := bearer(func() (emulator.Claims, time.Time) { return fixed, time.Now().Add(24 * time.Hour) })
		vault := func(cred azcore.TokenCredential) *azblob.Vault {
			v, err := azblob.New(t.Context(), "test", hostStyle, cred, plantest.Register(), settings.Over(server.Transport()))
			vaulttest.Must(t, err)
			return v
		}
		signed := func() *azblob.Vault {
			v, err := azblob.NewFromURL(t.Context(), "test", hostStyle+"?"+server.AccountSAS(emulator.Permissions{Allowed: "rwdlc"}), plantest.Register(),
				settings.Over(server.Transport()))
			vaulttest.Must(t, err)
			return v
		}
		good, bad, sas := vault(renewed), vault(stuck), signed()
		for range 5 {
			vaulttest.Created(t, good, plantest.Small())
			time.Sleep(50 * time.Minute)
		}
		if asked < 3 {
			t.Errorf("%d tokens were asked for in four hours", asked)
		}
		for text, v := range map[string]*azblob.Vault{"the token has expired": bad, "expired at 2000-01-01T01:00:00Z: open the vault with a new one": sas} {
			for what, err := range map[string]error{"Create": v.Create(t.Context(), plantest.Small()), "Recovery": v.Recovery(t.Context())} {
				if !errors.Is(err, storage.ErrDenied) || errors.Is(err, storage.ErrUnknown) || !strings.Contains(err.Error(), text) {
					t.Errorf("%s: %v, want %q", what, err, text)
				}
			}
		}
		fixed = emulator.NewClaims(tenant, emulator.Contributor, time.Now().Add(time.Hour))
		time.Sleep(time.Second)
		vaulttest.Created(t, bad, plantest.Small()) // the credential was asked again
		vaulttest.Created(t, signed(), plantest.Small())
	})
}

// TestTokensOverTLS works with tokens through a socket with TLS, and not without trust in the certificate.
func TestTokensOverTLS(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	server := emulator.New(emulator.Options{Tokens: tenant})
	listener, err := server.ListenTLS("127.0.0.1:0")
	vaulttest.Must(t, err)
	defer listener.Close()
	client := listener.HTTPClient()
	defer client.CloseIdleConnections()
	v, err := azblob.New(t.Context(), "test", listener.URL(), holder(emulator.Contributor, nil), plantest.Register(), settings.Over(client))
	vaulttest.Must(t, err)
	plan := vaulttest.Created(t, v, plantest.Small())
	vaulttest.Must(t, v.Delete(t.Context(), plan.ID))
	stranger, err := azblob.New(t.Context(), "test", listener.URL(), holder(emulator.Contributor, nil), plantest.Register(), azblob.Options{})
	vaulttest.Must(t, err)
	if _, err := stranger.Exists(t.Context(), plan.ID); !errors.Is(err, storage.ErrDenied) || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("without the certificate: %v", err)
	}
	vaulttest.Must(t, stranger.Close(t.Context()))
}

// recordHosts is a transport that records where requests go.
type recordHosts struct {
	policy.Transporter
	urls []string
}

func (r *recordHosts) Do(req *http.Request) (*http.Response, error) {
	r.urls = append(r.urls, req.URL.Scheme+"://"+req.URL.Host+req.URL.Path)
	return r.Transporter.Do(req)
}

// TestAddresses looks where requests go with each form of an address. What is no address, or that of something else than
// the vault's account or one of its days, is ErrInvalid: the vault would store its plans there. The error tells no secret.
func TestAddresses(t *testing.T) {
	const secret = "c2VjcmV0LWtleQ"
	id := workflow.NewV7()
	path := "/test-" + workflow.Time(id).Format(time.DateOnly) + "/plans/" + id.String() + "-object.json"
	byString := func(text string, opts ...azblob.Options) (*azblob.Vault, error) {
		return azblob.NewFromConnectionString(t.Context(), "test", text, nil, merge.Fields(opts...))
	}
	byURL := func(text string, opts ...azblob.Options) (*azblob.Vault, error) {
		return azblob.NewFromURL(t.Context(), "test", text, nil, merge.Fields(opts...))
	}
	byEndpoint := func(text string, opts ...azblob.Options) (*azblob.Vault, error) {
		return azblob.New(t.Context(), "test", text, vaulttest.Token{}, nil, merge.Fields(opts...))
	}
	inString := func(text string, opts ...azblob.Options) (*azblob.Vault, error) {
		return byString("AccountName=a;AccountKey=a2V5;BlobEndpoint="+text, opts...)
	}
	type open = func(string, ...azblob.Options) (*azblob.Vault, error)
	check := func(open open, text, want string) {
		transport := &recordHosts{Transporter: emulator.New(emulator.Options{}).Transport()}
		v, err := open(text, settings.Over(transport))
		switch {
		case want == "" && (!errors.Is(err, storage.ErrInvalid) || v != nil || strings.Contains(err.Error(), secret)), want != "" && err != nil:
			t.Errorf("%q: %v", text, err)
		case want != "":
			_, _ = v.Exists(t.Context(), id) // the account may refuse the login
			if !slices.Equal(transport.urls, []string{want + path}) {
				t.Errorf("%q: %v, want %s", text, transport.urls, want+path)
			}
		}
	}
	for text, want := range map[string]string{
		"UseDevelopmentStorage=true":                                                         "http://127.0.0.1:10000/devstoreaccount1",
		" usedevelopmentstorage = TRUE ; ":                                                   "http://127.0.0.1:10000/devstoreaccount1",
		"UseDevelopmentStorage=true;DevelopmentStorageProxyUri=http://azurite":               "http://azurite:10000/devstoreaccount1",
		"DevelopmentStorageProxyUri=https://[fe80::1]/;UseDevelopmentStorage=true":           "https://[fe80::1]:10000/devstoreaccount1",
		"UseDevelopmentStorage=false;BlobEndpoint=http://a/devstoreaccount1;AccountName=d":   "",
		"UseDevelopmentStorage=true;DevelopmentStorageProxyUri=azurite":                      "",
		"UseDevelopmentStorage=true;DevelopmentStorageProxyUri=ftp://azurite;AccountName=it": "",
		"AccountName=a@b;AccountKey=a2V5":                                                    "",
		"AccountName=a/b;AccountKey=a2V5":                                                    "",
		"AccountName=a?b;AccountKey=a2V5":                                                    "",
		"AccountName=a#b;AccountKey=a2V5":                                                    "",
		"AccountName=a;AccountKey=a2V5;EndpointSuffix=https://core.chinacloudapi.cn":         "",
		"AccountName=a b;AccountKey=a2V5;EndpointSuffix=" + secret + " x":                    "",
	} {
		check(byString, text, want)
	}
	for text, want := range map[string]string{
		"":                                  "https://a.example",
		"/":                                 "https://a.example",
		"/test-2026-11-22":                  "https://a.example",
		"/test-2026-11-22/":                 "https://a.example",
		"/test-control":                     "https://a.example",
		"/devstoreaccount1":                 "https://a.example/devstoreaccount1",
		"/devstoreaccount1/test-2026-11-22": "https://a.example/devstoreaccount1",
		"/devstoreaccount1/tset-2026-11-22": "",
	} {
		check(byURL, "https://a.example"+text+"?sv=1&sig="+secret, want)
	}
	for _, bad := range []string{"", "https://a.example", "https://a.example/?sv=1", "a.example?sig=" + secret, "https://%zz?sig=" + secret, "ftp://a?sig=" + secret} {
		check(byURL, bad, "")
	}
	for _, bad := range []string{
		"https://name.blob.core.windows.net/container", "https://name.blob.core.chinacloudapi.cn/container/", "https://name.blob.core.windows.net//container",
		"https://127.0.0.1:10000/" + emulator.DefaultAccount + "/container", "nonsense", "ftp://a.example", "https://%zz?sig=" + secret,
		"https://user:" + secret + "@name.blob.core.windows.net", "https://" + secret + ":" + secret + "@:" + secret, "https://ho st/?" + secret, ":" + secret,
	} {
		for _, open := range []open{byEndpoint, inString} {
			check(open, bad, "")
		}
	}
	for _, bad := range []string{"http://a.example?sig=" + secret, "https://a.example?sig=" + secret, "https://a.example#" + secret, "AccountKey=" + secret} {
		check(byEndpoint, bad, "")
	}
}

// TestSecretsStayInside uses the vault with each login through failures of every kind, and looks for the
// login's secrets in all that it says: errors, log lines, and the vault printed.
func TestSecretsStayInside(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	failures := []emulator.Effect{
		emulator.LostAnswer(), emulator.Answer(403, "AuthenticationFailed"), emulator.Answer(503, "ServerBusy"), emulator.Foreign(502, "text/html", "<p>bad gateway"),
		emulator.Redirect(302, "https://portal.invalid/login"),
	}
	for login, open := range logins {
		synctest.Test(t, func(t *testing.T) {
			server := emulator.New(emulator.Options{Tokens: tenant})
			owner := vaulttest.Signing(t, server)
			plan := vaulttest.Created(t, owner, plantest.Small())
			today := "test-" + workflow.Time(plan.ID).Format(time.DateOnly)
			var said strings.Builder
			seen := &secrets{}
			level := slog.HandlerOptions{Level: slog.LevelDebug}
			v, err := open(t.Context(), server, today,
				azblob.Options{Observer: azblob.LogObserver(slog.New(slog.NewTextHandler(&said, &level)))},
				azblob.Options{Backoff: azblob.Backoff{MaxElapsed: time.Second}},
				settings.Over(seen.transport(server, failures)))
			vaulttest.Must(t, err)
			for range len(failures) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				_, readErr := v.Read(ctx, plan.ID)
				_, listErr := storage.Collect(v.List(ctx, 0))
				_, rosterErr := v.Control().Roster(ctx)
				_, checkErr := v.Admin().Check(ctx, azblob.CheckOptions{})
				for _, err := range []error{v.Create(ctx, plantest.Small()), v.UpdatePlan(ctx, plan), v.Delete(ctx, plan.ID), v.Recovery(ctx), readErr, listErr, rosterErr, checkErr} {
					fmt.Fprintf(&said, "%v\n%+v\n%#v\n%q\n", err, err, err, err)
				}
				cancel()
			}
			fmt.Fprintf(&said, "%v\n%+v\n%#v\n", v, v, v)
			if said.Len() < 1000 || len(seen.values) == 0 {
				t.Fatalf("%s: %d bytes were said, and %d secrets sent", login, said.Len(), len(seen.values))
			}
			seen.values[emulator.DefaultKey] = true
			for secret := range seen.values {
				for _, form := range []string{secret, url.QueryEscape(secret), url.PathEscape(secret), strings.TrimRight(secret, "=")} {
					if at := strings.Index(said.String(), form); at >= 0 {
						t.Errorf("%s: a secret was said: ...%s", login, said.String()[max(0, at-200):at])
					}
				}
			}
		})
	}
}

// secrets collects what authorizes requests.
type secrets struct {
	mu     sync.Mutex
	values map[string]bool
	n      int
}

// transport sends requests to a server, some of which fail. Its errors quote the request, as those of
// net/http and of proxies do.
func (s *secrets) transport(server *emulator.Server, failures []emulator.Effect) policy.Transporter {
	s.values = map[string]bool{}
	for i, effect := range failures {
		server.Inject(emulator.On().Client("spied").Every(len(failures) + 2 + i).Do(effect))
	}
	next := server.NamedTransport("spied")
	return vaulttest.Send(func(req *http.Request) (*http.Response, error) {
		s.mu.Lock()
		if sig := req.URL.Query().Get("sig"); sig != "" {
			s.values[sig] = true
		}
		if _, authorization, _ := strings.Cut(req.Header.Get("Authorization"), " "); authorization != "" {
			_, signature, isKey := strings.Cut(authorization, ":")
			if !isKey {
				signature = authorization
			}
			s.values[signature] = true
		}
		s.n++
		fails := s.n%11 == 0
		s.mu.Unlock()
		if fails {
			return nil, fmt.Errorf("proxy: can't send %s with %v", req.URL, req.Header)
		}
		return next.Do(req)
	})
}

// TestErrorsNameNoPlace reads a plan through failures of the network, the service and proxies. The error may be shown to
// users of an API; with %+v it is for operators. No text has a secret.
func TestErrorsNameNoPlace(t *testing.T) {
	const host = "blob.emulator.invalid"
	address := &net.TCPAddr{IP: net.IPv4(20, 38, 1, 2), Port: 443}
	certificate := &x509.Certificate{DNSNames: []string{"intranet", "gate.corp"}}
	fails := func(err error) vaulttest.Send {
		return func(req *http.Request) (*http.Response, error) {
			return nil, &url.Error{Op: "Get", URL: "https://" + host + req.URL.Path + "?sig=SECRET", Err: err}
		}
	}
	answers := func(effect emulator.Effect) vaulttest.Send {
		server := emulator.New(emulator.Options{})
		server.Inject(emulator.On().Do(effect))
		return server.Transport().Do
	}
	for name, test := range map[string]struct {
		transport vaulttest.Send
		place     string // that only %+v names, besides the host and the container
		text      string // that both have
	}{
		"no such host":         {fails(&net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: host, Server: "10.0.0.53:53", IsNotFound: true}}), "10.0.0.53:53", "no such host"},
		"refused":              {fails(&net.OpError{Op: "dial", Net: "tcp", Addr: address, Err: syscall.ECONNREFUSED}), "20.38.1.2:443", "connection refused: nothing listens there"},
		"reset":                {fails(&net.OpError{Op: "read", Net: "tcp", Source: &net.TCPAddr{IP: net.IPv6loopback, Port: 5}, Addr: address, Err: syscall.ECONNRESET}), "[::1]:5", "connection reset by peer"},
		"proxy without DNS":    {fails(&net.OpError{Op: "proxyconnect", Net: "tcp", Err: &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: "proxy", IsNotFound: true}}}), "lookup proxy", "proxyconnect"},
		"another certificate":  {fails(&tls.CertificateVerificationError{Err: x509.HostnameError{Certificate: certificate, Host: host}}), "intranet, gate.corp", "root certificates"},
		"login":                {fails(errors.New("POST https://login.invalid/tenant/token?client_secret=x: sig=SECRET")), "https://login.invalid/tenant", "POST"},
		"proxy's page":         {answers(emulator.Foreign(403, "text/html", "ask gate.corp, localhost:8080 or http://portal/a?sig=SECRET")), "gate.corp, localhost:8080", "the answer is 403"},
		"redirect":             {answers(emulator.Redirect(302, "https://portal.invalid/login?sig=SECRET")), "portal.invalid", "is not followed"},
		"refusal":              {answers(emulator.Answer(403, "AuthorizationFailure")), host, "403 AuthorizationFailure"},
		"refusal with a link":  {answers(emulator.Answer(401, "InvalidAuthenticationInfo")), host, "401 InvalidAuthenticationInfo"},
		"trouble":              {answers(emulator.Answer(503, "ServerBusy")), host, "503 ServerBusy"},
		"nothing stored there": {emulator.New(emulator.Options{}).Transport().Do, host, "404 ContainerNotFound"},
	} {
		synctest.Test(t, func(t *testing.T) {
			v := vaulttest.OnEmulator(t, emulator.New(emulator.Options{}), azblob.Options{ClientOptions: policy.ClientOptions{Transport: test.transport}, Backoff: azblob.Backoff{MaxElapsed: time.Second}})
			plan := plantest.Small()
			plan.ID = workflow.NewV7()
			_, err := v.Read(t.Context(), plan.ID)
			var e *storage.Error
			if !errors.As(err, &e) {
				t.Fatalf("%s: %v", name, err)
			}
			container, _, _ := strings.Cut(e.Blob, "/")
			for _, text := range []string{err.Error(), fmt.Sprintf("%v", err), fmt.Sprintf("%s", err), fmt.Sprintf("%q", err), fmt.Errorf("read: %w", err).Error()} {
				for _, place := range []string{container, "test-20", host, test.place, "gate.corp", "://portal", "SECRET"} {
					if strings.Contains(text, place) {
						t.Errorf("%s: %q names %s", name, text, place)
					}
				}
				if !strings.Contains(text, test.text) || !strings.Contains(text, "plans/"+plan.ID.String()) {
					t.Errorf("%s: %q, want %q", name, text, test.text)
				}
			}
			for _, text := range []string{fmt.Sprintf("%+v", err), storage.Detail(fmt.Errorf("read: %w", err))} {
				for _, place := range []string{container + "/plans/", host + ": ", test.place, test.text} {
					if !strings.Contains(text, place) {
						t.Errorf("%s: %q does not name %s", name, text, place)
					}
				}
				if strings.Contains(text, "SECRET") {
					t.Errorf("%s: %q", name, text)
				}
			}
		})
	}
}

func TestMain(m *testing.M) { os.Exit(vaulttest.Azurite.Run(m)) }
