package faults_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/planvault/azblob/internal/audited"
	"github.com/planvault/azblob/internal/settings"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"

	"github.com/planvault/azblob/internal/vaulttest"
)

// of leaves what is stored of one plan.
func of(all map[string]string, plan *workflow.Plan) map[string]string {
	maps.DeleteFunc(all, func(name, _ string) bool { return !strings.Contains(name, plan.ID.String()) })
	return all
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
				vaulttest.InBubble(t, fmt.Sprintf("%s, %s, %d times", name, kind, times), func(t *testing.T, server *emulator.Server) {
					plan := vaulttest.Created(t, vaulttest.OnEmulator(t, server), vaulttest.EachKind())
					if name == "Recovery" {
						vaulttest.Dies(t, server, emulator.On(emulator.BatchDelete), func(v *azblob.Vault) { _ = v.Delete(t.Context(), plan.ID) })
						time.Sleep(vaulttest.PastGrace)
					}
					lists := func(r emulator.Request) bool { return strings.HasPrefix(r.Prefix, kind) }
					lie := emulator.On(emulator.ListBlobs).Where(lists).Times(times).Do(emulator.Answer(404, "ContainerNotFound"))
					removal := emulator.On(emulator.BatchItem).Path(kind).Nth(1).Do(emulator.Answer(404, "BlobNotFound"))
					err := run(t.Context(), vaulttest.Faulty(t, server, lie, removal), plan)
					if n := vaulttest.Stored(server); err == nil && n > 0 {
						t.Errorf("it returned %v, and %d blobs are left", err, n)
					}
					if err != nil && !errors.Is(err, storage.ErrUnavailable) {
						t.Errorf("%v", err)
					}
					time.Sleep(vaulttest.PastGrace)
					vaulttest.Must(t, vaulttest.OnEmulator(t, server).Recovery(t.Context()))
					vaulttest.Empty(t, server)
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
	seeds := 0
	for i := range efforttest.Seeds(t, 2, 20, 20_000) {
		seeds++
		seed := *vaulttest.ModelSeed + i
		synctest.Test(t, func(t *testing.T) {
			defer func() {
				if t.Failed() {
					t.Logf("the failure was with seed %d", seed)
				}
			}()
			l := liars{r: rand.New(rand.NewPCG(seed, 0)), server: emulator.New(emulator.Options{NoLog: true, PageLimit: 5, RealAnswers: seed})}
			for range 30 {
				l.process(t)
			}
			vaulttest.Settled(t, vaulttest.OnEmulator(t, l.server))
			operations, fired = operations+l.operations, fired+l.fired
		})
		if t.Failed() {
			break
		}
	}
	t.Logf("lies: %d operations, %d seeds from %d, %d faults", operations, seeds, *vaulttest.ModelSeed, fired)
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
		time.Sleep([]time.Duration{time.Second, time.Minute, 5 * time.Minute, vaulttest.PastGrace}[l.r.IntN(4)])
	}
	rules := l.rules()
	v := vaulttest.OnEmulator(t, l.server, vaulttest.Meets(l.server, rules...), azblob.Options{Concurrency: 1 + 7*l.r.IntN(2)})
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
			Chance(chance, l.r.Uint64()).Times(2).Do(vaulttest.Absences[l.r.IntN(2)]),
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
		names := slices.Sorted(maps.Keys(vaulttest.Shapes))
		plan := vaulttest.Shapes[names[l.r.IntN(len(names))]]()
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

// TestRecoveryBesideAShortListing omits sub-objects from the listing before their removal, as a cache does. The blobs that
// lead to them stay, and another Recovery removes everything.
func TestRecoveryBesideAShortListing(t *testing.T) {
	for name, in := range map[string]vaulttest.State{"a create": vaulttest.CreateBroken("plans/*-object.json", 1), "a delete": vaulttest.DeleteBroken(emulator.BatchDelete, "")} {
		vaulttest.InBubble(t, name, func(t *testing.T, server *emulator.Server) {
			plan, _ := in(t, vaulttest.WorldOf(server), plantest.Small())
			time.Sleep(vaulttest.PastGrace)
			short := &vaulttest.ShortLister{Transport: server.Transport(), Name: "actions/", Times: 1, Cached: true}
			report, err := vaulttest.OnEmulator(t, server, settings.Over(short)).Admin().Repair(audited.Mark(t.Context()), azblob.RepairOptions{})
			if !errors.Is(err, storage.ErrUnavailable) || len(report.Plans) != 1 || report.Plans[0].Err == nil {
				t.Errorf("%+v, %v", report, err)
			}
			left := of(vaulttest.Contents(server), plan)
			if _, there := left[strings.Replace(object(server, plan), "-object", "-entry", 1)]; !there || len(left) < 3 {
				t.Errorf("%d blobs are left, want the action and what leads to it", len(left))
			}
			vaulttest.Should(t, vaulttest.OnEmulator(t, server).Recovery(t.Context()))
			vaulttest.Empty(t, server)
		})
	}
	vaulttest.InBubble(t, "a delete that is called again", func(t *testing.T, server *emulator.Server) {
		plan, _ := vaulttest.DeleteBroken(emulator.BatchDelete, "")(t, vaulttest.WorldOf(server), plantest.Small())
		short := &vaulttest.ShortLister{Transport: server.Transport(), Name: "actions/", Times: 1, Cached: true}
		vaulttest.Fails(t, vaulttest.OnEmulator(t, server, settings.Over(short)).Delete(t.Context(), plan.ID), storage.ErrUnknown)
		if err := vaulttest.OnEmulator(t, server).Delete(t.Context(), plan.ID); err != nil || vaulttest.Stored(server) != 0 {
			t.Errorf("again: %v, %d blobs are left", err, vaulttest.Stored(server))
		}
	})
}

// TestRecoveryBesideADelete runs a Delete at each request of a Recovery, in whole and up to each of its own
// requests. Recovery reports no loss and leaves nothing behind.
func TestRecoveryBesideADelete(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	for upTo := 5; upTo <= 10; upTo++ { // at the first four there is nothing to see; 10 is to the end
		vaulttest.BeforeEach(t, fmt.Sprint("up to ", upTo), func(t *testing.T, server *emulator.Server, at *vaulttest.NthRequest) {
			plan, _ := vaulttest.AtWork(t, vaulttest.WorldOf(server), plantest.Small())
			time.Sleep(vaulttest.PastGrace)
			v := at.Vault(t, server, func() {
				vaulttest.WorldOf(server).MayDie(t, emulator.On().Nth(upTo), func(v *azblob.Vault) { _ = v.Delete(t.Context(), plan.ID) })
			})
			report, err := v.Admin().Repair(audited.Mark(t.Context()), azblob.RepairOptions{})
			if err != nil {
				t.Errorf("%+v, %v", report, err)
			}
			vaulttest.Settled(t, vaulttest.OnEmulator(t, server))
			if n := vaulttest.Stored(server); at.Came() && n != 0 && upTo > 5 {
				t.Errorf("%d blobs are left", n)
			}
		})
	}
}

// TestRecoveryBesideADeleteThatEnds removes a final plan's object after Recovery has read the entry, and the
// other blobs after Recovery has looked for the object. Recovery does not report a loss.
func TestRecoveryBesideADeleteThatEnds(t *testing.T) {
	// The missing marker shows that an open plan is gone. A final plan has no marker.
	vaulttest.InBubble(t, "between the looks", func(t *testing.T, server *emulator.Server) {
		plan, _ := vaulttest.Final(t, vaulttest.WorldOf(server), plantest.Small())
		time.Sleep(vaulttest.PastGrace)
		transport := server.Transport()
		begins := vaulttest.Before(emulator.HeadBlob, "-object.json", func() {
			vaulttest.Dies(t, server, emulator.On(emulator.BatchDelete), func(v *azblob.Vault) { _ = v.Delete(t.Context(), plan.ID) })
		})
		ends := emulator.On(emulator.ListBlobs).Where(func(r emulator.Request) bool {
			return strings.HasPrefix(r.Prefix, "open/") && begins.Fired() == 1
		}).Nth(1).Do(emulator.Before(func() { vaulttest.Should(t, vaulttest.OnEmulator(t, server).Delete(t.Context(), plan.ID)) }))
		transport.Inject(begins, ends)
		report, err := vaulttest.OnEmulator(t, server, azblob.Options{ClientOptions: policy.ClientOptions{Transport: transport}, Concurrency: 1}).Admin().Repair(audited.Mark(t.Context()), azblob.RepairOptions{Thorough: true})
		if err != nil || len(report.Plans) != 0 || ends.Fired() != 1 {
			t.Errorf("%+v, %v; the Delete ended: %d", report, err, ends.Fired())
		}
	})
}
