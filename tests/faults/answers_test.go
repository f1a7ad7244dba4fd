package faults_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/sas"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/service"
	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"

	"github.com/planvault/azblob/tests/vaulttest"
)

// method is a call of a vault on a plan that is stored and running.
type method struct {
	name   string
	writes bool
	call   func(ctx context.Context, v *azblob.Vault, plan *workflow.Plan) error
}

// methods returns every method that sends requests.
func methods() []method {
	drain := func(seq func(func(storage.Stream[storage.ListResult]) bool), err error) error {
		if err != nil {
			return err
		}
		for r := range seq {
			if r.Err != nil {
				return r.Err
			}
		}
		return nil
	}
	return []method{
		{"Create", true, func(ctx context.Context, v *azblob.Vault, _ *workflow.Plan) error {
			return v.Create(ctx, plantest.Small())
		}},
		{"UpdatePlan", true, func(ctx context.Context, v *azblob.Vault, plan *workflow.Plan) error { return v.UpdatePlan(ctx, plan) }},
		{"UpdateAction", true, func(ctx context.Context, v *azblob.Vault, plan *workflow.Plan) error {
			return v.UpdateAction(ctx, plan.Blocks[0].Sequences[0].Actions[0])
		}},
		{"Delete", true, func(ctx context.Context, v *azblob.Vault, plan *workflow.Plan) error { return v.Delete(ctx, plan.ID) }},
		{"Read", false, func(ctx context.Context, v *azblob.Vault, plan *workflow.Plan) error {
			_, err := v.Read(ctx, plan.ID)
			return err
		}},
		{"Exists", false, func(ctx context.Context, v *azblob.Vault, plan *workflow.Plan) error {
			_, err := v.Exists(ctx, plan.ID)
			return err
		}},
		{"List", false, func(ctx context.Context, v *azblob.Vault, _ *workflow.Plan) error { return drain(v.List(ctx, 0)) }},
		{"Search", false, func(ctx context.Context, v *azblob.Vault, _ *workflow.Plan) error {
			return drain(v.Search(ctx, storage.Filters{ByStatus: []workflow.Status{workflow.Running}}))
		}},
		{"Recovery", false, func(ctx context.Context, v *azblob.Vault, _ *workflow.Plan) error { return v.Recovery(ctx) }},
		{"Check", false, func(ctx context.Context, v *azblob.Vault, _ *workflow.Plan) error {
			_, err := v.Check(ctx, azblob.CheckOptions{})
			return err
		}},
	}
}

// eachMethod runs a test for each method, on a server that holds a running plan.
func eachMethod(t *testing.T, test func(t *testing.T, m method, server *emulator.Server, plan *workflow.Plan)) {
	t.Helper()
	for _, m := range methods() {
		vaulttest.InBubble(t, m.name, func(t *testing.T, server *emulator.Server) {
			_, plan := vaulttest.Running(t, vaulttest.OnEmulator(t, server), plantest.Small())
			test(t, m, server, plan)
		})
	}
}

// TestAnswersOfProxies lets a portal answer in place of the service for a whole call. No method believes it,
// and the error names the host and its answer.
func TestAnswersOfProxies(t *testing.T) {
	efforttest.NotShort(t, "each error is a case of one goroutine")
	eachMethod(t, func(t *testing.T, m method, server *emulator.Server, plan *workflow.Plan) {
		for _, status := range []int{200, 201, 302, 400, 401, 403, 404, 407, 409, 412, 429, 502, 503, 507, 520} {
			for _, effect := range []emulator.Effect{emulator.Foreign(status, "text/html", vaulttest.Portal), emulator.Foreign(status, "text/html", vaulttest.Portal).Applied()} {
				v := vaulttest.Faulty(t, server.Clone(), emulator.On().Do(effect))
				err := m.call(t.Context(), v, plan)
				if !errors.Is(err, storage.ErrUnavailable) || errors.Is(err, storage.ErrUnknown) != m.writes && m.name != "Create" && m.name != "Delete" {
					t.Errorf("%s: %v", effect, err)
					continue
				}
				for _, sentinel := range []error{storage.ErrNotFound, storage.ErrExists, storage.ErrConflict, storage.ErrDenied, storage.ErrCorrupt} {
					if errors.Is(err, sentinel) {
						t.Errorf("%s: it is %v: %v", effect, sentinel, err)
					}
				}
				if text := err.Error(); !strings.Contains(text, fmt.Sprintf("blob.emulator.invalid: the answer is %d", status)) || strings.Contains(text, "\n") {
					t.Errorf("%s: %q", effect, text)
				}
			}
		}
	})
}

// TestRefusalsAreFinal refuses all requests of a call from one of them on: because of the version, or because the account
// allows no keys. No method waits and tries again; what it sends after the first refusal is under way already, or undoes.
func TestRefusalsAreFinal(t *testing.T) {
	for _, effect := range []emulator.Effect{emulator.Answer(400, ""), emulator.Answer(403, "KeyBasedAuthenticationNotPermitted")} {
		eachMethod(t, func(t *testing.T, m method, server *emulator.Server, plan *workflow.Plan) {
			for from := 1; ; from++ {
				copied, rule, started := server.Clone(), emulator.On().Range(from, 0).Do(effect), time.Now()
				p := *plan
				err := m.call(t.Context(), vaulttest.Faulty(t, copied, rule), &p)
				if rule.Fired() == 0 {
					return
				}
				if !errors.Is(err, storage.ErrDenied) || rule.Fired() > 6 || time.Since(started) > 0 {
					t.Errorf("%s from request %d: %d requests in %v, %v", effect, from, rule.Fired(), time.Since(started), err)
				}
				vaulttest.Settled(t, vaulttest.OnEmulator(t, copied))
			}
		})
	}
}

// TestWriteWithoutETagIsNotDurable checks that a 201 without an ETag, from somebody other than the service,
// does not count as a write.
func TestWriteWithoutETagIsNotDurable(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	eachMethod(t, func(t *testing.T, m method, server *emulator.Server, plan *workflow.Plan) {
		if !m.writes {
			return
		}
		v := vaulttest.Faulty(t, server, emulator.On(emulator.PutBlob).Times(1).Do(emulator.Foreign(201, "", "")))
		if err := m.call(t.Context(), v, plan); err != nil {
			t.Errorf("it was not written again: %v", err)
		}
		vaulttest.Settled(t, vaulttest.OnEmulator(t, server))
	})
}

// TestEchoesAreNotQuoted lets a proxy answer writes with what was sent. Neither errors nor log lines have it.
func TestEchoesAreNotQuoted(t *testing.T) {
	vaulttest.InBubble(t, "", func(t *testing.T, server *emulator.Server) {
		var said strings.Builder
		echoed, inner := 0, server.Transport()
		echo := vaulttest.Send(func(req *http.Request) (*http.Response, error) {
			if !strings.Contains(req.URL.Path, "/plans/") || req.Method != http.MethodPut {
				return inner.Do(req)
			}
			echoed++
			return &http.Response{StatusCode: http.StatusBadGateway, Header: http.Header{"Content-Type": {"text/plain"}}, Body: req.Body, Request: req}, nil
		})
		v := vaulttest.OnEmulator(t, server, azblob.WithTransport(echo), azblob.WithRetry(azblob.Retry{MaxElapsed: time.Second}),
			azblob.WithObserver(azblob.LogObserver(slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelDebug})))))
		plan := plantest.Small()
		fmt.Fprintln(&said, v.Create(t.Context(), plan))
		if echoed == 0 || !strings.Contains(said.String(), "text/plain") || strings.Contains(said.String(), `schema`) {
			t.Errorf("%d echoes: %s", echoed, said.String())
		}
	})
}

// TestCreateKeepsToMaxElapsed checks that the grace period does not replace MaxElapsed as a deadline of the
// caller would.
func TestCreateKeepsToMaxElapsed(t *testing.T) {
	for n := 1; n <= 7; n++ { // the requests of a Create of a small plan
		vaulttest.InBubble(t, fmt.Sprintf("from request %d", n), func(t *testing.T, server *emulator.Server) {
			transport := server.Transport()
			transport.Inject(emulator.On().Range(n, 0).Do(emulator.Answer(503, "ServerBusy")))
			v := vaulttest.OnEmulator(t, server, azblob.WithTransport(transport),
				azblob.WithRetry(azblob.Retry{InitialInterval: 10 * time.Millisecond, MaxInterval: 50 * time.Millisecond, MaxElapsed: 500 * time.Millisecond}))
			started := time.Now()
			err := v.Create(t.Context(), plantest.Small())
			if took := time.Since(started); took > 2*time.Second || !errors.Is(err, storage.ErrUnavailable) {
				t.Errorf("it took %v: %v", took, err)
			}
		})
	}
}

// TestOutageUnderADeadline checks that an outage under a deadline is reported as both: the context's error
// and ErrUnavailable.
func TestOutageUnderADeadline(t *testing.T) {
	for _, effect := range []emulator.Effect{
		emulator.Answer(503, "ServerBusy"), emulator.LostRequest(), emulator.Silence(), emulator.Foreign(502, "text/html", vaulttest.Portal),
	} {
		eachMethod(t, func(t *testing.T, m method, server *emulator.Server, plan *workflow.Plan) {
			ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
			defer cancel()
			err := m.call(ctx, vaulttest.Faulty(t, server, emulator.On().Do(effect)), plan)
			if !errors.Is(err, storage.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v", effect, err)
			}
		})
	}
}

// TestOutagesAreToldOfAtOnce checks that the observer sees the first failure of an unreachable host before
// the first wait.
func TestOutagesAreToldOfAtOnce(t *testing.T) {
	var told []azblob.RetryEvent
	ctx, cancel := context.WithCancel(t.Context())
	v := vaulttest.OpenVault(t, "test", "AccountName=a;AccountKey=a2V5;BlobEndpoint=http://127.0.0.1:1/a", // nobody listens there
		azblob.WithRetry(azblob.Retry{InitialInterval: time.Hour, MaxInterval: time.Hour, MaxElapsed: 24 * time.Hour}),
		azblob.WithObserver(azblob.Observer{Retry: func(_ context.Context, r azblob.RetryEvent) { told = append(told, r); cancel() }}))
	_, err := v.Exists(ctx, workflow.NewV7())
	if !errors.Is(err, context.Canceled) || len(told) != 1 || !strings.Contains(told[0].Err.Error(), "127.0.0.1:1") {
		t.Errorf("%v; the observer was told of %+v", err, told)
	}
}

// TestErrorsAreOneLine checks errors of all kinds. Their text has no line breaks, monotonic times or secrets.
// Where a request was sent, the text names the account's host.
func TestErrorsAreOneLine(t *testing.T) {
	efforttest.NotShort(t, "each error is a case of one goroutine")
	oneLine := func(t *testing.T, err error, asked bool) {
		t.Helper()
		if err == nil {
			t.Error("there is no error")
			return
		}
		text := err.Error()
		if strings.ContainsAny(text, "\n\r") || strings.Contains(text, "m=+") || strings.Contains(text, emulator.DefaultKey) || len(text) > 2000 {
			t.Errorf("%d bytes: %q", len(text), text)
		}
		if asked != strings.Contains(text, "blob.emulator.invalid: ") {
			t.Errorf("the account's host is named: %v, want %v: %q", !asked, asked, text)
		}
		var e *storage.Error
		if !errors.As(err, &e) {
			t.Errorf("%T: %v", err, err)
		}
	}
	eachMethod(t, func(t *testing.T, m method, server *emulator.Server, plan *workflow.Plan) {
		for _, effect := range []emulator.Effect{
			emulator.Answer(403, "AuthenticationFailed"), emulator.Answer(403, "AuthorizationPermissionMismatch"), emulator.Answer(403, "AuthorizationFailure"),
			emulator.Answer(403, "AccountIsDisabled"), emulator.Answer(409, "SnapshotsPresent"), emulator.Answer(412, "LeaseIdMissing"),
			emulator.Answer(400, "InvalidHeaderValue"), emulator.Answer(500, "InternalError"), emulator.Answer(503, "ServerBusy"),
			emulator.Answer(404, "ResourceNotFound"), emulator.Answer(409, "Unheard\nOf"), emulator.Reset(), emulator.LostAnswer(), emulator.Silence(),
			emulator.Foreign(200, "text/html", vaulttest.Portal), emulator.Redirect(302, "http://"+emulator.DefaultKey+".invalid?"+emulator.DefaultKey), emulator.FlipBit(7),
		} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			err := m.call(ctx, vaulttest.Faulty(t, server.Clone(), emulator.On().Do(effect)), plan)
			cancel()
			if err != nil {
				text := err.Error()
				oneLine(t, err, strings.Contains(text, "blob.emulator.invalid: "))
				if remedy := "right to list containers"; strings.Contains(text, remedy) && (m.writes || m.name == "Read" || m.name == "Exists") {
					t.Errorf("%s: %q", effect, text)
				}
				if !strings.Contains(text, "blob.emulator.invalid: ") && !errors.Is(err, storage.ErrNotFound) && !errors.Is(err, storage.ErrCorrupt) {
					t.Errorf("%s: the host is not named: %q", effect, text)
				}
			}
		}
	})
	vaulttest.InBubble(t, "input", func(t *testing.T, server *emulator.Server) {
		v := vaulttest.OnEmulator(t, server)
		bad := plantest.Sized(10, 10, 10)
		for o := range workflow.Walk(bad) {
			o.Header().State.Status = workflow.Running
		}
		err := v.Create(t.Context(), bad)
		oneLine(t, err, false)
		var field *workflow.FieldError
		if !errors.As(err, &field) || !errors.Is(err, storage.ErrInvalid) || !strings.Contains(err.Error(), "more") {
			t.Errorf("%v", err)
		}
		now := time.Now() // has a monotonic reading
		_, err = v.Search(t.Context(), storage.Filters{After: now, Before: now.Add(-time.Hour)})
		oneLine(t, err, false)
		_, err = v.Check(t.Context(), azblob.CheckOptions{After: now, Before: now.Add(-time.Hour)})
		oneLine(t, err, false)
		_, err = v.Read(t.Context(), uuid.New())
		oneLine(t, err, false)
		_, err = azblob.New(t.Context(), "Bad", "http://x", nil, nil, azblob.WithConcurrency(-1), azblob.WithGracePeriod(-1))
		oneLine(t, err, false)
	})
}

// TestNewTellsNoSecret checks the errors about endpoints and connection strings that contain a secret.
func TestNewTellsNoSecret(t *testing.T) {
	const secret = "c2VjcmV0LWtleQ"
	for _, endpoint := range []string{
		"http://account.blob.core.windows.net?sig=" + secret, "https://account.blob.core.windows.net?sig=" + secret,
		"https://account.blob.core.windows.net/%zz?sig=" + secret, "https://user:" + secret + "@account.blob.core.windows.net",
		"https://account.blob.core.windows.net#" + secret, "https://" + secret + ":" + secret + "@:" + secret, "AccountKey=" + secret,
		"DefaultEndpointsProtocol=https;AccountName=a;AccountKey=" + secret, "https://ho st/?" + secret, ":" + secret,
	} {
		v, err := azblob.New(t.Context(), "prod", endpoint, vaulttest.Token{}, nil)
		if err == nil || v != nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%q: %v", endpoint, err)
		}
	}
	for _, cs := range []string{
		secret, "AccountKey=" + secret, "AccountName=a;AccountKey=" + secret + "!", "BlobEndpoint=https://a:" + secret + "/;SharedAccessSignature=sig=" + secret,
		"BlobEndpoint=https://%zz/;SharedAccessSignature=sig=" + secret, "AccountName=a;AccountKey=a2V5;BlobEndpoint=https://[" + secret,
		"AccountName=a b;AccountKey=a2V5;EndpointSuffix=" + secret + " x",
	} {
		v, err := azblob.NewFromConnectionString(t.Context(), "prod", cs, nil)
		if err == nil || v != nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%q: %v", cs, err)
		}
	}
}

// TestNewWithAReplacedDefaultTransport checks that New works in a program that has replaced
// http.DefaultTransport.
func TestNewWithAReplacedDefaultTransport(t *testing.T) {
	old := http.DefaultTransport
	defer func() { http.DefaultTransport = old }()
	http.DefaultTransport = http.NewFileTransport(http.Dir("."))
	if _, err := azblob.New(t.Context(), "prod", "https://account.blob.core.windows.net", vaulttest.Token{}, nil); err != nil {
		t.Error(err)
	}
}

// TestDeleteWhereBatchesAreRefused deletes with a shared access signature that has no permission for batches.
func TestDeleteWhereBatchesAreRefused(t *testing.T) {
	for _, effect := range []emulator.Effect{emulator.Answer(403, "AuthorizationPermissionMismatch"), emulator.Foreign(500, "", "")} {
		vaulttest.InBubble(t, effect.String(), func(t *testing.T, server *emulator.Server) {
			v := vaulttest.Faulty(t, server, emulator.On(emulator.BatchDelete).Do(effect))
			for range 2 {
				plan := vaulttest.Created(t, v, plantest.Small())
				if err := v.Delete(t.Context(), plan.ID); err != nil {
					t.Error(err)
				}
			}
			if n := vaulttest.Stored(server); n != 0 {
				t.Errorf("%d blobs are left", n)
			}
			batches := 0
			for _, r := range server.Requests() {
				if r.Op == emulator.BatchDelete {
					batches++
				}
			}
			if batches > 3 {
				t.Errorf("%d batches were sent", batches)
			}
		})
	}
}

// TestSharedAccessSignatureOnAzurite deletes with a shared access signature. Azurite answers its batches with
// 500.
func TestSharedAccessSignatureOnAzurite(t *testing.T) {
	efforttest.NotShort(t, "the emulator does the same in TestDeleteWhereBatchesAreRefused")
	connectionString := vaulttest.Azurite.Get(t).ConnectionString()
	client, err := service.NewClientFromConnectionString(connectionString, nil)
	vaulttest.Must(t, err)
	url, err := client.GetSASURL(sas.AccountResourceTypes{Service: true, Container: true, Object: true},
		sas.AccountPermissions{Read: true, Write: true, Create: true, Delete: true, List: true}, time.Now().Add(time.Hour), nil)
	vaulttest.Must(t, err)
	endpoint, signature, _ := strings.Cut(url, "?")
	prefix := "t" + uuid.NewString()
	defer func() {
		if err := vaulttest.DropContainers(t.Context(), connectionString, prefix); err != nil {
			t.Error(err)
		}
	}()
	v := vaulttest.OpenVault(t, prefix, "BlobEndpoint="+endpoint+";SharedAccessSignature="+signature)
	for range 2 {
		plan := vaulttest.Created(t, v, plantest.Small())
		vaulttest.Must(t, v.Delete(t.Context(), plan.ID))
		if _, err := v.Read(t.Context(), plan.ID); !errors.Is(err, storage.ErrNotFound) {
			t.Errorf("it is read after its deletion: %v", err)
		}
	}
}
