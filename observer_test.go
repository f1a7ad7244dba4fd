package azblob

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"
)

// notes is an observer that records its calls.
type notes struct {
	mu        sync.Mutex
	requests  []Request
	retries   []Retried
	commits   []Commit
	conflicts []Conflict
	repairs   []RecoveredPlan
}

func note[T any](n *notes, list *[]T) func(T) {
	return func(event T) {
		n.mu.Lock()
		defer n.mu.Unlock()
		*list = append(*list, event)
	}
}

func (n *notes) observer() Observer {
	return Observer{
		Request: note(n, &n.requests), Retry: note(n, &n.retries), Commit: note(n, &n.commits),
		Conflict: note(n, &n.conflicts), Repair: note(n, &n.repairs),
	}
}

// observed runs a test in virtual time with a vault that notes observes.
func observed(t *testing.T, server func() *emulator.Server, test func(t *testing.T, v *Vault, server *emulator.Server, n *notes)) {
	t.Helper()
	n := new(notes)
	inTime(t, server, func(*emulator.Server) []Option { return []Option{WithObserver(n.observer())} },
		func(t *testing.T, v *Vault, s *emulator.Server) { test(t, v, s, n) })
}

func TestObserverIsToldOfRequests(t *testing.T) {
	observed(t, func() *emulator.Server { return emulator.New(emulator.WithLatency(time.Second)) }, func(t *testing.T, v *Vault, s *emulator.Server, n *notes) {
		plan := &workflow.Plan{Name: "empty"}
		must(t, v.Create(t.Context(), plan))
		if _, err := v.Read(t.Context(), plan.ID); err != nil {
			t.Error(err)
		}
		if _, err := v.Exists(t.Context(), workflow.NewV7()); err != nil {
			t.Error(err)
		}
		for range streamOf(t, v) {
		}
		must(t, v.Delete(t.Context(), plan.ID))
		k := v.prefix.plan(plan.ID)
		var got []string
		for _, r := range n.requests {
			got = append(got, strings.TrimSpace(r.Op+" "+r.Container+" "+strings.ReplaceAll(r.Blob, plan.ID.String(), "ID")))
			if r.Took != time.Second || r.Status == 0 || r.RequestID == "" || r.URL == nil || r.Err != nil {
				t.Errorf("%+v", r)
			}
			if m := map[string]string{"put": "PUT", "create container": "PUT", "get": "GET", "head": "HEAD", "list": "GET", "list containers": "GET", "delete": "DELETE", "delete batch": "POST"}[r.Op]; r.Method != m {
				t.Errorf("%s is %s", r.Op, r.Method)
			}
		}
		if len(got) != len(s.Requests()) {
			t.Errorf("%d requests were told of, %d were sent", len(got), len(s.Requests()))
		}
		for _, want := range []string{
			"create container " + k.container, "put " + k.container + " open/ID", "put " + k.container + " plans/ID-entry.json",
			"put " + k.container + " plans/ID-object.json", "get " + k.container + " plans/ID-object.json", "list containers prod-",
			"list " + k.container + " plans/", "delete " + k.container + " plans/ID-object.json", "delete batch " + k.container,
		} {
			if !slices.Contains(got, want) {
				t.Errorf("nothing was told of %q: %q", want, got)
			}
		}
		if !slices.ContainsFunc(n.requests, func(r Request) bool { return r.Op == "head" && r.Status == 404 }) {
			t.Error("nothing was told of the look for a plan that is not there")
		}
		if len(n.retries)+len(n.conflicts)+len(n.repairs) > 0 {
			t.Errorf("%+v, %+v, %+v", n.retries, n.conflicts, n.repairs)
		}
	})
}

// streamOf lists a vault.
func streamOf(t *testing.T, v *Vault) func(yield func(storage.Stream[storage.ListResult]) bool) {
	t.Helper()
	list, err := v.List(t.Context(), 0)
	must(t, err)
	return list
}

func TestObserverIsToldOfRetries(t *testing.T) {
	observed(t, newServer, func(t *testing.T, v *Vault, s *emulator.Server, n *notes) {
		id := workflow.NewV7()
		s.Inject(
			emulator.On(emulator.HeadBlob).Nth(1).Do(emulator.Answer(503, "ServerBusy").RetryAfter(time.Minute)),
			emulator.On(emulator.HeadBlob).Nth(2).Do(emulator.LostRequest()),
		)
		started := time.Now()
		if _, err := v.Exists(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		if len(n.retries) != 2 {
			t.Fatalf("%+v", n.retries)
		}
		waits := time.Duration(0)
		for i, r := range n.retries {
			ref := v.prefix.plan(id).object()
			if r.Op != "head" || r.Container != ref.Container || r.Blob != ref.Name || r.Try != i+1 || r.Err == nil {
				t.Errorf("%+v", r)
			}
			waits += r.Wait
		}
		if n.retries[0].Wait != time.Minute || n.retries[1].Wait > time.Second || time.Since(started) != waits {
			t.Errorf("the waits were %v and %v, and all took %v", n.retries[0].Wait, n.retries[1].Wait, time.Since(started))
		}
		if !errors.Is(n.retries[1].Err, io.EOF) || n.requests[1].Err == nil || n.requests[1].Status != 0 {
			t.Errorf("%v; %+v", n.retries[1].Err, n.requests[1])
		}
	})
}

func TestObserverIsToldOfCommitsAndConflicts(t *testing.T) {
	observed(t, func() *emulator.Server { return emulator.New(emulator.WithLatency(time.Second)) }, func(t *testing.T, v *Vault, _ *emulator.Server, n *notes) {
		plan := plantest.Small()
		must(t, v.Create(t.Context(), plan))
		if c := n.commits; len(c) != 1 || c[0] != (Commit{"Create", plan.ID, 5 * time.Second}) {
			t.Errorf("after Create: %+v", c)
		}
		first, err := v.Read(t.Context(), plan.ID)
		must(t, err)
		second, err := v.Read(t.Context(), plan.ID)
		must(t, err)
		first.State.Status, second.State.Status = workflow.Running, workflow.Running
		second.State.Start = time.Now() // the very same update again would be taken for a repetition
		must(t, v.UpdatePlan(t.Context(), first))
		first.Blocks[0].State.Status = workflow.Running
		must(t, v.UpdateBlock(t.Context(), first.Blocks[0]))
		if err := v.UpdatePlan(t.Context(), second); !errors.Is(err, storage.ErrConflict) {
			t.Error(err)
		}
		again := plantest.Small()
		again.ID = plan.ID
		if err := v.Create(t.Context(), again); !errors.Is(err, storage.ErrExists) {
			t.Error(err)
		}
		if err := v.UpdatePlan(t.Context(), nil); err == nil {
			t.Error("nil was taken")
		}
		if err := v.Delete(t.Context(), workflow.NewV7()); !errors.Is(err, storage.ErrNotFound) {
			t.Error(err)
		}
		must(t, v.Delete(t.Context(), plan.ID))
		var ops []string
		for _, c := range n.commits {
			ops = append(ops, c.Op)
			if c.Plan != plan.ID || c.Took < time.Second {
				t.Errorf("%+v", c)
			}
		}
		if !slices.Equal(ops, []string{"Create", "UpdatePlan", "UpdateBlock", "Delete"}) {
			t.Errorf("commits: %q", ops)
		}
		if len(n.conflicts) != 2 || n.conflicts[0].Op != "UpdatePlan" || n.conflicts[1].Op != "Create" {
			t.Fatalf("conflicts: %+v", n.conflicts)
		}
		for i, want := range []error{storage.ErrConflict, storage.ErrExists} {
			if c := n.conflicts[i]; c.Plan != plan.ID || !errors.Is(c.Err, want) {
				t.Errorf("%+v", c)
			}
		}
	})
}

func TestObserverIsToldOfRepairs(t *testing.T) {
	observed(t, newServer, func(t *testing.T, v *Vault, s *emulator.Server, n *notes) {
		plan := plantest.Small()
		must(t, v.Create(t.Context(), plan))
		ref := v.prefix.plan(plan.ID).object()
		s.Remove(ref.Container, ref.Name)
		time.Sleep(24 * time.Hour)
		report, err := v.Recover(t.Context(), RecoverOptions{DryRun: true})
		must(t, err)
		if len(report.Plans) != 1 || len(n.repairs) != 1 || n.repairs[0] != report.Plans[0] || n.repairs[0].Did != "" {
			t.Errorf("%+v was told of, %+v reported", n.repairs, report.Plans)
		}
		must(t, v.Recovery(t.Context()))
		if len(n.repairs) != 2 || n.repairs[1].ID != plan.ID || n.repairs[1].Found == "" || n.repairs[1].Did == "" || n.repairs[1].Err != nil {
			t.Errorf("%+v", n.repairs)
		}
		must(t, v.Recovery(t.Context()))
		if len(n.repairs) != 2 {
			t.Errorf("a sound vault was repaired: %+v", n.repairs)
		}
	})
}

// logged returns what a log observer of a level writes for the given calls.
func logged(level slog.Level, tell func(o Observer)) string {
	var b bytes.Buffer
	tell(LogObserver(slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{Level: level}))))
	return b.String()
}

func TestLogObserverWritesWhatItIsTold(t *testing.T) {
	id := uuid.MustParse("019b7c5a-1c80-7000-8000-00000000000a")
	u, err := url.Parse("https://account.blob.core.windows.net/prod-2026-01-02/open/x?sv=1&sig=SECRET")
	must(t, err)
	failed := errors.New("it failed")
	for _, test := range []struct {
		what  string
		level string
		tell  func(o Observer)
		want  []string
	}{
		{"request", "DEBUG", func(o Observer) {
			o.Request(Request{Op: "put", Container: "prod-2026-01-02", Blob: "open/x", Method: "PUT", URL: u, Status: 503, RequestID: "r-1", Took: time.Second, Err: failed})
		}, []string{"msg=request", "op=put", "container=prod-2026-01-02", "blob=open/x", "status=503", "r-1", "took=1s", "it failed"}},
		{"retry", "WARN", func(o Observer) { o.Retry(Retried{"put", "prod-2026-01-02", "open/x", 3, time.Minute, failed}) }, []string{"msg=retry", "op=put", "container=prod-2026-01-02", "blob=open/x", "try=3", "wait=1m0s", "it failed"}},
		{"commit", "INFO", func(o Observer) { o.Commit(Commit{"Create", id, time.Second}) }, []string{"msg=commit", "op=Create", "plan=" + id.String(), "took=1s"}},
		{"conflict", "WARN", func(o Observer) { o.Conflict(Conflict{"Create", id, failed}) }, []string{"msg=conflict", "op=Create", "plan=" + id.String(), "it failed"}},
		{"repair", "WARN", func(o Observer) { o.Repair(RecoveredPlan{id, "half", "removed", failed}) }, []string{"msg=repair", "plan=" + id.String(), "found=half", "did=removed", "it failed"}},
	} {
		text := logged(slog.LevelDebug, test.tell)
		if strings.Count(text, "\n") != 1 || !strings.Contains(text, "level="+test.level+" ") {
			t.Errorf("%s: %q", test.what, text)
		}
		for _, want := range test.want {
			if !strings.Contains(text, want) {
				t.Errorf("%s: there is no %q in %q", test.what, want, text)
			}
		}
		if strings.Contains(text, "SECRET") || strings.Contains(text, "https:") {
			t.Errorf("%s: it has the URL: %q", test.what, text)
		}
		if text := logged(slog.LevelError, test.tell); text != "" {
			t.Errorf("%s: it is an error: %q", test.what, text)
		}
	}
}

// TestLogsHaveNoSecrets makes requests fail in every way, with a connection string that contains a signature.
func TestLogsHaveNoSecrets(t *testing.T) {
	for what, fail := range map[string]func(*http.Request) (*http.Response, error){
		"broken connection": func(req *http.Request) (*http.Response, error) {
			return nil, &url.Error{Op: "Head", URL: req.URL.String(), Err: io.EOF} // as net/http has it
		},
		"refusal": func(req *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusForbidden, Header: http.Header{}, Body: http.NoBody, Request: req}, nil
		},
		"busy": func(req *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusServiceUnavailable, Header: http.Header{}, Body: http.NoBody, Request: req}, nil
		},
	} {
		t.Run(what, func(t *testing.T) {
			var returned error
			text := logged(slog.LevelDebug, func(o Observer) {
				v, err := NewFromConnectionString(t.Context(), "prod", "BlobEndpoint=https://account.blob.core.windows.net;SharedAccessSignature=sv=2024-01-01&sig=SECRET",
					nil, WithTransport(transportFunc(fail)), WithObserver(o), WithRetry(Retry{1, 1, 1000 * time.Microsecond}))
				must(t, err)
				_, returned = v.Exists(t.Context(), workflow.NewV7())
			})
			if text == "" || returned == nil {
				t.Fatalf("%q, %v", text, returned)
			}
			if strings.Contains(text, "SECRET") || strings.Contains(text, "https:") {
				t.Errorf("the log has the URL: %s", strings.SplitAfter(text, "\n")[0])
			}
			if strings.Contains(returned.Error(), "SECRET") {
				t.Errorf("the error has the signature: %v", returned)
			}
		})
	}
}

func TestTeeTellsAll(t *testing.T) {
	first, second := new(notes), new(notes)
	var order []string
	o := Tee(
		Observer{},
		first.observer(),
		Observer{Commit: func(Commit) { order = append(order, "a") }},
		second.observer(),
		Observer{Commit: func(Commit) { order = append(order, "b") }},
	)
	o.Request(Request{Op: "put"})
	o.Retry(Retried{Op: "get"})
	o.Commit(Commit{Op: "Create"})
	o.Conflict(Conflict{Op: "Delete"})
	o.Repair(RecoveredPlan{Found: "half"})
	for i, n := range []*notes{first, second} {
		if len(n.requests) != 1 || n.requests[0].Op != "put" || len(n.retries) != 1 || n.retries[0].Op != "get" ||
			len(n.commits) != 1 || n.commits[0].Op != "Create" || len(n.conflicts) != 1 || n.conflicts[0].Op != "Delete" ||
			len(n.repairs) != 1 || n.repairs[0].Found != "half" {
			t.Errorf("observer %d was told %+v", i, n.requests)
		}
	}
	if !slices.Equal(order, []string{"a", "b"}) {
		t.Errorf("the order was %q", order)
	}
	o = Tee()
	o.Request(Request{})
	o.Repair(RecoveredPlan{})
}

// TestVaultWithoutObserver makes calls that an observer would see, without one.
func TestVaultWithoutObserver(t *testing.T) {
	for _, observer := range []Observer{{}, Tee(), Tee(Observer{})} {
		inTime(t, newServer, func(s *emulator.Server) []Option {
			s.Inject(emulator.On(emulator.PutBlob).Nth(1).Do(emulator.LostAnswer()))
			return []Option{WithObserver(observer)}
		}, func(t *testing.T, v *Vault, _ *emulator.Server) {
			plan := plantest.Small()
			must(t, v.Create(t.Context(), plan))
			if err := v.Create(t.Context(), plan); !errors.Is(err, storage.ErrExists) {
				t.Error(err)
			}
			must(t, v.Recovery(t.Context()))
		})
	}
}
