package logins_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow/plantest"

	"github.com/planvault/azblob/tests/vaulttest"
)

// TestAccount asks for the facts of accounts of each kind. What the service does not tell is unknown, with a
// reason. Azurite does not say whether it keeps deleted blobs.
func TestAccount(t *testing.T) {
	for name, test := range map[string]struct {
		options                         []emulator.Option
		second                          bool
		sku, hns, kept, versions, state string
	}{
		"flat":         {nil, false, "Standard_LRS", "false", "0", "false", azblob.NoSecondary},
		"hierarchical": {[]emulator.Option{emulator.WithHierarchicalNamespace()}, false, "Standard_LRS", "true", "0", "false", azblob.NoSecondary},
		"kept":         {[]emulator.Option{emulator.WithSoftDelete(), emulator.WithVersioning()}, false, "Standard_LRS", "false", "7", "true", azblob.NoSecondary},
		"replicated":   {nil, true, "Standard_RAGRS", "false", "0", "false", "live"},
	} {
		synctest.Test(t, func(t *testing.T) {
			server := emulator.New(test.options...)
			var opts []azblob.Option
			if test.second {
				server.Replicate()
				opts = append(opts, azblob.WithSecondary(""))
			}
			synced := time.Now()
			v := vaulttest.Signing(t, server, opts...)
			empty, err := v.Account(t.Context())
			if err != nil || !errors.Is(empty.Unknown["Versioning"], storage.ErrNotFound) {
				t.Errorf("%s, empty: %+v, %v", name, empty, err)
			}
			vaulttest.Created(t, v, plantest.Small())
			time.Sleep(time.Minute)
			server.ResetRequests()
			r, err := v.Account(t.Context())
			if n, want := len(server.Requests()), 5+len(opts); n != want { // whatever is stored
				t.Errorf("%s: %d requests, want %d: %v", name, n, want, server.Requests())
			}
			if err != nil || len(r.Unknown) > 0 {
				t.Errorf("%s: %+v, %v", name, r, err)
			}
			got := strings.Fields(fmt.Sprintln(r.Kind, r.SKU, r.Hierarchical, r.SoftDelete, r.Versioning, r.Replication.Status))
			if want := []string{"StorageV2", test.sku, test.hns, test.kept, test.versions, test.state}; !slices.Equal(got, want) {
				t.Errorf("%s: %v, want %v", name, got, want)
			}
			if test.second && !r.Replication.Synced.Equal(synced.UTC().Truncate(time.Second)) {
				t.Errorf("synced %v, want %v", r.Replication.Synced, synced)
			}
		})
	}
	t.Run("azurite", func(t *testing.T) {
		v := vaulttest.OpenVault(t, "account", vaulttest.Azurite.Get(t).ConnectionString(), azblob.WithSecondary(""))
		vaulttest.Created(t, v, plantest.Small())
		r, err := v.Account(t.Context())
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
			server := emulator.New(emulator.WithTokens(tenant))
			plan := vaulttest.Created(t, vaulttest.Signing(t, server), plantest.Small())
			server.Replicate()
			v, err := open(t.Context(), server, "test-"+plan.SubmitTime.UTC().Format(time.DateOnly), azblob.WithTransport(server.Transport()), azblob.WithSecondary(""), azblob.WithDayProbing(2))
			vaulttest.Must(t, err)
			r, err := v.Account(t.Context())
			if err != nil {
				t.Errorf("%s: %v", login, err)
			}
			var got []string
			texts := ""
			cell := func(why error) {
				got = append(got, yes(why == nil))
				if why != nil {
					texts += why.Error()
					if !errors.Is(why, storage.ErrDenied) {
						t.Errorf("%s: it is not ErrDenied: %v", login, why)
					}
				}
			}
			cell(cmp.Or(r.Unknown["Kind"], r.Unknown["SKU"], r.Unknown["Hierarchical"]))
			cell(r.Unknown["SoftDelete"])
			cell(r.Unknown["Versioning"])
			cell(r.Unknown["Replication"])
			if !slices.Equal(got, cells[:4]) {
				t.Errorf("%s: the row says %v, and it is %v\n%s", login, cells[:4], got, texts)
			}
			for _, want := range quoted(cells[4]) {
				if !strings.Contains(texts, want) {
					t.Errorf("%s: nothing says %q\n%s", login, want, texts)
				}
			}
		})
	}
	if rows < 8 {
		t.Errorf("the table has %d rows with logins", rows)
	}
}

// TestAccountGuessesNothing asks through answers that lack the facts, or that do not come from the service.
func TestAccountGuessesNothing(t *testing.T) {
	server := emulator.New()
	strip := func(names ...string) vaulttest.Send {
		return func(req *http.Request) (*http.Response, error) {
			resp, err := server.Transport().Do(req)
			for _, name := range names {
				resp.Header.Del(name)
			}
			return resp, err
		}
	}
	v := vaulttest.OnEmulator(t, server, azblob.WithTransport(strip("X-Ms-Sku-Name", "X-Ms-Account-Kind", "X-Ms-Is-Hns-Enabled")))
	r, err := v.Account(t.Context())
	if err != nil || r.Unknown["Kind"] == nil || r.Unknown["SKU"] == nil || r.Unknown["Hierarchical"] == nil || r.Unknown["Replication"] == nil {
		t.Errorf("%+v, %v", r, err)
	}
	for name, effect := range map[string]emulator.Effect{
		"a login page": emulator.Foreign(200, "text/html", "<html>log in</html>"),
		"busy":         emulator.Answer(503, "ServerBusy"),
	} {
		server := emulator.New()
		server.Inject(emulator.On(emulator.GetAccountInfo, emulator.GetServiceProperties).Do(effect))
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		r, err := vaulttest.OnEmulator(t, server).Account(ctx)
		cancel()
		if !errors.Is(err, storage.ErrUnavailable) || r.Unknown["Kind"] == nil || r.Unknown["SoftDelete"] == nil || r.Unknown["Hierarchical"] == nil {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
}

// TestAccountOfDeadSecondary checks that a secondary that is away delays the report by two seconds at most, and is
// no error.
func TestAccountOfDeadSecondary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := emulator.New()
		server.Replicate()
		server.Inject(emulator.On(emulator.GetServiceStats).Do(emulator.Silence()))
		v := vaulttest.OnEmulator(t, server, azblob.WithSecondary(""))
		began := time.Now()
		r, err := v.Account(t.Context())
		if err != nil || !errors.Is(r.Unknown["Replication"], storage.ErrUnavailable) || time.Since(began) > 3*time.Second {
			t.Errorf("after %v: %+v, %v", time.Since(began), r, err)
		}
	})
}
