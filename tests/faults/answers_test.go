package faults_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"

	"github.com/planvault/azblob/internal/vaulttest"
)

// method is a call of a vault on a plan that is stored and running.
type method struct {
	name   string
	writes bool
	call   func(ctx context.Context, v *azblob.Vault, plan *workflow.Plan) error
}

// methods are all methods that send requests.
var methods = []method{
	{"Create", true, func(ctx context.Context, v *azblob.Vault, _ *workflow.Plan) error {
		return v.Create(ctx, plantest.Small())
	}},
	{"UpdatePlan", true, func(ctx context.Context, v *azblob.Vault, plan *workflow.Plan) error { return v.UpdatePlan(ctx, plan) }},
	{"UpdateAction", true, func(ctx context.Context, v *azblob.Vault, plan *workflow.Plan) error {
		return v.UpdateAction(ctx, plan.Blocks[0].Sequences[0].Actions[0])
	}},
	{"Delete", true, func(ctx context.Context, v *azblob.Vault, plan *workflow.Plan) error { return v.Delete(ctx, plan.ID) }},
	{"Read", false, func(ctx context.Context, v *azblob.Vault, plan *workflow.Plan) error {
		return vaulttest.ErrOf(v.Read(ctx, plan.ID))
	}},
	{"Exists", false, func(ctx context.Context, v *azblob.Vault, plan *workflow.Plan) error {
		return vaulttest.ErrOf(v.Exists(ctx, plan.ID))
	}},
	{"List", false, func(ctx context.Context, v *azblob.Vault, _ *workflow.Plan) error {
		return vaulttest.ErrOf(storage.Collect(v.List(ctx, 0)))
	}},
	{"Search", false, func(ctx context.Context, v *azblob.Vault, _ *workflow.Plan) error {
		return vaulttest.ErrOf(storage.Collect(v.Search(ctx, storage.Filters{ByStatus: []workflow.Status{workflow.Running}})))
	}},
	{"Recovery", false, func(ctx context.Context, v *azblob.Vault, _ *workflow.Plan) error { return v.Recovery(ctx) }},
	{"Check", false, func(ctx context.Context, v *azblob.Vault, _ *workflow.Plan) error {
		return vaulttest.ErrOf(v.Admin().Check(ctx, azblob.CheckOptions{}))
	}},
}

// eachMethod runs a test for each method, on a server that holds a running plan.
func eachMethod(t *testing.T, test func(t *testing.T, m method, server *emulator.Server, plan *workflow.Plan)) {
	t.Helper()
	for _, m := range methods {
		vaulttest.InBubble(t, m.name, func(t *testing.T, server *emulator.Server) {
			_, plan := vaulttest.Running(t, vaulttest.OnEmulator(t, server), plantest.Small())
			test(t, m, server, plan)
		})
	}
}

// TestErrors lets a fault last for the whole of each call. The error has the right kind, is one line without secrets,
// and names the host. An outage under a deadline is also the context's error.
func TestErrors(t *testing.T) {
	efforttest.NotShort(t, "each error is a case of one goroutine")
	kinds := []error{storage.ErrUnavailable, storage.ErrDenied, storage.ErrNotFound, storage.ErrExists, storage.ErrConflict, storage.ErrCorrupt}
	faults := map[emulator.Effect]error{
		emulator.Answer(403, "AuthenticationFailed"):                           storage.ErrDenied,
		emulator.Answer(403, "AuthorizationPermissionMismatch"):                storage.ErrDenied,
		emulator.Answer(403, "AuthorizationFailure"):                           storage.ErrDenied,
		emulator.Answer(403, "AccountIsDisabled"):                              storage.ErrDenied,
		emulator.Answer(400, "InvalidHeaderValue"):                             storage.ErrDenied,
		emulator.Answer(500, "InternalError"):                                  storage.ErrUnavailable,
		emulator.Answer(503, "ServerBusy"):                                     storage.ErrUnavailable,
		emulator.Answer(409, "Unheard\nOf"):                                    storage.ErrUnavailable, // not the service's
		emulator.Answer(304, "ConditionNotMet"):                                storage.ErrUnavailable, // nobody asked for it
		emulator.LostRequest():                                                 storage.ErrUnavailable,
		emulator.LostAnswer():                                                  storage.ErrUnavailable,
		emulator.Reset():                                                       storage.ErrUnavailable,
		emulator.Silence():                                                     storage.ErrUnavailable,
		emulator.Redirect(302, "http://"+emulator.DefaultKey+".invalid?sig=s"): storage.ErrUnavailable,
		emulator.Answer(404, "ResourceNotFound"):                               nil, // of any kind
		emulator.Answer(409, "SnapshotsPresent"):                               nil,
		emulator.Answer(412, "LeaseIdMissing"):                                 nil,
		emulator.FlipBit(7):                                                    nil,
	}
	for _, status := range []int{200, 201, 302, 304, 400, 401, 403, 404, 407, 409, 412, 429, 502, 503, 507, 520} {
		page := emulator.Foreign(status, "text/html", vaulttest.Portal)
		faults[page], faults[page.Applied()] = storage.ErrUnavailable, storage.ErrUnavailable
	}
	eachMethod(t, func(t *testing.T, m method, server *emulator.Server, plan *workflow.Plan) {
		for effect, want := range faults {
			ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
			err := m.call(ctx, vaulttest.Faulty(t, server.Clone(), emulator.On().Do(effect)), plan)
			cancel()
			if err == nil && want == nil {
				continue
			}
			oneLine(t, err)
			for _, kind := range kinds {
				if want != nil && errors.Is(err, kind) != (kind == want) {
					t.Errorf("%s: it is %v: %t: %v", effect, kind, kind != want, err)
				}
			}
			if want == storage.ErrUnavailable && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: it is not the context's error: %v", effect, err)
			}
			if !m.writes && errors.Is(err, storage.ErrUnknown) {
				t.Errorf("%s: the outcome of a read is unknown: %v", effect, err)
			}
			text := fmt.Sprint(err)
			if !strings.Contains(storage.Detail(err), "blob.emulator.invalid") && !errors.Is(err, storage.ErrNotFound) && !errors.Is(err, storage.ErrCorrupt) {
				t.Errorf("%s: the host is not named: %q", effect, text)
			}
			if strings.Contains(text, "right to list containers") && (m.writes || m.name == "Read" || m.name == "Exists") {
				t.Errorf("%s: %q", effect, text)
			}
		}
	})
}

// oneLine expects the text of an error to have no line breaks, monotonic times or secrets.
func oneLine(t *testing.T, err error) {
	t.Helper()
	text := fmt.Sprint(err)
	if e := (*storage.Error)(nil); !errors.As(err, &e) {
		t.Errorf("%T: %v", err, err)
	}
	if strings.ContainsAny(text, "\n\r") || strings.Contains(text, "m=+") || strings.Contains(text, emulator.DefaultKey) || len(text) > 2000 {
		t.Errorf("%d bytes: %q", len(text), text)
	}
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

// TestCreateKeepsToMaxElapsed checks that the grace period does not replace MaxElapsed as a deadline of the
// caller would.
func TestCreateKeepsToMaxElapsed(t *testing.T) {
	for n := 1; n <= 7; n++ { // the requests of a Create of a small plan
		vaulttest.InBubble(t, fmt.Sprintf("from request %d", n), func(t *testing.T, server *emulator.Server) {
			v := vaulttest.OnEmulator(t, server, vaulttest.Meets(server, emulator.On().Range(n, 0).Do(emulator.Answer(503, "ServerBusy"))),
				azblob.Options{Backoff: azblob.Backoff{InitialInterval: 10 * time.Millisecond, MaxInterval: 50 * time.Millisecond, MaxElapsed: 500 * time.Millisecond}})
			started := time.Now()
			err := v.Create(t.Context(), plantest.Small())
			if took := time.Since(started); took > 2*time.Second || !errors.Is(err, storage.ErrUnavailable) {
				t.Errorf("it took %v: %v", took, err)
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
		azblob.Options{Backoff: azblob.Backoff{InitialInterval: time.Hour, MaxInterval: time.Hour, MaxElapsed: 24 * time.Hour}},
		azblob.Options{Observer: azblob.Observer{Retry: func(_ context.Context, r azblob.RetryEvent) { told = append(told, r); cancel() }}})
	_, err := v.Exists(ctx, workflow.NewV7())
	if !errors.Is(err, context.Canceled) || len(told) != 1 || !strings.Contains(told[0].Err.Error(), "127.0.0.1:1") {
		t.Errorf("%v; the observer was told of %+v", err, told)
	}
}

// TestNewWithAReplacedDefaultTransport checks that New works in a program that has replaced
// http.DefaultTransport.
func TestNewWithAReplacedDefaultTransport(t *testing.T) {
	old := http.DefaultTransport
	defer func() { http.DefaultTransport = old }()
	http.DefaultTransport = http.NewFileTransport(http.Dir("."))
	vaulttest.Should(t, vaulttest.ErrOf(azblob.New(t.Context(), "prod", "https://account.blob.core.windows.net", vaulttest.Token{}, nil, azblob.Options{})))
}
