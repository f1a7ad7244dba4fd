package logins_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/internal/vaulttest"
)

// countingPolicy counts requests, and those of batches.
type countingPolicy struct{ all, batches, foreign atomic.Int64 }

func (p *countingPolicy) Do(r *policy.Request) (*http.Response, error) {
	p.all.Add(1)
	if strings.Contains(r.Raw().URL.RawQuery, "comp=batch") {
		p.batches.Add(1)
	}
	if !strings.HasPrefix(r.Raw().Header.Get("User-Agent"), "ours ") {
		p.foreign.Add(1)
	}
	return r.Next()
}

// TestPoliciesSeeEveryRequest opens a vault with the account's key, and the policies and the telemetry of a caller, who sees
// each request that the service gets, batches included.
func TestPoliciesSeeEveryRequest(t *testing.T) {
	vaulttest.InBubble(t, "", func(t *testing.T, server *emulator.Server) {
		var perCall, perRetry countingPolicy
		cred, err := azblob.NewSharedKeyCredential(emulator.DefaultAccount, emulator.DefaultKey)
		vaulttest.Must(t, err)
		v, err := azblob.NewWithSharedKeyCredential(t.Context(), "test", "https://blob.emulator.invalid/"+emulator.DefaultAccount, cred, plantest.Register(),
			azblob.Options{ClientOptions: policy.ClientOptions{
				Transport: server.Transport(), Telemetry: policy.TelemetryOptions{ApplicationID: "ours"},
				PerCallPolicies: []policy.Policy{&perCall}, PerRetryPolicies: []policy.Policy{&perRetry},
			}})
		vaulttest.Must(t, err)
		plan := vaulttest.Created(t, v, plantest.Full())
		vaulttest.Must(t, v.Delete(t.Context(), plan.ID))
		sent := int64(len(server.Requests()))
		for name, p := range map[string]*countingPolicy{"per call": &perCall, "per retry": &perRetry} {
			if p.all.Load() != sent || p.batches.Load() == 0 {
				t.Errorf("%s: %d requests of %d, %d batches", name, p.all.Load(), sent, p.batches.Load())
			}
		}
		if n := perRetry.foreign.Load(); n > 0 {
			t.Errorf("%d requests lack the caller's telemetry ID", n)
		}
	})
}
