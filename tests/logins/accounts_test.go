package logins_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"

	"github.com/planvault/azblob/tests/vaulttest"
)

// TestHierarchicalNamespace lists, deletes and checks plans on an account with directories. The account is
// asked once to group IDs by hyphens, which it refuses. Deleted plans leave their directories, which are no
// blobs.
func TestHierarchicalNamespace(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	vaulttest.InBubbleOf(t, emulator.New(emulator.WithHierarchicalNamespace()), func(t *testing.T, server *emulator.Server) {
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
			list, err := v.List(t.Context(), 10)
			vaulttest.Must(t, err)
			n := 0
			for r := range list {
				if r.Err != nil || r.Result.ID != ids[len(ids)-1-n].ID {
					t.Errorf("%d: %+v", n, r)
				}
				n++
			}
			if log := server.Requests()[before:]; n != 10 || len(log) != want {
				t.Errorf("%d plans in %v", n, log)
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
	for what, opts := range map[string][]emulator.Option{
		"versioning":  {emulator.WithVersioning()},
		"soft delete": {emulator.WithSoftDelete()},
		"both":        {emulator.WithVersioning(), emulator.WithSoftDelete()},
	} {
		vaulttest.InBubbleOf(t, emulator.New(opts...), func(t *testing.T, server *emulator.Server) {
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
			vaulttest.Must(t, v.Create(t.Context(), plan))
			count("Create", 0)
			plan.State.Status = workflow.Running
			vaulttest.Must(t, v.UpdatePlan(t.Context(), plan))
			count("the plan starts", 1)
			n := 0
			for o, parent := range workflow.Walk(plan) {
				if parent == nil {
					continue
				}
				n++
				vaulttest.Must(t, storage.Update(t.Context(), v, o))
			}
			count("an update of each sub-object", n)
			plantest.Finish(plan)
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
			for _, renewals := range []int{0, 1, 1} {
				if m.Version == "" {
					m.Version, err = v.AddMember(t.Context(), m)
				} else {
					m.Version, err = v.RenewMember(t.Context(), m)
				}
				vaulttest.Must(t, err)
				count("a heartbeat", renewals)
			}
			again := vaulttest.EachKind()
			again.ID = plan.ID
			if err := v.Create(t.Context(), again); err != nil {
				t.Errorf("%s: Create of a deleted ID: %v", what, err)
			}
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
		_, err := v.Read(t.Context(), plan.ID)
		oneLine(t, "Read", err, storage.ErrCorrupt, remedy)
		oneLine(t, "UpdatePlan", v.UpdatePlan(t.Context(), plan), storage.ErrCorrupt, remedy)
		oneLine(t, "UpdateBlock", v.UpdateBlock(t.Context(), plan.Blocks[0]), storage.ErrCorrupt, remedy)
		if found, err := storage.Collect(v.List(t.Context(), 0)); err != nil || len(found) != 2 {
			t.Errorf("List: %v, %v", found, err)
		}
		if found, err := storage.Collect(v.Search(t.Context(), storage.Filters{ByStatus: []workflow.Status{workflow.Running}})); err != nil || len(found) != 2 {
			t.Errorf("Search: %v, %v", found, err)
		}
		if _, err := v.Read(t.Context(), other.ID); err != nil {
			t.Error(err)
		}
		time.Sleep(vaulttest.PastGrace)
		if err := v.Recovery(t.Context()); err != nil {
			t.Errorf("Recovery: %v", err)
		}
		report, err := v.Check(t.Context(), azblob.CheckOptions{})
		if err != nil || len(report.Problems) != 2 {
			t.Errorf("Check: %+v, %v", report, err)
		}
		for _, p := range report.Problems {
			if p.Kind != azblob.Unreadable || p.Plan != plan.ID {
				t.Error(p)
			}
		}
		if err := v.Delete(t.Context(), plan.ID); err != nil {
			t.Errorf("Delete: %v", err)
		}
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
			if err := v.Create(t.Context(), vaulttest.EachKind()); err != nil {
				t.Errorf("Create: %v", err)
			}
			if _, err := v.Read(t.Context(), plan.ID); err != nil {
				t.Errorf("Read: %v", err)
			}
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
			if err := v.Recovery(t.Context()); err != nil {
				t.Errorf("Recovery: %v", err)
			}
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
		_, err := vaulttest.OnEmulator(t, server).Expire(t.Context(), azblob.ExpireOptions{OlderThan: 24 * time.Hour})
		if rule.Fired() != 1 {
			t.Errorf("%d requests", rule.Fired())
		}
		oneLine(t, "Expire", err, storage.ErrDenied, "az storage container-rm delete")
	})
}

// TestStrangePages adds to each page of blobs what other accounts, and other requests, have there: directories,
// snapshots, earlier versions and deleted blobs with the names of plans, and elements that nobody knows. The
// vault sees its own plan and nothing else.
func TestStrangePages(t *testing.T) {
	vaulttest.InBubble(t, "all", func(t *testing.T, server *emulator.Server) {
		plan := vaulttest.EachKind()
		vaulttest.Must(t, vaulttest.OnEmulator(t, server).Create(t.Context(), plan))
		ghost := workflow.NewV7().String()
		var junk strings.Builder
		for _, name := range []string{"open/" + ghost, "plans/" + ghost + "-entry.json", "plans/" + ghost + "-object.json", "plans/" + plan.ID.String() + "-entry.json", "elsewhere"} {
			for _, mark := range []string{
				"<Properties><ResourceType>directory</ResourceType></Properties>", "<Snapshot>2026-11-20T08:30:00.1234567Z</Snapshot>",
				"<VersionId>2026-11-20T08:30:00.1234567Z</VersionId>", "<Deleted>true</Deleted><DeletionId>1</DeletionId>",
			} {
				junk.WriteString("<Blob><Name>" + name + "</Name>" + mark + "<Metadata><hdi_isfolder>true</hdi_isfolder></Metadata></Blob>")
			}
		}
		transport := server.Transport()
		v := vaulttest.OnEmulator(t, server, azblob.WithTransport(vaulttest.Send(func(req *http.Request) (*http.Response, error) {
			resp, err := transport.Do(req)
			if err != nil || req.URL.Query().Get("restype") != "container" || req.URL.Query().Get("comp") != "list" {
				return resp, err
			}
			body, err := io.ReadAll(resp.Body)
			body = bytes.Replace(body, []byte("<Blobs>"), []byte("<New><Blob/></New><Blobs><Newer/>"+junk.String()), 1)
			resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
			return resp, err
		})))
		one := func(found []storage.ListResult, err error) {
			t.Helper()
			if err != nil || len(found) != 1 || found[0].ID != plan.ID {
				t.Errorf("%+v, %v", found, err)
			}
		}
		one(storage.Collect(v.List(t.Context(), 0)))
		one(storage.Collect(v.List(t.Context(), 10)))
		one(storage.Collect(v.Search(t.Context(), storage.Filters{ByStatus: []workflow.Status{workflow.NotStarted}})))
		if report := vaulttest.Settled(t, v); report.Plans != 1 {
			t.Errorf("%+v", report)
		}
		if err := v.Delete(t.Context(), plan.ID); err != nil {
			t.Error(err)
		}
		if report := vaulttest.Settled(t, v); report.Blobs != 0 {
			t.Errorf("%+v", report)
		}
	})
}

// TestAccountStates gives the service's refusals for the states of an account. Each error is of the kind that
// the engine acts on, has one line, and says what to do.
func TestAccountStates(t *testing.T) {
	for _, test := range []struct {
		what   string
		status int
		code   string
		remedy string
	}{
		{"network rules", 403, "AuthorizationFailure", "firewall"},
		{"a signature for another address", 403, "AuthorizationSourceIPMismatch", "this address"},
		{"a role that is too weak", 403, "AuthorizationPermissionMismatch", "give the identity the role"},
		{"read-only", 403, "InsufficientAccountPermissions", "read-only"},
		{"disabled", 403, "AccountIsDisabled", "subscription"},
		{"a container that is disabled", 403, "ContainerDisabled", "state of the account"},
		{"no keys", 403, "KeyBasedAuthenticationNotPermitted", "log in with an identity"},
		{"an older version", 400, "", "WithServiceVersion, or --service-version"},
	} {
		vaulttest.InBubble(t, test.what, func(t *testing.T, server *emulator.Server) {
			v := vaulttest.OnEmulator(t, server)
			plan := vaulttest.EachKind()
			vaulttest.Must(t, v.Create(t.Context(), plan))
			server.Inject(emulator.On().Do(emulator.Answer(test.status, test.code)))
			before := len(server.Requests())
			_, err := v.Read(t.Context(), plan.ID)
			oneLine(t, "Read", err, storage.ErrDenied, test.remedy)
			plan.State.Status = workflow.Running
			oneLine(t, "UpdatePlan", v.UpdatePlan(t.Context(), plan), storage.ErrDenied, test.remedy)
			_, err = v.Exists(t.Context(), plan.ID)
			oneLine(t, "Exists", err, storage.ErrDenied, test.remedy)
			if n := len(server.Requests()) - before; n > 5 {
				t.Errorf("%d requests, want at most two of Read and UpdatePlan and one of Exists", n)
			}
		})
	}
}
