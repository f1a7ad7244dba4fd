package logins_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/planvault/azblob/internal/audited"
	"github.com/planvault/azblob/internal/merge"
	"github.com/planvault/azblob/internal/settings"

	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"

	"github.com/planvault/azblob/internal/vaulttest"
)

// TestAccount asks for the facts of accounts of each kind. What the service does not tell is unknown, with a
// reason. Azurite does not say whether it keeps deleted blobs.
func TestAccount(t *testing.T) {
	for name, test := range map[string]struct {
		options             []emulator.Options
		hns, kept, versions string
	}{
		"flat":         {nil, "false", "0", "false"},
		"hierarchical": {[]emulator.Options{{HierarchicalNamespace: true}}, "true", "0", "false"},
		"kept":         {[]emulator.Options{{SoftDelete: true}, {Versioning: true}}, "false", "7", "true"},
	} {
		synctest.Test(t, func(t *testing.T) {
			server := emulator.New(merge.Fields(test.options...))
			v := vaulttest.Signing(t, server)
			empty, err := v.Admin().Account(t.Context())
			if err != nil || !errors.Is(empty.Unknown["Versioning"], storage.ErrNotFound) {
				t.Errorf("%s, empty: %+v, %v", name, empty, err)
			}
			vaulttest.Created(t, v, plantest.Small())
			time.Sleep(time.Minute)
			server.ResetRequests()
			r, err := v.Admin().Account(t.Context())
			if n := len(server.Requests()); n != 5 { // whatever is stored
				t.Errorf("%s: %d requests, want 5: %v", name, n, server.Requests())
			}
			if err != nil || len(r.Unknown) > 0 {
				t.Errorf("%s: %+v, %v", name, r, err)
			}
			got := strings.Fields(fmt.Sprintln(r.Kind, r.SKU, r.Hierarchical, r.SoftDelete, r.Versioning))
			if want := []string{"StorageV2", "Standard_LRS", test.hns, test.kept, test.versions}; !slices.Equal(got, want) {
				t.Errorf("%s: %v, want %v", name, got, want)
			}
		})
	}
	t.Run("azurite", func(t *testing.T) {
		v := vaulttest.OpenVault(t, "account", vaulttest.Azurite.Get(t).ConnectionString())
		vaulttest.Created(t, v, plantest.Small())
		r, err := v.Admin().Account(t.Context())
		if err != nil || r.Kind != "StorageV2" || r.Versioning || len(r.Unknown) != 1 || r.Unknown["SoftDelete"] == nil {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

// TestAccountOfLogins runs each row of the table of what a login may ask about the account, in docs/account.md.
func TestAccountOfLogins(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	rows := 0
	for login, cells := range table(t, "| a login may ask for | ") {
		open := logins[login]
		if open == nil {
			continue
		}
		rows++
		synctest.Test(t, func(t *testing.T) {
			server := emulator.New(emulator.Options{Tokens: tenant})
			plan := vaulttest.Created(t, vaulttest.Signing(t, server), plantest.Small())
			v, err := open(t.Context(), server, "test-"+plan.SubmitTime.UTC().Format(time.DateOnly), azblob.Options{ClientOptions: policy.ClientOptions{Transport: server.Transport()}, DayProbing: 2})
			vaulttest.Must(t, err)
			r, err := v.Admin().Account(t.Context())
			if err != nil {
				t.Errorf("%s: %v", login, err)
			}
			info := cmp.Or(r.Unknown["Kind"], r.Unknown["SKU"], r.Unknown["Hierarchical"])
			checkRow(t, login, cells, info, r.Unknown["SoftDelete"], r.Unknown["Versioning"])
		})
	}
	if rows < 8 {
		t.Errorf("the table has %d rows with logins", rows)
	}
}

// TestAccountGuessesNothing asks through answers that lack the facts, or that do not come from the service.
func TestAccountGuessesNothing(t *testing.T) {
	server := emulator.New(emulator.Options{})
	strip := func(names ...string) vaulttest.Send {
		return func(req *http.Request) (*http.Response, error) {
			resp, err := server.Transport().Do(req)
			for _, name := range names {
				resp.Header.Del(name)
			}
			return resp, err
		}
	}
	v := vaulttest.OnEmulator(t, server, settings.Over(strip("X-Ms-Sku-Name", "X-Ms-Account-Kind", "X-Ms-Is-Hns-Enabled")))
	r, err := v.Admin().Account(t.Context())
	if err != nil || r.Unknown["Kind"] == nil || r.Unknown["SKU"] == nil || r.Unknown["Hierarchical"] == nil {
		t.Errorf("%+v, %v", r, err)
	}
	for name, effect := range map[string]emulator.Effect{
		"a login page": emulator.Foreign(200, "text/html", "<html>log in</html>"),
		"busy":         emulator.Answer(503, "ServerBusy"),
	} {
		server := emulator.New(emulator.Options{})
		server.Inject(emulator.On(emulator.GetAccountInfo, emulator.GetServiceProperties).Do(effect))
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		r, err := vaulttest.OnEmulator(t, server).Admin().Account(ctx)
		cancel()
		if !errors.Is(err, storage.ErrUnavailable) || r.Unknown["Kind"] == nil || r.Unknown["SoftDelete"] == nil || r.Unknown["Hierarchical"] == nil {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
}

// TestSecondary opens a vault at the endpoint of an account's secondary. It reads what was there at the last
// replication, and refuses every write.
func TestSecondary(t *testing.T) {
	vaulttest.InBubble(t, "all", func(t *testing.T, server *emulator.Server) {
		primary := vaulttest.OnEmulator(t, server)
		plan, after := vaulttest.Running(t, primary, vaulttest.EachKind())
		vaulttest.PutDay(server, vaulttest.DaysAgo(9))
		server.Replicate()
		late := vaulttest.Created(t, primary, plantest.Small())
		at := strings.Replace(server.ConnectionString(), "/"+emulator.DefaultAccount, "/"+emulator.DefaultAccount+"-secondary", 1)
		v, err := azblob.NewFromConnectionString(t.Context(), "test", at, plantest.Register(), settings.Over(server.Transport()))
		vaulttest.Must(t, err)
		vaulttest.Reread(t, v, plan)
		for id, want := range map[uuid.UUID]bool{plan.ID: true, late.ID: false} {
			if found, err := v.Exists(t.Context(), id); err != nil || found != want {
				t.Errorf("Exists: %t, %v", found, err)
			}
		}
		vaulttest.Fails(t, vaulttest.ErrOf(v.Read(t.Context(), late.ID)), storage.ErrNotFound)
		for _, f := range []storage.Filters{{After: vaulttest.DaysAgo(2)}, {ByIDs: []uuid.UUID{plan.ID, late.ID}}, {ByStatus: []workflow.Status{workflow.Running, workflow.NotStarted}}} {
			found, err := storage.Collect(v.Search(t.Context(), f))
			n, countErr := v.Count(t.Context(), f)
			if err != nil || countErr != nil || n != 1 || !slices.Equal(vaulttest.IDs(found), []uuid.UUID{plan.ID}) {
				t.Errorf("%+v: %v, %v; %d, %v", f, found, err, n, countErr)
			}
		}
		if found, err := storage.Collect(v.List(t.Context(), 0)); err != nil || !slices.Equal(vaulttest.IDs(found), []uuid.UUID{plan.ID}) {
			t.Errorf("List: %v, %v", found, err)
		}
		before := vaulttest.Contents(server)
		for call, err := range map[string]error{
			"Create": v.Create(t.Context(), plantest.Small()), "Delete": v.Delete(t.Context(), plan.ID),
			"UpdatePlan": v.UpdatePlan(t.Context(), after), "UpdateBlock": v.UpdateBlock(t.Context(), plan.Blocks[0]),
			"AddStop": v.Control().AddStop(t.Context(), plan.ID, workflow.Attribution{}), "AddMember": vaulttest.ErrOf(v.Control().AddMember(t.Context(), storage.Member{ID: workflow.NewV7()})),
			"Hold": v.Admin().Hold(audited.Mark(t.Context()), storage.DayOf(vaulttest.DaysAgo(9)), workflow.Attribution{}), "Expire": vaulttest.ErrOf(v.Admin().Expire(audited.Mark(t.Context()), azblob.ExpireOptions{OlderThanDays: 1})),
		} {
			oneLine(t, call, err, storage.ErrDenied, "read-only, as a secondary is")
		}
		if !maps.Equal(before, vaulttest.Contents(server)) {
			t.Error("a write took effect")
		}
	})
}

// TestHierarchicalNamespace lists, deletes and checks plans on an account with directories. The account is
// asked once to group IDs by hyphens, which it refuses. Deleted plans leave their directories, which are no
// blobs.
func TestHierarchicalNamespace(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	vaulttest.InBubbleOf(t, emulator.New(emulator.Options{HierarchicalNamespace: true}), func(t *testing.T, server *emulator.Server) {
		v := vaulttest.OnEmulator(t, server)
		var ids []*workflow.Plan
		for range 30 {
			plan := vaulttest.EachKind()
			vaulttest.Must(t, v.Create(t.Context(), plan))
			ids = append(ids, plan)
			time.Sleep(time.Minute)
		}
		for _, want := range []int{5, 4} { // containers, names, names of the last minute, plans, and first a refusal
			before := len(server.Requests())
			list, err := storage.Collect(v.List(t.Context(), 10))
			vaulttest.Must(t, err)
			for n, r := range list {
				if r.ID != ids[len(ids)-1-n].ID {
					t.Errorf("%d: %+v", n, r)
				}
			}
			if log := server.Requests()[before:]; len(list) != 10 || len(log) != want {
				t.Errorf("%d plans in %v", len(list), log)
			}
		}
		for _, plan := range ids {
			vaulttest.Must(t, v.Delete(t.Context(), plan.ID))
		}
		if report := vaulttest.Settled(t, v); report.Plans != 0 || report.Blobs != 0 {
			t.Errorf("%+v", report)
		}
		for c := range server.Containers() {
			if n, want := server.Len(c), len([]string{"open", "plans"})+6*(1+len(ids)); n != want { // 6 kinds
				t.Errorf("%d directories are left, want %d", n, want)
			}
		}
		for range 2 { // an ID is free again although its directories exist
			if err := v.Create(t.Context(), ids[0]); err != nil && !errors.Is(err, storage.ErrExists) {
				t.Error(err)
			}
		}
		vaulttest.Sound(t, v)
	})
}

// TestKeptCopies counts what versioning and soft delete keep of a plan's life: one copy for each update, three
// for the last one (entry, object, marker), one for each heartbeat of a member, and all blobs after Delete. The
// vault works as on other accounts.
func TestKeptCopies(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	for what, opts := range map[string][]emulator.Options{
		"versioning":  {emulator.Options{Versioning: true}},
		"soft delete": {emulator.Options{SoftDelete: true}},
		"both":        {emulator.Options{Versioning: true}, emulator.Options{SoftDelete: true}},
	} {
		vaulttest.InBubbleOf(t, emulator.New(merge.Fields(opts...)), func(t *testing.T, server *emulator.Server) {
			v := vaulttest.OnEmulator(t, server)
			kept, last := 0, 0
			count := func(when string, want int) {
				t.Helper()
				kept, _ = server.Kept()
				if kept-last != want {
					t.Errorf("%s, %s: %d copies are kept, want %d", what, when, kept-last, want)
				}
				last = kept
			}
			plan := vaulttest.EachKind()
			n := len(workflow.Parts(plan))
			vaulttest.Must(t, v.Create(t.Context(), plan))
			count("Create", 0)
			plan.State.Status = workflow.Running
			vaulttest.Must(t, v.UpdatePlan(t.Context(), plan))
			count("the plan starts", 1)
			plan.State = vaulttest.FinishParts(t, v, plan)
			count("an update of each sub-object", n)
			vaulttest.Must(t, v.UpdatePlan(t.Context(), plan))
			count("the plan ends", 3)
			vaulttest.Settled(t, v)
			vaulttest.Must(t, v.Delete(t.Context(), plan.ID))
			count("Delete", n+3) // entry, object, delete marker
			if report := vaulttest.Settled(t, v); report.Blobs != 0 {
				t.Errorf("%s: %d blobs are left", what, report.Blobs)
			}
			last, _ = server.Kept()
			m := storage.Member{ID: workflow.NewV7()}
			var err error
			m.Version, err = v.Control().AddMember(t.Context(), m)
			vaulttest.Must(t, err)
			count("the first heartbeat", 0)
			vaulttest.Must(t, vaulttest.ErrOf(v.Control().RenewMember(t.Context(), m)))
			count("a heartbeat", 1)
			vaulttest.Must(t, v.Create(t.Context(), vaulttest.CopyOf(plan))) // the ID is free
		})
	}
}

// oneLine expects an error on one line that says what to do.
func oneLine(t *testing.T, what string, err, want error, remedy string) {
	t.Helper()
	if !errors.Is(err, want) || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), remedy) {
		t.Errorf("%s: %v, want %v: %s", what, err, want, remedy)
	}
}

// TestArchivedBlobs archives the blobs of one of two plans, as a lifecycle rule does. Listings and searches
// show both plans. What reads or writes the archived one says what to do, and the other plan is not affected.
func TestArchivedBlobs(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	const remedy = "exclude the vault's containers from lifecycle rules that archive"
	vaulttest.InBubble(t, "all", func(t *testing.T, server *emulator.Server) {
		v := vaulttest.OnEmulator(t, server)
		plan, _ := vaulttest.Running(t, v, vaulttest.EachKind())
		other, _ := vaulttest.Running(t, v, vaulttest.EachKind())
		for c := range server.Containers() {
			for _, dir := range []string{"plans/", "actions/", "blocks/"} {
				server.Archive(c, dir+plan.ID.String())
			}
		}
		oneLine(t, "Read", vaulttest.ErrOf(v.Read(t.Context(), plan.ID)), storage.ErrCorrupt, remedy)
		oneLine(t, "UpdatePlan", v.UpdatePlan(t.Context(), plan), storage.ErrCorrupt, remedy)
		oneLine(t, "UpdateBlock", v.UpdateBlock(t.Context(), plan.Blocks[0]), storage.ErrCorrupt, remedy)
		if found, err := storage.Collect(v.List(t.Context(), 0)); err != nil || len(found) != 2 {
			t.Errorf("List: %v, %v", found, err)
		}
		if found, err := storage.Collect(v.Search(t.Context(), storage.Filters{ByStatus: []workflow.Status{workflow.Running}})); err != nil || len(found) != 2 {
			t.Errorf("Search: %v, %v", found, err)
		}
		vaulttest.Reread(t, v, other)
		time.Sleep(vaulttest.PastGrace)
		vaulttest.Must(t, v.Recovery(t.Context()))
		report, err := v.Admin().Check(t.Context(), azblob.CheckOptions{})
		if err != nil || len(report.Problems) != 2 {
			t.Errorf("Check: %+v, %v", report, err)
		}
		for _, p := range report.Problems {
			if p.Kind != azblob.ProblemUnreadable || p.Plan != plan.ID {
				t.Error(p)
			}
		}
		vaulttest.Must(t, v.Delete(t.Context(), plan.ID))
		vaulttest.Sound(t, v)
	})
}

// TestImmutableContainers sets immutability policies on the container of a plan. Plans can be created and read,
// and every other write is refused with what to do. With a policy for versions, updates work until a plan ends,
// because its marker can't be removed. Recovery repairs what is left once the policy is gone.
func TestImmutableContainers(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	const remedy = "use containers without"
	for policy, updates := range map[emulator.Policy]bool{emulator.ContainerPolicy: false, emulator.HoldPolicy: false, emulator.VersionPolicy: true} {
		vaulttest.InBubble(t, fmt.Sprint(policy), func(t *testing.T, server *emulator.Server) {
			v := vaulttest.OnEmulator(t, server)
			plan, after := vaulttest.Running(t, v, vaulttest.EachKind())
			for c := range server.Containers() {
				server.SetPolicy(c, policy)
			}
			vaulttest.Created(t, v, vaulttest.EachKind())
			if err := v.UpdateBlock(t.Context(), plan.Blocks[0]); updates != (err == nil) {
				t.Errorf("UpdateBlock: %v", err)
			} else if !updates {
				oneLine(t, "UpdateBlock", err, storage.ErrDenied, remedy)
			}
			oneLine(t, "UpdatePlan", v.UpdatePlan(t.Context(), after), storage.ErrDenied, remedy)
			oneLine(t, "Delete", v.Delete(t.Context(), plan.ID), storage.ErrDenied, remedy)
			if found, err := storage.Collect(v.List(t.Context(), 0)); err != nil || len(found) != 2 {
				t.Errorf("List: %v, %v", found, err)
			}
			for c := range server.Containers() {
				server.SetPolicy(c, emulator.NoPolicy)
			}
			time.Sleep(vaulttest.PastGrace)
			vaulttest.Must(t, v.Recovery(t.Context()))
			vaulttest.Sound(t, v)
		})
	}
}

// TestExpireOfImmutableDays refuses to remove a container as an account does that keeps versions immutable, even where
// no policy is set. Expire asks once, and says what to do.
func TestExpireOfImmutableDays(t *testing.T) {
	vaulttest.InBubble(t, "all", func(t *testing.T, server *emulator.Server) {
		vaulttest.PutDay(server, vaulttest.DaysAgo(9))
		rule := emulator.On(emulator.DeleteContainer).Do(emulator.Answer(409, "ContainerImmutableStorageWithVersioningEnabled"))
		server.Inject(rule)
		_, err := vaulttest.OnEmulator(t, server).Admin().Expire(audited.Mark(t.Context()), azblob.ExpireOptions{OlderThanDays: 1})
		if rule.Fired() != 1 {
			t.Errorf("%d requests", rule.Fired())
		}
		oneLine(t, "Expire", err, storage.ErrDenied, "az storage container-rm delete")
	})
}
