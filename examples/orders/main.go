// Command orders is a shop: it takes orders by HTTP, and ships them at 5 pm. Its replicas go on with the orders of one that dies.
//
//	planvault emulator          # a storage account on this machine
//	go run ./examples/orders    # and in two more terminals, with -listen localhost:8082 and localhost:8083
//	curl -u ann: -d '{"Number": "'$(date +%Y%m%d)'-17", "Cents": 1999, "Card": "tok_4242"}' localhost:8081/orders
//	curl -u ann: "localhost:8082/orders/$(date +%Y%m%d)-17?wait=1m"    # -X DELETE cancels
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

func main() {
	listen := flag.String("listen", "localhost:8081", "`address` for customers")
	account := flag.String("connection-string", "UseDevelopmentStorage=true", "connection string of the storage account (`text`)")
	endpoint := flag.String("endpoint", "", "blob endpoint `URL` of the storage account, in place of -connection-string, for the identity that azidentity finds")
	carrier := flag.Duration("carrier", 17*time.Hour, "`time` of day when the carrier comes")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	host, _ := os.Hostname()
	s, err := open(ctx, cmp.Or(*endpoint, *account), azblob.Options{}, host+" "+*listen, *carrier, pretend)
	if err == nil {
		go func() { log.Fatal(http.ListenAndServe(*listen, s)) }()
		err = errors.Join(s.engine.Run(ctx), s.vault.Close(context.Background())) // until a signal, and running actions have ended
	}
	if err != nil {
		log.Fatal(err)
	}
}

// pretend is the bank, the warehouse, the carrier, and the customer's mail.
func pretend(_ context.Context, what string, o Order, key uuid.UUID) (string, error) {
	slog.Info(what, "order", o.Number, "customer", o.Customer, "key", key)
	return "done", nil
}

// Order is what a customer sends, and the request of all actions.
type Order struct {
	Number   string // begins with its day: 20261124-17
	Customer string // the login
	Cents    int
	Card     string    `vault:"secret"` // a token of the bank
	Ships    time.Time // when the carrier comes
}

// Check refuses an order before it is stored.
func (o Order) Check() error {
	if _, err := time.Parse("20060102", o.Number[:min(8, len(o.Number))]); err != nil {
		return &workflow.FieldError{Field: "Number", Problem: "must begin with a day, as 20261124-17 does"}
	}
	if o.Cents <= 0 {
		return &workflow.FieldError{Field: "Cents", Problem: "must be more than 0"}
	}
	return nil
}

// planOf returns the ID of an order's plan. It is always the same, so an order that is sent twice is one plan.
func planOf(customer, number string) uuid.UUID {
	day, _ := time.Parse("20060102", number[:min(8, len(number))])
	return workflow.NewV7From(day, fmt.Sprintf("%q %q", customer, number))
}

// partners do something for an order: the bank, the warehouse, the carrier, and whoever tells the customer. Asked again with the
// same key they do nothing, because an action may run again.
type partners func(ctx context.Context, what string, o Order, key uuid.UUID) (receipt string, err error)

func (ask partners) task(what string) *engine.TypedPlugin[Order, string] {
	return engine.Task(what, func(ctx context.Context, call engine.Call, o Order) (string, error) {
		return ask(ctx, what, o, call.Action)
	}).With(engine.TaskOptions[Order]{Retries: 2})
}

// ship waits until the carrier comes. An order that waits takes no place, and any replica goes on with it.
func (ask partners) ship(ctx context.Context, call engine.Call, o Order) (string, error) {
	if wait := time.Until(o.Ships); wait > 0 {
		return "", engine.Later(wait, nil)
	}
	return ask(ctx, "ship", o, call.Action)
}

// refund gives back what was charged, even if the bank's answer to that was lost.
func (ask partners) refund(ctx context.Context, call engine.Call, o Order) (string, error) {
	charge, err := call.ActionByName("charge")
	if err != nil || charge.State.Status == workflow.NotStarted {
		return "nothing was charged", err
	}
	return ask(ctx, "refund", o, charge.ID)
}

// shop is a replica. Each replica knows all orders.
type shop struct {
	http.ServeMux
	charge, reserve, ship, refund *engine.TypedPlugin[Order, string]
	carrier                       time.Duration // the time of day
	vault                         *azblob.Vault
	engine                        *engine.Engine
}

func open(ctx context.Context, account string, opts azblob.Options, name string, carrier time.Duration, ask partners) (s *shop, err error) {
	s = &shop{carrier: carrier, reserve: ask.task("reserve")}
	s.charge = ask.task("charge").With(engine.TaskOptions[Order]{Check: Order.Check, Retries: 2})
	s.ship = engine.Task("ship", ask.ship).With(engine.TaskOptions[Order]{Retries: 2})
	s.refund = engine.Task("refund", ask.refund).With(engine.TaskOptions[Order]{Retries: 100})
	s.HandleFunc("GET /healthz", s.health)
	s.handle("POST /orders", s.post)
	s.handle("GET /orders/{number}", s.get)
	s.handle("DELETE /orders/{number}", func(r *http.Request, customer string) (string, error) {
		return "will be cancelled", s.engine.Stop(r.Context(), planOf(customer, r.PathValue("number")), workflow.Attribution{By: customer})
	})
	reg := registry.Must(s.charge, s.reserve, s.ship, s.refund)
	if s.vault, err = connect(ctx, account, reg, opts); err != nil {
		return nil, err
	}
	s.engine, err = engine.New(s.vault, engine.Options{
		Fleet: &fleet.Options{Name: name}, Observer: engine.LogObserver(slog.Default()),
		Ended: func(ctx context.Context, p *workflow.Plan) error {
			_, err := ask(ctx, "tell "+p.Submitted.By+": "+words[p.State.Status], Order{Number: p.Name, Customer: p.Submitted.By}, p.ID)
			return err
		},
	})
	return s, err
}

// connect opens the vault in an account, which is a connection string or an endpoint.
func connect(ctx context.Context, account string, reg *registry.Register, opts azblob.Options) (*azblob.Vault, error) {
	if !strings.HasPrefix(account, "https://") {
		return azblob.NewFromConnectionString(ctx, "orders", account, reg, opts)
	}
	cred, err := azidentity.NewDefaultAzureCredential(nil)
	if err != nil {
		return nil, err
	}
	return azblob.New(ctx, "orders", account, cred, reg, opts)
}

// words are what customers read. The money for what has failed or is cancelled is back, unless the refund failed.
var words = map[workflow.Status]string{
	workflow.NotStarted: "taken", workflow.Running: "in work",
	workflow.Completed: "shipped", workflow.Stopped: "cancelled", workflow.Failed: "failed",
}

// health says whether the store answers, for what sends requests to the replicas that can take them.
func (s *shop) health(w http.ResponseWriter, r *http.Request) {
	if _, err := s.vault.Ping(r.Context(), azblob.PingOptions{}); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	}
}

// handle answers with what do returns for a customer.
func (s *shop) handle(pattern string, do func(r *http.Request, customer string) (string, error)) {
	s.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		customer, _, _ := r.BasicAuth() // a real shop checks the password
		switch text, err := do(r, customer); {
		case err == nil:
			fmt.Fprintln(w, text)
		case errors.Is(err, storage.ErrInvalid):
			if wrong, ok := errors.AsType[*workflow.FieldError](err); ok && wrong.Err != nil {
				err = wrong.Err // what Order.Check says, without the plan's paths
			}
			http.Error(w, err.Error(), http.StatusBadRequest)
		case errors.Is(err, storage.ErrNotFound):
			http.Error(w, "no such order", http.StatusNotFound)
		case errors.Is(err, fleet.ErrNotRunning):
			http.Error(w, "too late", http.StatusConflict)
		default: // the same request again is safe
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})
}

// post takes an order: it is paid, and shipped when the carrier comes. If anything fails, or the customer cancels, the money
// goes back. Once post has answered, the order is worked on, whatever becomes of this process.
func (s *shop) post(r *http.Request, customer string) (string, error) {
	var o Order
	if err := json.NewDecoder(http.MaxBytesReader(nil, r.Body, 1<<16)).Decode(&o); err != nil {
		return "", fmt.Errorf("%w: %w", storage.ErrInvalid, err)
	}
	now := time.Now()
	o.Customer, o.Ships = customer, time.Date(now.Year(), now.Month(), now.Day(), 0, int(s.carrier.Minutes()), 0, 0, now.Location())
	if o.Ships.Before(now) {
		o.Ships = o.Ships.AddDate(0, 0, 1)
	}
	charge := s.charge.Action("charge", o)
	o.Card = "" // for the bank alone
	reserve, ship, refund := s.reserve.Action("reserve", o), s.ship.Action("ship", o), s.refund.Action("refund", o)
	ship.Timeout = 25 * time.Hour
	ctx := storage.WithActor(r.Context(), workflow.Actor{By: customer, From: r.RemoteAddr})
	_, err := s.engine.Submit(ctx, &workflow.Plan{
		ID: planOf(customer, o.Number), Name: o.Number, Labels: map[string]string{"customer": customer},
		Blocks:          []*workflow.Block{{Sequences: []*workflow.Sequence{{Actions: []*workflow.Action{charge, reserve, ship}}}}},
		DeferredActions: &workflow.DeferredActions{Batches: []*workflow.DeferBatch{{When: workflow.OnFailure, FailElement: true, Actions: []*workflow.Action{refund}}}},
	})
	if err != nil && !errors.Is(err, storage.ErrExists) {
		return "", err
	}
	return "taken", nil
}

// get says how an order is doing. With ?wait=30s it answers when the order has ended, or after that time.
func (s *shop) get(r *http.Request, customer string) (string, error) {
	id := planOf(customer, r.PathValue("number"))
	if wait, err := time.ParseDuration(r.FormValue("wait")); err == nil {
		ctx, cancel := context.WithTimeout(r.Context(), wait)
		defer cancel()
		_, _ = s.engine.Wait(ctx, id) // on whichever replica it ends
	}
	found, err := s.engine.Status(r.Context(), id)
	for _, w := range found.Waiting {
		if !w.Until.IsZero() {
			return "waits until " + w.Until.Local().Format(time.Kitchen), nil
		}
	}
	return words[found.Plan.State.Status], err
}
