// Package web shows a vault to browsers: what is open and stuck, who works on it, what has run, and how each plan
// stands. It only reads.
package web

import (
	"bytes"
	"context"
	"embed"
	"html/template"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/cmd/planvault/internal/report"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// Store is what the pages show. A [azblob.Vault] is a Store.
type Store interface {
	storage.Vault
	Ping(ctx context.Context, o azblob.PingOptions) (azblob.PingReport, error)
}

// Options are the settings of a [Server]. Zero fields have their defaults.
type Options struct {
	// Vault names the vault on the pages, such as by its prefix. Everybody who reaches the server sees it.
	// Default: empty.
	Vault string
	// Flags are the flags of the tool that lead to the vault, such as --prefix, for the commands on the pages. They
	// must not have secrets. Default: none.
	Flags []string
	// Hosts are the names by which browsers may call the server, without ports. A request for another name is
	// refused, so that no page of another site can read through a name that it points at this machine. A server
	// that listens on loopback wants [LoopbackHosts]. Default: nil, which allows all names.
	Hosts []string
	// Interval is the time between two looks at the open plans and the members, and between two reads of a plan, for
	// all viewers together. Nothing is asked while nobody watches. Default: 15s.
	Interval time.Duration
	// AllowEmpty lets a vault without containers be in good health, because it is new. Default: false.
	AllowEmpty bool
	// Older is how long a plan may go without progress before it is stuck. Default: that of
	// [fleet.InspectOptions].
	Older time.Duration
}

func (o Options) complete() Options {
	if o.Interval <= 0 {
		o.Interval = 15 * time.Second
	}
	return o
}

// Server shows a vault. It is an [http.Handler], and has no login: whoever reaches it can read all plans. It is
// safe for concurrent use.
//
// Viewers share what they ask for: whatever their number, the open plans are looked at once in an interval, the same
// plan is read once in an interval, and the same search or ping is made once in a few seconds.
type Server struct {
	store   Store
	o       Options
	pages   *template.Template
	handler http.Handler
	watch   watch
	exists  atomic.Bool // a ping has shown that the vault has a container, or it need not have one

	looks    *shared[struct{}, *state]
	pings    *shared[struct{}, ping]
	searches *shared[string, results]
	plans    *shared[uuid.UUID, *workflow.Plan]
	rosters  *shared[struct{}, storage.Roster]
}

const (
	// answerTTL is how long the answer to a search or a ping is used.
	answerTTL = 5 * time.Second
	// readLimit is how long a search or a read may take.
	readLimit = time.Minute
)

// New returns a server for a store.
func New(store Store, o Options) *Server {
	s := &Server{store: store, o: o.complete()}
	s.looks = newShared(s.untilNext, lookLimit, 1, s.look)
	s.pings = newShared(always[ping](answerTTL), readLimit, 1, s.ping)
	s.searches = newShared(always[results](answerTTL), readLimit, 64, s.search)
	s.plans = newShared(always[*workflow.Plan](s.o.Interval), readLimit, 4, store.Read)
	s.rosters = newShared(always[storage.Roster](s.o.Interval), readLimit, 1, s.roster)
	s.pages = template.Must(report.Templates().Funcs(functions).ParseFS(files, "pages/*.html"))
	s.handler = s.guard(s.routes())
	return s
}

// ServeHTTP answers a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/{$}", s.openPage)
	mux.HandleFunc("/fleet", s.fleetPage)
	mux.HandleFunc("/history", s.historyPage)
	mux.HandleFunc("/health", s.healthPage)
	mux.HandleFunc("/healthz", s.healthz)
	mux.HandleFunc("/metrics", s.metrics)
	mux.HandleFunc("/plan/{id}", s.plan)
	mux.HandleFunc("/static/{file}", s.static)
	mux.HandleFunc("/", s.noPage)
	return mux
}

// Serve answers requests on a listener until ctx ends. Then it ends everything that is asked of the store at once, gives
// answers under way a second, and returns nil.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	server := &http.Server{
		Handler:           s,
		ReadHeaderTimeout: 10 * time.Second,
		WriteTimeout:      readLimit + time.Minute,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		BaseContext:       func(net.Listener) context.Context { return ctx },
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	for _, end := range []func(){s.looks.end, s.pings.end, s.searches.end, s.plans.end, s.rosters.end} {
		end()
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if server.Shutdown(stop) != nil {
		_ = server.Close() // whoever still receives an answer has had time
	}
	<-ended
	return nil
}

//go:embed pages static
var files embed.FS

// static serves the styles and scripts.
func (s *Server) static(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("file")
	body, err := files.ReadFile("static/" + name)
	if err != nil {
		s.noPage(w, r)
		return
	}
	if name == "style.css" {
		body = append([]byte(report.Style()), body...)
	}
	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(body))
}
