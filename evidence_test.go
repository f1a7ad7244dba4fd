package azblob_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"
)

// absences are the answers that say that a blob is not there.
var absences = []emulator.Effect{emulator.Answer(404, "BlobNotFound"), emulator.Answer(404, "ContainerNotFound"), emulator.Answer(404, "")}

// TestRecoveryBelievesNoFalse404 answers Recovery's requests for the entry, object and markers of healthy
// plans with 404, each once and then always. Recovery removes and changes nothing, and handles the other
// plans.
func TestRecoveryBelievesNoFalse404(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	for name, in := range map[string]state{"not started": notStarted, "running": atWork} {
		for _, role := range []string{"entry", "object"} {
			for _, effect := range absences {
				for _, lasting := range []bool{false, true} {
					inBubble(t, fmt.Sprintf("%s, %s, %v, lasting %v", name, role, effect, lasting), func(t *testing.T, server *emulator.Server) {
						w := worldOf(server)
						plan, _ := in(t, w, eachKind())
						half := eachKind()
						dies(t, server, emulator.On(emulator.PutBlob).Path("plans/*-object.json"), func(v *azblob.Vault) { _ = v.Create(t.Context(), half) })
						time.Sleep(pastGrace)
						before := of(contents(server), plan)
						rule := emulator.On(emulator.HeadBlob).Path(plan.ID.String() + "-" + role).Do(effect)
						why := "contradicts itself"
						if effect == emulator.Answer(404, "") {
							why = "not the service's"
						}
						if !lasting {
							rule.Nth(1)
						}
						report, err := faulty(t, server, rule).Recover(t.Context(), azblob.RecoverOptions{})
						if rule.Fired() == 0 {
							t.Fatal("the fault did not come")
						}
						if lasting && (!errors.Is(err, storage.ErrUnavailable) || !strings.Contains(err.Error(), why)) || !lasting && err != nil {
							t.Errorf("got %v", err)
						}
						doubted := 0
						for _, p := range report.Plans {
							if p.ID == plan.ID && p.Did == "" && p.Err != nil {
								doubted++
							} else if p.ID != half.ID || p.Did == "" {
								t.Errorf("the report has %+v", p)
							}
						}
						if len(report.Plans) != 1+doubted || lasting != (doubted == 1) {
							t.Errorf("the report is %+v, want the other plan, and this one if it stays in doubt", report)
						}
						if !maps.Equal(before, of(contents(server), plan)) {
							t.Fatal("a healthy plan was touched")
						}
						settled(t, onEmulator(t, server))
						same(t, onEmulator(t, server), plan)
					})
				}
			}
		}
	}
}

// of leaves what is stored of one plan.
func of(all map[string]string, plan *workflow.Plan) map[string]string {
	maps.DeleteFunc(all, func(name, _ string) bool { return !strings.Contains(name, plan.ID.String()) })
	return all
}

// TestDeleteBelievesNoFalse404 answers each request of a Delete with 404, once and then always. Whenever
// Delete returns nil, the plan and all its blobs are gone.
func TestDeleteBelievesNoFalse404(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	rules := map[string]func() *emulator.Rule{
		"object, read":     func() *emulator.Rule { return emulator.On(emulator.GetBlob).Path("-object.json") },
		"object, removal":  func() *emulator.Rule { return emulator.On(emulator.DeleteBlob).Path("-object.json") },
		"object, look":     func() *emulator.Rule { return emulator.On(emulator.HeadBlob).Path("-object.json") },
		"object, all":      func() *emulator.Rule { return emulator.On(emulator.GetBlob, emulator.HeadBlob).Path("-object.json") },
		"entry":            func() *emulator.Rule { return emulator.On(emulator.DeleteBlob).Path("-entry.json") },
		"sub-object":       func() *emulator.Rule { return emulator.On(emulator.BatchItem).Path("actions/") },
		"all of the batch": func() *emulator.Rule { return emulator.On(emulator.BatchDelete).Path("actions/") },
	}
	for name, rule := range rules {
		for _, effect := range absences[:2] {
			for _, lasting := range []bool{false, true} {
				for _, begun := range []bool{false, true} {
					inBubble(t, fmt.Sprintf("%s, %v, lasting %v, begun before %v", name, effect, lasting, begun), func(t *testing.T, server *emulator.Server) {
						v := onEmulator(t, server)
						plan := created(t, v, eachKind())
						if begun {
							dies(t, server, emulator.On(emulator.DeleteBlob).Path("-object.json"), func(v *azblob.Vault) { _ = v.Delete(t.Context(), plan.ID) })
						}
						lie := rule().Do(effect)
						if !lasting {
							lie.Nth(1)
						}
						err := faulty(t, server, lie).Delete(t.Context(), plan.ID)
						left := of(contents(server), plan)
						_, whole := left[object(server, plan)]
						switch {
						case err == nil && len(left) > 0:
							t.Fatalf("Delete returned nil, and %d blobs are left", len(left))
						case errors.Is(err, storage.ErrNotFound):
							t.Errorf("Delete says that there is no plan: %v", err)
						case err != nil && !errors.Is(err, storage.ErrUnavailable) && !errors.Is(err, storage.ErrConflict):
							t.Errorf("Delete: %v", err)
						case err != nil && !whole && !errors.Is(err, storage.ErrUnknown):
							t.Errorf("the plan is gone, and Delete says %v", err)
						case lie.Fired() > 0 && !lasting && err != nil && whole:
							t.Errorf("one wrong answer: %v", err)
						}
						if err := v.Delete(t.Context(), plan.ID); err != nil && !errors.Is(err, storage.ErrNotFound) {
							t.Errorf("the same call again: %v", err)
						}
						if n := stored(server); n != 0 {
							t.Errorf("%d blobs are left", n)
						}
					})
				}
			}
		}
	}
}

// TestNoListingOfOneKindIsBelieved answers the listings of one kind of sub-objects with 404, while the other kinds
// are listed in the same day, and the removal of a sub-object of that kind, too. A Delete and a Recovery that return
// nil leave nothing, because no marker would lead to it.
func TestNoListingOfOneKindIsBelieved(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	for _, kind := range []string{"actions/", "blocks/", "checks/", "deferbatches/", "deferredactions/", "sequences/"} {
		for _, times := range []int{2, 1 << 20} {
			for name, run := range map[string]func(ctx context.Context, v *azblob.Vault, plan *workflow.Plan) error{
				"Delete":   func(ctx context.Context, v *azblob.Vault, plan *workflow.Plan) error { return v.Delete(ctx, plan.ID) },
				"Recovery": func(ctx context.Context, v *azblob.Vault, _ *workflow.Plan) error { return v.Recovery(ctx) },
			} {
				inBubble(t, fmt.Sprintf("%s, %s, %d times", name, kind, times), func(t *testing.T, server *emulator.Server) {
					plan := created(t, onEmulator(t, server), eachKind())
					if name == "Recovery" {
						dies(t, server, emulator.On(emulator.BatchDelete), func(v *azblob.Vault) { _ = v.Delete(t.Context(), plan.ID) })
						time.Sleep(pastGrace)
					}
					lists := func(r emulator.Request) bool { return strings.HasPrefix(r.Prefix, kind) }
					lie := emulator.On(emulator.ListBlobs).Where(lists).Times(times).Do(emulator.Answer(404, "ContainerNotFound"))
					removal := emulator.On(emulator.BatchItem).Path(kind).Nth(1).Do(emulator.Answer(404, "BlobNotFound"))
					err := run(t.Context(), faulty(t, server, lie, removal), plan)
					if n := stored(server); err == nil && n > 0 {
						t.Errorf("it returned %v, and %d blobs are left", err, n)
					}
					if err != nil && !errors.Is(err, storage.ErrUnavailable) {
						t.Errorf("%v", err)
					}
					time.Sleep(pastGrace)
					must(t, onEmulator(t, server).Recovery(t.Context()))
					if n := stored(server); n > 0 {
						t.Errorf("%d blobs are left behind Recovery", n)
					}
				})
			}
		}
	}
}

// TestLies lets processes work one after the other on an account that answers as real ones do. Many crash at a
// request, lose requests and answers, and get pages of proxies and up to two false 404s, for listings too. In the
// end, Recovery leaves nothing that belongs to no plan, and all plans are whole.
func TestLies(t *testing.T) {
	var operations, fired int
	seeds := efforttest.Pick(2, 20, 20_000)
	for i := range seeds {
		seed := *modelSeed + uint64(i)
		synctest.Test(t, func(t *testing.T) {
			defer func() {
				if t.Failed() {
					t.Logf("the failure was with seed %d", seed)
				}
			}()
			l := liars{r: rand.New(rand.NewPCG(seed, 0)), server: emulator.New(emulator.WithoutLog(), emulator.WithPageLimit(5), emulator.WithRealAnswers(seed))}
			for range 30 {
				l.process(t)
			}
			settled(t, onEmulator(t, l.server))
			operations, fired = operations+l.operations, fired+l.fired
		})
		if t.Failed() {
			break
		}
	}
	t.Logf("lies: %d operations, %d seeds from %d, %d faults", operations, seeds, *modelSeed, fired)
}

// liars are the processes of TestLies.
type liars struct {
	r          *rand.Rand
	server     *emulator.Server
	plans      []*workflow.Plan
	operations int
	fired      int // faults
}

// process makes up to three random calls in a process of its own. Their errors are not judged.
func (l *liars) process(t *testing.T) {
	if l.r.IntN(4) == 0 {
		time.Sleep([]time.Duration{time.Second, time.Minute, 5 * time.Minute, pastGrace}[l.r.IntN(4)])
	}
	rules := l.rules()
	transport := l.server.Transport()
	transport.Inject(rules...)
	v := withToken(t, l.server, azblob.WithTransport(transport), azblob.WithConcurrency(1+7*l.r.IntN(2)), impatient)
	defer v.Close(t.Context())
	for range 1 + l.r.IntN(3) {
		l.operations++
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		l.call(ctx, v)
		cancel()
	}
	for _, rule := range rules {
		l.fired += rule.Fired()
	}
}

// rules returns what befalls a process.
func (l *liars) rules() (rules []*emulator.Rule) {
	if l.r.IntN(3) == 0 {
		crash := []emulator.Effect{emulator.Crash(), emulator.Crash().Applied()}
		rules = append(rules, emulator.On().Nth(1+l.r.IntN(25)).Do(crash[l.r.IntN(2)]))
	}
	chance := []float64{0, 0.03, 0.1, 0.3}[l.r.IntN(4)]
	rules = append(rules,
		emulator.On(emulator.HeadBlob, emulator.GetBlob, emulator.DeleteBlob, emulator.BatchItem, emulator.ListBlobs).
			Chance(chance, l.r.Uint64()).Times(2).Do(absences[l.r.IntN(2)]),
		emulator.Random(chance/2, l.r.Uint64(), emulator.LostAnswer(), emulator.LostRequest(),
			emulator.Answer(500, "InternalError").Applied(), emulator.Answer(503, "ServerBusy")))
	if l.r.IntN(2) == 0 {
		rules = append(rules, emulator.Lies(chance/2, l.r.Uint64()))
	}
	return rules
}

// call makes a random call.
func (l *liars) call(ctx context.Context, v *azblob.Vault) {
	which := l.r.IntN(10)
	if len(l.plans) == 0 {
		which = 0
	}
	if which < 3 {
		names := slices.Sorted(maps.Keys(shapes))
		plan := shapes[names[l.r.IntN(len(names))]]()
		plan.ID = workflow.NewV7()
		l.plans = append(l.plans, plan)
		_ = v.Create(ctx, plan)
		return
	}
	plan := *l.plans[l.r.IntN(len(l.plans))]
	switch which {
	case 3:
		_ = v.Create(ctx, &plan)
	case 4, 5, 6:
		_ = v.Delete(ctx, plan.ID)
	case 7:
		if p, err := v.Read(ctx, plan.ID); err == nil && !p.State.Status.Final() {
			p.State.Status++ // to Running, or from there to Completed
			p.State.Start = time.Now()
			_ = v.UpdatePlan(ctx, p)
		}
	default:
		_ = v.Recovery(ctx)
	}
}

// object is the name of a plan's object in contents.
func object(server *emulator.Server, plan *workflow.Plan) string {
	for c := range server.Containers() {
		return c + "/plans/" + plan.ID.String() + "-object.json"
	}
	return ""
}

// shortLister is a transport whose listings omit blobs with certain names, a limited number of times, or as a cache: in
// every answer to the same request.
type shortLister struct {
	*emulator.Transport
	name   string
	cached bool
	mu     sync.Mutex
	times  int
	query  string // the request that a cache answers
}

var listedBlob = regexp.MustCompile(`(?s)<Blob>.*?</Blob>`)

func (f *shortLister) Do(req *http.Request) (*http.Response, error) {
	resp, err := f.Transport.Do(req)
	f.mu.Lock()
	defer f.mu.Unlock()
	hit := f.times > 0 || f.cached && f.query == req.URL.RawQuery
	if err != nil || req.URL.Query().Get("comp") != "list" || !hit {
		return resp, err
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	short := listedBlob.ReplaceAllFunc(body, func(b []byte) []byte {
		if regexp.MustCompile("<Name>" + f.name).Match(b) {
			return nil
		}
		return b
	})
	if len(short) < len(body) {
		f.times, f.query = f.times-1, req.URL.RawQuery
	}
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(short)), int64(len(short))
	return resp, nil
}

// TestChangesBelieveNoFalse404 answers what each change of a closed day asks beside its commit with 404, once and
// then always. No change shows beside a catalogue, and nothing is deleted in a day that is held.
func TestChangesBelieveNoFalse404(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	for name, c := range changes() {
		for _, effect := range absences[:2] {
			for _, lasting := range []bool{false, true} {
				lie := func(rule *emulator.Rule) *emulator.Rule {
					if !lasting {
						rule.Nth(1)
					}
					return rule.Do(effect)
				}
				what := fmt.Sprintf("%s, %v, lasting %v", name, effect, lasting)
				for _, op := range []emulator.Op{emulator.DeleteBlob, emulator.HeadBlob} {
					inBubble(t, fmt.Sprintf("%s, %v", what, op), func(t *testing.T, server *emulator.Server) {
						v := onEmulator(t, server)
						plan := c.prepare(t, v)
						server.PutContainer(oldContainer(), map[string]string{"planvaultlayout": "1"})
						_, err := v.Catalogue(t.Context(), azblob.CatalogueOptions{})
						must(t, err)
						shown := shownIn(server)
						rule := lie(emulator.On(op).Path("catalogue"))
						err = c.do(t.Context(), faulty(t, server, rule), plan)
						if rule.Fired() == 0 || err != nil && !errors.Is(err, storage.ErrUnavailable) {
							t.Errorf("%d false responses, %v", rule.Fired(), err)
						}
						if _, there := contents(server)[oldContainer()+"/catalogue"]; there && shown != shownIn(server) {
							t.Errorf("the change shows, and the catalogue is there: %v", err)
						}
					})
				}
				if name != "Delete" {
					continue
				}
				inBubble(t, what+", hold", func(t *testing.T, server *emulator.Server) {
					v := onEmulator(t, server)
					plan := c.prepare(t, v)
					must(t, v.Hold(t.Context(), workflow.Time(plan.ID)))
					rule := lie(emulator.On(emulator.GetContainerProperties))
					err := c.do(t.Context(), faulty(t, server, rule), plan)
					if rule.Fired() == 0 || !errors.Is(err, storage.ErrUnavailable) && !errors.Is(err, storage.ErrHeld) {
						t.Errorf("%d false responses, %v", rule.Fired(), err)
					}
					same(t, v, plan)
				})
			}
		}
	}
}

// TestUpdateBelievesNoFalse404 answers an update's look for its plan with 404, once and then always.
func TestUpdateBelievesNoFalse404(t *testing.T) {
	for _, effect := range absences[:2] {
		for _, times := range []int{1, 1 + 3} { // the second look agrees with a listing, or never
			inBubble(t, fmt.Sprintf("%v, %d times", effect, times), func(t *testing.T, server *emulator.Server) {
				_, plan := notStarted(t, worldOf(server), plantest.Small())
				rule := emulator.On(emulator.HeadBlob).Path("-object").Range(1, times).Do(effect)
				v := faulty(t, server, rule)
				plan.State.Status = workflow.Running
				err := v.UpdatePlan(t.Context(), plan)
				if lasting := times > 1; rule.Fired() != times || lasting != (errors.Is(err, storage.ErrUnknown) && errors.Is(err, storage.ErrUnavailable)) || !lasting && err != nil {
					t.Errorf("%d false responses, %v", rule.Fired(), err)
				}
				if err != nil {
					must(t, v.UpdatePlan(t.Context(), plan)) // it recognises its own write
				}
				same(t, onEmulator(t, server), plan)
			})
		}
	}
}

// TestNoDayLooksEmptyBecauseOfAFalse404 answers the listings of a closed day with 404. Expire drops no open plan,
// Hold does not overlook a Delete, and no catalogue lacks a plan.
func TestNoDayLooksEmptyBecauseOfAFalse404(t *testing.T) {
	const listing = emulator.ListBlobs
	inBubble(t, "Expire", func(t *testing.T, server *emulator.Server) {
		v := onEmulator(t, server)
		plan := created(t, v, oldPlan())
		rule := emulator.On(listing).Nth(1).Do(absences[1])
		report, err := faulty(t, server, rule).Expire(t.Context(), azblob.ExpireOptions{OlderThan: time.Hour})
		if rule.Fired() != 1 || !errors.Is(err, storage.ErrUnavailable) || report.Dropped() != 0 {
			t.Errorf("%d false responses, %+v, %v", rule.Fired(), report, err)
		}
		same(t, v, plan)
		must(t, v.Create(t.Context(), oldOf(plan)))
	})
	inBubble(t, "Hold", func(t *testing.T, server *emulator.Server) {
		v := onEmulator(t, server)
		plan := finished(t, v, oldPlan())
		dies(t, server, emulator.On(emulator.DeleteBlob).Path("-object.json"), func(v *azblob.Vault) { _ = v.Delete(t.Context(), plan.ID) })
		rule := emulator.On(listing).Nth(1).Do(absences[1])
		if err := faulty(t, server, rule).Hold(t.Context(), workflow.Time(plan.ID)); rule.Fired() != 1 || !errors.Is(err, storage.ErrUnavailable) {
			t.Errorf("%d false responses, %v", rule.Fired(), err)
		}
	})
	inBubble(t, "Catalogue", func(t *testing.T, server *emulator.Server) {
		v := onEmulator(t, server)
		plan := finished(t, v, oldPlan())
		for nth := 1; nth <= 2; nth++ { // open/, plans/
			rule := emulator.On(listing).Nth(nth).Do(absences[1])
			report, err := faulty(t, server, rule).Catalogue(t.Context(), azblob.CatalogueOptions{})
			if rule.Fired() != 1 || err != nil || len(report.Built) != 0 || len(report.Skipped) != 1 {
				t.Errorf("%d false responses, %+v, %v", rule.Fired(), report, err)
			}
		}
		_, err := v.Catalogue(t.Context(), azblob.CatalogueOptions{})
		must(t, err)
		if found, err := storage.Collect(onEmulator(t, server).List(t.Context(), 0)); err != nil || len(found) != 1 || found[0].ID != plan.ID {
			t.Errorf("List: %v, %v", found, err)
		}
	})
}

// TestNoDayIsJudgedByOneListing omits blobs from one listing of a closed day, the first or the second, also in each of its
// answers as a cache does. Nothing is dropped, held or catalogued that the other listing contradicts.
func TestNoDayIsJudgedByOneListing(t *testing.T) {
	type do = func(t *testing.T, v *azblob.Vault, plan *workflow.Plan)
	expire := func(o azblob.ExpireOptions, want ...azblob.ExpireResult) do {
		return func(t *testing.T, v *azblob.Vault, _ *workflow.Plan) {
			report, err := v.Expire(t.Context(), o)
			var got []azblob.ExpireResult
			for _, d := range report.Days {
				got = append(got, d.Result)
			}
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("%+v, %v, want %v", report, err, want)
			}
		}
	}
	catalogue := func(t *testing.T, v *azblob.Vault, _ *workflow.Plan) {
		report, err := v.Catalogue(t.Context(), azblob.CatalogueOptions{})
		if err != nil || len(report.Built) > 0 || len(report.Skipped) != 1 {
			t.Errorf("%+v, %v", report, err)
		}
	}
	unchanged := func(t *testing.T, server *emulator.Server, v *azblob.Vault) *workflow.Plan {
		plan := finished(t, v, oldPlan())
		finished(t, v, oldOf(plan))
		return plan
	}
	dead := func(op emulator.Op, path string, change func(*azblob.Vault, context.Context, *workflow.Plan) error) func(*testing.T, *emulator.Server, *azblob.Vault) *workflow.Plan {
		return func(t *testing.T, server *emulator.Server, v *azblob.Vault) *workflow.Plan {
			plan := finished(t, v, oldPlan())
			dies(t, server, emulator.On(op).Path(path), func(v *azblob.Vault) { _ = change(v, t.Context(), plan) })
			return plan
		}
	}
	for name, row := range map[string]struct {
		omitted string
		prepare func(t *testing.T, server *emulator.Server, v *azblob.Vault) *workflow.Plan
		do      do
	}{
		"Expire of an open plan": {"open/[^d]", func(t *testing.T, _ *emulator.Server, v *azblob.Vault) *workflow.Plan {
			return created(t, v, oldPlan())
		}, expire(azblob.ExpireOptions{OlderThan: time.Hour}, azblob.DayOpen)},
		"Expire of an empty day": {"", unchanged, expire(azblob.ExpireOptions{OlderThan: 10 * nineDays, Empty: true})},
		"Hold": {
			"open/", dead(emulator.DeleteBlob, "-object.json", func(v *azblob.Vault, ctx context.Context, plan *workflow.Plan) error { return v.Delete(ctx, plan.ID) }),
			func(t *testing.T, v *azblob.Vault, plan *workflow.Plan) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
				defer cancel()
				if err := v.Hold(ctx, workflow.Time(plan.ID)); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("Hold beside a Delete: %v", err)
				}
			},
		},
		"Catalogue of a day that changes": {"open/", dead(emulator.PutBlob, "-entry.json", (*azblob.Vault).UpdatePlan), catalogue},
		"Catalogue":                       {"plans/.*-entry", unchanged, catalogue},
		"Verify": {"plans/.*-entry", func(t *testing.T, server *emulator.Server, v *azblob.Vault) *workflow.Plan {
			plan := unchanged(t, server, v)
			build(t, v)
			return plan
		}, func(t *testing.T, v *azblob.Vault, _ *workflow.Plan) {
			report, err := v.Catalogue(t.Context(), azblob.CatalogueOptions{Verify: true})
			if err != nil || report.Present != 1 {
				t.Errorf("%+v, %v", report, err)
			}
		}},
	} {
		for _, cached := range []bool{false, true} {
			inBubble(t, fmt.Sprintf("%s/%t", name, cached), func(t *testing.T, server *emulator.Server) {
				v := onEmulator(t, server)
				plan := row.prepare(t, server, v)
				short := &shortLister{Transport: server.Transport(), name: row.omitted, cached: cached, times: 1}
				row.do(t, onEmulator(t, server, azblob.WithTransport(short)), plan)
				if short.query == "" {
					t.Error("no listing was short")
				}
				same(t, v, plan)
				equalListings(t, server)
			})
		}
	}
}

// TestExpireBelievesNoFalse404 answers each request of an Expire for the container with 404. The day is not dropped, and
// Expire does not say so.
func TestExpireBelievesNoFalse404(t *testing.T) {
	for _, op := range []emulator.Op{emulator.HeadBlob, emulator.LeaseContainer, emulator.DeleteContainer, emulator.GetContainerProperties} {
		for _, lasting := range []bool{false, true} {
			inBubble(t, fmt.Sprintf("%s/%t", op, lasting), func(t *testing.T, server *emulator.Server) {
				v := onEmulator(t, server)
				plan := finished(t, v, oldPlan())
				rules := []*emulator.Rule{emulator.On(op).Do(absences[1])}
				if op == emulator.GetContainerProperties { // it is asked when the lease is another's
					rules = append(rules, emulator.On(emulator.LeaseContainer).Do(emulator.Answer(409, "LeaseAlreadyPresent")))
				}
				if !lasting {
					rules[0].Nth(1)
				}
				report, err := faulty(t, server, rules...).Expire(t.Context(), azblob.ExpireOptions{OlderThan: time.Hour})
				if rules[0].Fired() == 0 || !errors.Is(err, storage.ErrUnavailable) || report.Dropped() != 0 {
					t.Errorf("%d false responses, %+v, %v", rules[0].Fired(), report, err)
				}
				same(t, v, plan)
				noMark(t, server, workflow.Time(plan.ID).UTC())
				if report := expired(t, v, azblob.ExpireOptions{}); report.Dropped() != 1 {
					t.Errorf("again: %+v", report)
				}
			})
		}
	}
}

// TestClosedDayBesideLies gives false answers of all kinds to the calls that drop, hold, catalogue and recover a day with an
// open plan and one with a final plan. The open plan stays, Expire drops what it says, and no call sends requests without end.
func TestClosedDayBesideLies(t *testing.T) {
	for seed := range uint64(efforttest.Pick(10, 40, 1000)) {
		inBubble(t, fmt.Sprint(seed), func(t *testing.T, server *emulator.Server) {
			v := onEmulator(t, server)
			open, ended := created(t, v, oldPlan()), planOf(daysAgo(8))
			ended = finished(t, v, ended)
			build(t, v)
			container := containerOf(daysAgo(8))
			absent := emulator.On(emulator.LeaseContainer, emulator.DeleteContainer, emulator.GetContainerProperties, emulator.ListBlobs).
				Chance(0.2, seed).Do(absences[1])
			transport := server.Transport()
			transport.Inject(emulator.Lies(0.1, seed), emulator.FalseAbsences(0.1, seed), absent)
			short := &shortLister{Transport: transport, name: []string{"", "open/", "plans/"}[seed%3], cached: seed%2 == 0, times: 1}
			liar := onEmulator(t, server, azblob.WithTransport(short))
			day := workflow.Time(ended.ID)
			for what, do := range []func(ctx context.Context) error{
				func(ctx context.Context) error { return liar.Upkeep(ctx) },
				func(ctx context.Context) error {
					_, err := liar.Catalogue(ctx, azblob.CatalogueOptions{Verify: true})
					return err
				},
				func(ctx context.Context) error {
					_, err := liar.Recover(ctx, azblob.RecoverOptions{Thorough: true})
					return err
				},
				func(ctx context.Context) error { return errors.Join(liar.Hold(ctx, day), v.Release(ctx, day)) },
				func(ctx context.Context) error {
					report, err := liar.Expire(ctx, azblob.ExpireOptions{OlderThan: time.Hour})
					if gone := server.Len(container) == 0; report.Dropped() == 1 && !gone {
						t.Errorf("%+v, %v, and the day is there", report, err)
					}
					return err
				},
			} {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
				server.ResetRequests()
				err := do(ctx)
				cancel()
				if n := len(server.Requests()); n > 400 {
					t.Errorf("call %d sent %d requests: %v", what, n, err)
				}
			}
			same(t, v, open)
			time.Sleep(pastGrace)
			_, err := v.Recover(t.Context(), azblob.RecoverOptions{Thorough: true})
			must(t, err)
			sound(t, v)
		})
	}
}

// TestWrongCatalogueBesideOneFalseAnswer gives Check and a thorough Recovery one false answer to each request, of a day whose
// catalogue lacks a plan. Neither says that the day is sound.
func TestWrongCatalogueBesideOneFalseAnswer(t *testing.T) {
	inBubble(t, "all", func(t *testing.T, server *emulator.Server) {
		wrong := wrongs()["lacks a plan"]
		v := onEmulator(t, server)
		plan := finished(t, v, oldPlan())
		build(t, v)
		built, _ := server.Blob(oldContainer(), "catalogue")
		wrong(t, server, v, plan, built)
		server.Put(oldContainer(), "catalogue", built.Body, built.Metadata)
		finds := func(what string, liar *azblob.Vault) {
			if report, err := liar.Check(t.Context(), azblob.CheckOptions{}); err == nil && len(report.Problems) == 0 {
				t.Errorf("%s: Check finds nothing", what)
			}
			if report, err := liar.Recover(t.Context(), azblob.RecoverOptions{Thorough: true, DryRun: true}); err == nil && len(report.Catalogues) == 0 {
				t.Errorf("%s: Recover finds nothing", what)
			}
		}
		finds("a page without the catalogue", onEmulator(t, server, azblob.WithTransport(&shortLister{Transport: server.Transport(), name: "catalogue", times: 9})))
		server.ResetRequests()
		finds("no lie", v)
		for n := range len(server.Requests()) {
			for _, effect := range absences {
				rule := emulator.On(emulator.HeadBlob, emulator.GetContainerProperties, emulator.ListBlobs).Nth(n + 1).Do(effect)
				finds(fmt.Sprint(effect, " at ", n+1), faulty(t, server, rule))
			}
		}
	})
}

// TestCreateSeesAnExpiry creates a plan in a day of which an Expire may still be about to remove the container.
// A false 404 for the mark of the expiry does not hide it.
func TestCreateSeesAnExpiry(t *testing.T) {
	for _, effect := range absences[:2] {
		inBubble(t, fmt.Sprint(effect), func(t *testing.T, server *emulator.Server) {
			v := onEmulator(t, server)
			finished(t, v, oldPlan())
			dies(t, server, emulator.On(emulator.DeleteContainer), func(v *azblob.Vault) {
				_, _ = v.Expire(t.Context(), azblob.ExpireOptions{OlderThan: time.Hour})
			})
			rule := emulator.On(emulator.HeadBlob).Path("open/dropping").Do(effect)
			plan := oldPlan()
			if err := faulty(t, server, rule).Create(t.Context(), plan); rule.Fired() == 0 || !errors.Is(err, storage.ErrConflict) {
				t.Errorf("%d false responses, %v", rule.Fired(), err)
			}
			time.Sleep(2 * time.Minute) // the lease is over
			must(t, v.Create(t.Context(), plan))
			sound(t, v)
		})
	}
}

// TestRecoveryBesideAShortListing omits sub-objects from the listing before their removal, as a cache does. The blobs that
// lead to them stay, and another Recovery removes everything.
func TestRecoveryBesideAShortListing(t *testing.T) {
	for name, in := range map[string]state{"a create": createBroken("plans/*-object.json", 1), "a delete": deleteBroken(emulator.BatchDelete, "")} {
		inBubble(t, name, func(t *testing.T, server *emulator.Server) {
			plan, _ := in(t, worldOf(server), plantest.Small())
			time.Sleep(pastGrace)
			short := &shortLister{Transport: server.Transport(), name: "actions/", times: 1, cached: true}
			report, err := onEmulator(t, server, azblob.WithTransport(short)).Recover(t.Context(), azblob.RecoverOptions{})
			if !errors.Is(err, storage.ErrUnavailable) || len(report.Plans) != 1 || report.Plans[0].Err == nil {
				t.Errorf("%+v, %v", report, err)
			}
			left := of(contents(server), plan)
			if _, there := left[strings.Replace(object(server, plan), "-object", "-entry", 1)]; !there || len(left) < 3 {
				t.Errorf("%d blobs are left, want the action and what leads to it", len(left))
			}
			if err := onEmulator(t, server).Recovery(t.Context()); err != nil {
				t.Error(err)
			}
			if n := stored(server); n != 0 {
				t.Errorf("%d blobs are left", n)
			}
		})
	}
	inBubble(t, "a delete that is called again", func(t *testing.T, server *emulator.Server) {
		plan, _ := deleteBroken(emulator.BatchDelete, "")(t, worldOf(server), plantest.Small())
		short := &shortLister{Transport: server.Transport(), name: "actions/", times: 1, cached: true}
		if err := onEmulator(t, server, azblob.WithTransport(short)).Delete(t.Context(), plan.ID); !errors.Is(err, storage.ErrUnknown) {
			t.Errorf("got %v, want ErrUnknown", err)
		}
		if err := onEmulator(t, server).Delete(t.Context(), plan.ID); err != nil || stored(server) != 0 {
			t.Errorf("again: %v, %d blobs are left", err, stored(server))
		}
	})
}

// TestRecoveryBesideADelete runs a Delete at each request of a Recovery, in whole and up to each of its own
// requests. Recovery reports no loss and leaves nothing behind.
func TestRecoveryBesideADelete(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	for upTo := 3; upTo <= 7; upTo++ { // at the first two there is nothing to see; 7 is to the end
		beforeEach(t, fmt.Sprint("up to ", upTo), func(t *testing.T, server *emulator.Server, at *nthRequest) {
			plan, _ := atWork(t, worldOf(server), plantest.Small())
			time.Sleep(pastGrace)
			v := at.vault(t, server, func() {
				worldOf(server).mayDie(t, emulator.On().Nth(upTo), func(v *azblob.Vault) { _ = v.Delete(t.Context(), plan.ID) })
			})
			report, err := v.Recover(t.Context(), azblob.RecoverOptions{})
			if err != nil {
				t.Errorf("%+v, %v", report, err)
			}
			settled(t, onEmulator(t, server))
			if n := stored(server); at.came() && n != 0 && upTo > 3 {
				t.Errorf("%d blobs are left", n)
			}
		})
	}
}

// TestRecoveryBesideADeleteThatEnds removes a final plan's object after Recovery has read the entry, and the
// other blobs after Recovery has looked for the object. Recovery does not report a loss.
func TestRecoveryBesideADeleteThatEnds(t *testing.T) {
	// The missing marker shows that an open plan is gone. A final plan has no marker.
	inBubble(t, "between the looks", func(t *testing.T, server *emulator.Server) {
		plan, _ := final(t, worldOf(server), plantest.Small())
		time.Sleep(pastGrace)
		transport := server.Transport()
		begun, ended := false, false
		transport.SetGate(gateOf(func(r emulator.Request) {
			switch {
			case r.Op == emulator.HeadBlob && strings.HasSuffix(r.Blob, "-object.json") && !begun:
				begun = true
				dies(t, server, emulator.On(emulator.BatchDelete), func(v *azblob.Vault) { _ = v.Delete(t.Context(), plan.ID) })
			case r.Op == emulator.ListBlobs && strings.HasPrefix(r.Prefix, "open/") && begun && !ended:
				ended = true
				if err := onEmulator(t, server).Delete(t.Context(), plan.ID); err != nil {
					t.Error(err)
				}
			}
		}))
		report, err := onEmulator(t, server, azblob.WithTransport(transport), azblob.WithConcurrency(1)).Recover(t.Context(), azblob.RecoverOptions{Thorough: true})
		if err != nil || len(report.Plans) != 0 || !ended {
			t.Errorf("%+v, %v; the Delete ended: %v", report, err, ended)
		}
	})
}
