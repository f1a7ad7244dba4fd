package azblobotel_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/azblobotel"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// latency is how long the emulator takes for a request, in virtual time.
const latency = 20 * time.Millisecond

// vault opens a vault whose observer reports to the rig.
func (r *rig) vault(server *emulator.Server) *azblob.Vault {
	r.t.Helper()
	observer, err := azblobotel.New(r.opts)
	must(r.t, err)
	v, err := azblob.NewFromConnectionString(r.t.Context(), "otel", server.ConnectionString(), nil,
		azblob.Options{ClientOptions: policy.ClientOptions{Transport: server.Transport()}, Observer: observer})
	must(r.t, err)
	return v
}

// small returns a plan with three sub-objects.
func small() *workflow.Plan {
	return &workflow.Plan{Name: "small", Blocks: []*workflow.Block{{
		Name: "b", Sequences: []*workflow.Sequence{{Actions: []*workflow.Action{{Name: "a", Plugin: "p"}}}},
	}}}
}

// list lists the newest plans.
func list(t *testing.T, v *azblob.Vault) {
	t.Helper()
	plans, err := v.List(t.Context(), 5)
	must(t, err)
	for p := range plans {
		must(t, p.Err)
	}
}

// find returns the only span with a name.
func (r *rig) find(name string) tracetest.SpanStub {
	r.t.Helper()
	spans := r.spans.GetSpans()
	spans = slices.DeleteFunc(spans, func(s tracetest.SpanStub) bool { return s.Name != name })
	if len(spans) != 1 {
		r.t.Fatalf("there are %d spans %q", len(spans), name)
	}
	return spans[0]
}

// wantAttrs checks attributes of a span or an event. An empty value stands for no attribute.
func wantAttrs(t *testing.T, what string, attrs []attribute.KeyValue, want map[attribute.Key]string) {
	t.Helper()
	set := attribute.NewSet(attrs...)
	for key, value := range want {
		if got, _ := set.Value(key); got.String() != value && (value != "" || set.HasValue(key)) {
			t.Errorf("%s: %s is %q, want %q", what, key, got.String(), value)
		}
	}
}

// TestTrace creates a plan while one request meets a busy service. The trace has a span for the call and one
// for each request, with the times of virtual clocks.
func TestTrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "otel")
		server := emulator.New(emulator.Options{Latency: latency})
		server.Inject(emulator.On(emulator.PutBlob).Path("actions/*/*").Nth(1).Do(emulator.Answer(503, "ServerBusy")))
		plan := small()
		ctx, root := r.traces.Tracer("test").Start(t.Context(), "root")
		must(t, r.vault(server).Create(ctx, plan))
		root.End()

		call := r.find("Create otel")
		if call.Parent.SpanID() != root.SpanContext().SpanID() || call.Status.Code != codes.Unset {
			t.Errorf("Create is a child of %v with status %v", call.Parent, call.Status)
		}
		wantAttrs(t, "Create", call.Attributes, map[attribute.Key]string{
			"db.system.name": "azure.blob", "db.namespace": "otel", "db.operation.name": "Create", "azblob.plan.id": plan.ID.String(),
			"azblob.outcome": "ok", "error.type": "", "azblob.requests": "8", "azblob.round_trips": "6",
		})
		if len(call.Events) != 1 || call.Events[0].Name != "azblob.retry" {
			t.Fatalf("the events are %v", call.Events)
		}
		retry := call.Events[0]
		wantAttrs(t, "retry", retry.Attributes, map[attribute.Key]string{"azblob.request.name": "put", "azblob.retry.try": "1", "error.type": "503"})
		attrs := attribute.NewSet(retry.Attributes...)
		wait, _ := attrs.Value("azblob.retry.wait")
		took := call.EndTime.Sub(call.StartTime) // six round trips and the wait
		if slept := took - 6*latency; slept <= 0 || (slept-time.Duration(wait.AsFloat64()*float64(time.Second))).Abs() > time.Microsecond {
			t.Errorf("Create took %v with a wait of %v s", took, wait.AsFloat64())
		}

		var requests []string
		for _, s := range r.spans.GetSpans() {
			if s.Parent.SpanID() != call.SpanContext.SpanID() {
				continue
			}
			if took := s.EndTime.Sub(s.StartTime); took != latency || s.StartTime.Before(call.StartTime) || s.EndTime.After(call.EndTime) {
				t.Errorf("%s took %v from %v", s.Name, took, s.StartTime)
			}
			name, set := s.Name, attribute.NewSet(s.Attributes...)
			if s.Status.Code == codes.Error {
				name += ", failed"
			}
			if set.HasValue("http.request.resend_count") {
				name += ", again"
			}
			requests = append(requests, name)
		}
		slices.Sort(requests)
		want := []string{"PUT actions, again", "PUT actions, failed", "PUT blocks", "PUT create container", "PUT open", "PUT plans", "PUT plans", "PUT sequences"}
		if !slices.Equal(requests, want) {
			t.Errorf("the requests are %q", requests)
		}
	})
}

// TestEvents checks what is measured of events, which are also events of the span of the call.
func TestEvents(t *testing.T) {
	op := azblob.Operation{Name: "Search"}
	repair := func(did string, err error) func(ctx context.Context, o azblob.Observer) {
		return func(ctx context.Context, o azblob.Observer) {
			o.Repair(ctx, azblob.RepairEvent{RepairedPlan: azblob.RepairedPlan{ID: workflow.NewV7(), Did: did, Err: err}})
		}
	}
	for _, test := range []struct {
		report         func(ctx context.Context, o azblob.Observer)
		event, measure string
		want           string
	}{
		{func(ctx context.Context, o azblob.Observer) { o.Conflict(ctx, azblob.ConflictEvent{Operation: op}) }, "azblob.conflict", "azblob.conflicts", "{db.operation.name=Search} 1"},
		{func(ctx context.Context, o azblob.Observer) { o.Damage(ctx, azblob.DamageEvent{Operation: op}) }, "azblob.damage", "azblob.damages", "{db.operation.name=Search} 1"},
		{repair("removed", nil), "azblob.repair", "azblob.repairs", "{azblob.repair.result=repaired} 1"},
		{repair("", nil), "azblob.repair", "azblob.repairs", "{azblob.repair.result=found} 1"},
		{repair("", storage.ErrCorrupt), "azblob.repair", "azblob.repairs", "{azblob.repair.result=failed} 1"},
		{repair("tried", storage.ErrCorrupt), "azblob.repair", "azblob.repairs", "{azblob.repair.result=failed} 1"},
	} {
		r := newRig(t, "")
		o, err := azblobotel.New(r.opts)
		must(t, err)
		ctx, end := o.OperationStart(t.Context(), op)
		test.report(ctx, o)
		end(azblob.OperationEnd{Operation: op})
		r.wantMeasured(test.measure, test.want)
		if events := r.find("Search").Events; len(events) != 1 || events[0].Name != test.event {
			t.Errorf("the events are %v, want %s", events, test.event)
		}
	}
}

// TestOutcomes enumerates the outcomes of calls: the span has the status Error if and only if the measurement
// has an error.type.
func TestOutcomes(t *testing.T) {
	plain := errors.New("broken")
	for _, test := range []struct {
		err    error
		failed string
	}{
		{nil, ""},
		{storage.ErrNotFound, ""},
		{storage.ErrExists, ""},
		{storage.ErrConflict, ""},
		{storage.ErrClosed, ""},
		{context.Canceled, ""},
		{context.DeadlineExceeded, "timeout"},
		{storage.ErrInvalid, "invalid"},
		{storage.ErrUnavailable, "unavailable"},
		{storage.ErrUnknown, "unknown"},
		{storage.ErrDenied, "denied"},
		{storage.ErrSchema, "schema"},
		{storage.ErrCorrupt, "corrupt"},
		{plain, "failed"},
		{errors.New(strings.Repeat("ä", 4000)), "failed"},
	} {
		r := newRig(t, "")
		o, err := azblobotel.New(r.opts)
		must(t, err)
		op := azblob.Operation{Name: "Read"}
		_, end := o.OperationStart(t.Context(), op)
		outcome := azblob.OutcomeOf(test.err)
		end(azblob.OperationEnd{Operation: op, Duration: time.Second, Outcome: outcome, Err: test.err})
		span := r.find("Read")
		if failed := span.Status.Code == codes.Error; failed != (test.failed != "") || len(span.Status.Description) > 1100 {
			t.Errorf("%v: the status is %v", test.err, span.Status)
		}
		label := ""
		if test.failed != "" {
			label = ",error.type=" + test.failed
		}
		r.wantMeasured("db.client.operation.duration",
			fmt.Sprintf("{azblob.outcome=%s,db.operation.name=Read,db.system.name=azure.blob%s} 1", outcome, label))
	}
}

// timeout is an error of the network.
type timeout struct{ error }

func (timeout) Timeout() bool   { return true }
func (timeout) Temporary() bool { return true }

func TestRequests(t *testing.T) {
	for _, test := range []struct {
		status int
		err    error
		want   string
		failed bool
	}{
		{201, nil, "http.response.status_code=201", false},
		{404, nil, "http.response.status_code=404", false},
		{409, nil, "http.response.status_code=409", false},
		{412, nil, "http.response.status_code=412", false},
		{401, nil, "error.type=401,http.response.status_code=401", true},
		{403, nil, "error.type=403,http.response.status_code=403", true},
		{429, nil, "error.type=429,http.response.status_code=429", true},
		{503, nil, "error.type=503,http.response.status_code=503", true},
		{200, errors.New("cut"), "error.type=no_answer,http.response.status_code=200", true},
		{0, errors.New("reset"), "error.type=no_answer", true},
		{0, timeout{errors.New("i/o")}, "error.type=timeout", true},
		{0, context.DeadlineExceeded, "error.type=timeout", true},
		{0, context.Canceled, "error.type=canceled", true},
	} {
		r := newRig(t, "")
		o, err := azblobotel.New(r.opts)
		must(t, err)
		ctx, end := o.OperationStart(t.Context(), azblob.Operation{Name: "Exists"})
		o.Request(ctx, azblob.RequestEvent{
			Name: "head", Method: "HEAD", Container: "c", Blob: "plans/x", Class: azblob.ClassOther, Try: 1, Start: time.Now().Add(-time.Hour), Duration: time.Second,
			Status: test.status, Err: test.err, BytesSent: 3, BytesReceived: 5,
		})
		end(azblob.OperationEnd{Operation: azblob.Operation{Name: "Exists"}, Outcome: azblob.OutcomeOK})
		attrs := strings.Split(test.want+",azblob.request.class=other,azblob.request.name=head", ",")
		slices.Sort(attrs)
		r.wantMeasured("azblob.request.duration", "{"+strings.Join(attrs, ",")+"} 1")
		r.wantMeasured("azblob.network.io", "{network.io.direction=receive} 5", "{network.io.direction=transmit} 3")
		if span := r.find("HEAD plans"); (span.Status.Code == codes.Error) != test.failed || span.EndTime.Sub(span.StartTime) != time.Second {
			t.Errorf("%d, %v: the span's status is %v, from %v to %v", test.status, test.err, span.Status, span.StartTime, span.EndTime)
		}
	}
}

// TestRetryCauses uses errors of the vault itself: an answer, and a connection that breaks.
func TestRetryCauses(t *testing.T) {
	for want, effect := range map[string]emulator.Effect{
		"500": emulator.Answer(500, "InternalError"), "503": emulator.Answer(503, "ServerBusy"), "no_answer": emulator.Reset(),
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, "")
			server := emulator.New(emulator.Options{})
			server.Inject(emulator.On(emulator.ListContainers).Nth(1).Do(effect))
			list(t, r.vault(server))
			r.wantMeasured("azblob.retries", fmt.Sprintf("{azblob.request.name=list containers,error.type=%s} 1", want))
		})
	}
}

// TestSampling checks that a call that is not sampled has no spans and all measurements, and that the spans of
// requests can be left out.
func TestSampling(t *testing.T) {
	for name, test := range map[string]struct {
		set  func(r *rig)
		want int
	}{
		"all":              {func(*rig) {}, 2},
		"without requests": {func(r *rig) { r.opts.NoRequestSpans = true }, 1},
		"nothing is sampled": {func(r *rig) {
			r.opts.TracerProvider = sdktrace.NewTracerProvider(sdktrace.WithSyncer(r.spans), sdktrace.WithSampler(sdktrace.NeverSample()))
		}, 0},
	} {
		r := newRig(t, "")
		test.set(r)
		there, err := r.vault(emulator.New(emulator.Options{})).Exists(t.Context(), workflow.NewV7())
		if err != nil || there {
			t.Fatal(there, err)
		}
		if got := len(r.spans.GetSpans()); got != test.want {
			t.Errorf("%s: %d spans, want %d", name, got, test.want)
		}
		r.wantMeasured("azblob.request.duration", "{azblob.request.class=other,azblob.request.name=head,http.response.status_code=404} 1")
	}
}

// TestFewSeries checks that five times as many plans make no more series, and that no value of an attribute
// has an ID or the name of a container.
func TestFewSeries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "otel")
		v := r.vault(emulator.New(emulator.Options{}))
		live := func(plans int) {
			for range plans {
				time.Sleep(13 * time.Hour) // most days have a plan, and so a container
				plan := small()
				must(t, v.Create(t.Context(), plan))
				for _, o := range workflow.Parts(plan) {
					must(t, storage.Update(t.Context(), v, o))
				}
				list(t, v)
				must(t, v.Recovery(t.Context()))
				must(t, v.Delete(t.Context(), plan.ID))
			}
		}
		live(2)
		before := len(r.series())
		live(8)
		all := r.series()
		if len(all) != before || before == 0 {
			t.Errorf("%d series become %d", before, len(all))
		}
		for _, s := range all {
			for _, a := range s.attrs.ToSlice() {
				if value := a.Value.String(); len(value) > 20 || strings.ContainsAny(value, "/?&=") || strings.Contains(value, "-20") {
					t.Errorf("%s has the value %q", s, value)
				}
			}
		}
	})
}

// TestNoSecrets looks for the key and signatures of the account, URLs, and bodies in everything that is
// reported while the service answers, refuses, and can't be reached.
func TestNoSecrets(t *testing.T) {
	for want, effect := range map[string]emulator.Effect{
		"=403": emulator.Answer(403, "AuthorizationFailure"), "=no_answer": emulator.Reset(), "=timeout": emulator.Silence(),
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, "")
			server := emulator.New(emulator.Options{})
			byKey := r.vault(server)
			plan := small()
			plan.Name = "body-of-the-plan"
			plan.Blocks[0].Sequences[0].Actions[0].Req = "body-of-the-plan"
			must(t, byKey.Create(t.Context(), plan))
			_, err := byKey.Read(t.Context(), plan.ID)
			must(t, err)
			observer, err := azblobotel.New(r.opts)
			must(t, err)
			bySignature, err := azblob.NewFromConnectionString(t.Context(), "otel", "BlobEndpoint=https://account.example;SharedAccessSignature=sv=2024&sig=c2lnbmF0dXJl",
				nil, azblob.Options{ClientOptions: policy.ClientOptions{Transport: server.Transport()}, Observer: observer})
			must(t, err)
			server.Inject(emulator.On(emulator.GetBlob).Do(effect))
			for _, v := range []*azblob.Vault{byKey, bySignature} {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				_, err := v.Read(ctx, plan.ID)
				cancel()
				if err == nil {
					t.Fatal("Read succeeded")
				}
			}
			text := r.text()
			if !strings.Contains(text, plan.ID.String()) || !strings.Contains(text, want) {
				t.Errorf("there is no %s in %s", want, text)
			}
			_, key, _ := strings.Cut(server.ConnectionString(), "AccountKey=")
			key, _, _ = strings.Cut(key, ";")
			if key == "" {
				t.Fatal("the account has no key")
			}
			for _, secret := range []string{key, "c2lnbmF0dXJl", "sig=", "://", "body-of-the-plan", "SharedKey", "?comp"} {
				if i := strings.Index(text, secret); i >= 0 {
					t.Errorf("%q is in …%s", secret, text[max(0, i-100):min(len(text), i+50)])
				}
			}
		})
	}
}

// refusing is a provider of metrics that refuses all counters.
type refusing struct{ noop.MeterProvider }

func (refusing) Meter(string, ...metric.MeterOption) metric.Meter { return refusingMeter{} }

type refusingMeter struct{ noop.Meter }

func (refusingMeter) Int64Counter(name string, _ ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	return noop.Int64Counter{}, errors.New("refused " + name)
}

func TestRefusedInstruments(t *testing.T) {
	_, vault := azblobotel.New(azblobotel.Options{MeterProvider: refusing{}})
	_, node := azblobotel.NewFleet(azblobotel.Options{MeterProvider: refusing{}})
	_, engine := azblobotel.NewEngine(azblobotel.Options{MeterProvider: refusing{}})
	for want, err := range map[string]error{"azblob.retries": vault, "azblob.fleet.claims": node, "azblob.engine.ended": engine} {
		if err == nil || !strings.Contains(err.Error(), "refused "+want) {
			t.Errorf("the error %v does not name %s", err, want)
		}
	}
}
