package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/workflow"
)

// TestOrders sends an order to two of three replicas, 20 minutes before the carrier comes, in virtual time.
func TestOrders(t *testing.T) {
	const good = `{"Number": "20000101-17", "Cents": 1999, "Card": "tok_4242"}`
	for _, c := range []struct{ name, order, fails, kills, taken, waits, cancelled, want, asked string }{
		{"an order", good, "", "", "200 taken", "200 waits until", "", "200 shipped", "charge reserve ship tell ann: shipped"},
		{"a replica dies", good, "", "reserve", "200 taken", "200 waits until", "", "200 shipped", "charge reserve reserve* ship tell ann: shipped"},
		{"no shipment", good, "ship", "", "200 taken", "200 waits until", "", "200 failed", "charge reserve ship ship* ship* refund* tell ann: failed"},
		{"cancelled", good, "", "", "200 taken", "200 waits until", "200 will be", "200 cancelled", "charge reserve refund* tell ann: cancelled"},
		{"no money", strings.Replace(good, "1999", "0", 1), "", "", "400 ", "404 ", "404 ", "404 ", ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, shutdown := context.WithCancel(t.Context())
			server, keys, work, now := emulator.New(emulator.Options{}), new(sync.Map), new(sync.WaitGroup), time.Now()
			carrier := time.Duration(now.Hour()*60+now.Minute()+20) * time.Minute
			var logged, asked strings.Builder
			slog.SetDefault(slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug})))
			partners := log.New(&asked, "", 0)
			var shops [3]*shop
			for i := range shops {
				opts := azblob.Options{ClientOptions: server.ClientOptions()}
				s, err := open(ctx, server.ConnectionString(), opts, "", carrier, func(_ context.Context, what string, _ Order, key uuid.UUID) (string, error) {
					_, again := keys.LoadOrStore(key, what)
					partners.Print(what, map[bool]string{true: "*"}[again])
					if what == c.kills && i == 0 {
						opts.Transport.(*emulator.Transport).Crash()
					}
					return "done", map[string]error{c.fails: errors.New("out of tea")}[what]
				})
				if err != nil {
					t.Fatal(err)
				}
				shops[i] = s
				work.Go(func() { _ = errors.Join(s.engine.Run(ctx), s.vault.Close(context.Background())) })
			}
			ask := func(s *shop, method, path, body, want string) {
				r, w := httptest.NewRequest(method, "/orders"+path, strings.NewReader(body)), httptest.NewRecorder()
				r.SetBasicAuth("ann", "")
				s.ServeHTTP(w, r)
				got := fmt.Sprint(w.Code, " ", w.Body)
				if !strings.HasPrefix(got, want) || strings.Contains(got, "tok_4242") || w.Code == 400 && got != "400 Cents: must be more than 0\n" {
					t.Errorf("%s: %s %s: %s, want %s", c.name, method, path, got, want)
				}
			}
			time.Sleep(65 * time.Second) // no replica looks for orders now, so shops[0] runs its own
			ask(shops[0], "POST", "", c.order, c.taken)
			ask(shops[1], "POST", "", c.order, c.taken)
			time.Sleep(5 * time.Minute)
			ask(shops[1], "GET", "/20000101-17", "", c.waits)
			if c.cancelled != "" {
				ask(shops[1], "DELETE", "/20000101-17", "", c.cancelled)
			}
			ask(shops[2], "GET", "/20000101-17?wait=1h", "", c.want)
			if p, err := shops[2].vault.Read(ctx, planOf("ann", "20000101-17")); err == nil {
				text, _ := workflow.Marshal(p.Redacted())
				slog.Info(string(text))
			}
			shutdown()
			work.Wait()
			if got := strings.Join(strings.Fields(asked.String()), " "); got != c.asked || strings.Contains(logged.String(), "tok_4242") {
				t.Errorf("%s: asked %q, want %q; logged:\n%s", c.name, got, c.asked, &logged)
			}
		})
	}
}

// TestHealth asks a replica for its health, before and after the store goes away.
func TestHealth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := emulator.New(emulator.Options{})
		s, err := open(t.Context(), server.ConnectionString(), azblob.Options{ClientOptions: server.ClientOptions()}, "", 0, pretend)
		if err != nil {
			t.Fatal(err)
		}
		defer s.vault.Close(t.Context())
		for _, want := range []int{http.StatusOK, http.StatusServiceUnavailable} {
			w := httptest.NewRecorder()
			s.ServeHTTP(w, httptest.NewRequest("GET", "/healthz", nil))
			if w.Code != want {
				t.Errorf("%d %s, want %d", w.Code, w.Body, want)
			}
			server.Inject(emulator.On().Do(emulator.Answer(503, "ServerBusy")))
		}
	})
}
