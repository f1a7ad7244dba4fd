// Package firsthour tries on an account what the vault relies on and only a real account can settle: how the service
// answers, mark by mark. It sends requests of its own, without the vault and without retries, because those hide what
// an answer looks like.
package firsthour

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/internal/sleep"
)

// Config says where to probe.
type Config struct {
	// ConnectionString is that of the account. Without it, Endpoint has a shared access signature or goes with a
	// Credential.
	ConnectionString, Endpoint string
	Credential                 azcore.TokenCredential
	// Transport sends the requests, without following redirects. By default it is an HTTP client.
	Transport policy.Transporter
	// Version is the x-ms-version to send. The default is that of the vault.
	Version string
	// Ramp lets probe 12 write up to [RampWrites] blobs, for up to [RampTime].
	Ramp bool
	// Wait waits by the service's clock. The default waits by this machine's.
	Wait func(ctx context.Context, d time.Duration) error
	// Sent is called before each request, with its billing class, at once from several goroutines. It may be nil.
	Sent func(class string)
	// Swept is called for each run whose containers were found, by their prefix. left is why some stay, or nil. It may be
	// nil.
	Swept func(prefix string, left error)
}

// ofRun matches the name of a container of a run. The first group is the prefix of the run.
var ofRun = regexp.MustCompile(`^(first-hour-[0-9a-f]{8})-[0-9]{4}-[0-9]{2}-[0-9]{2}$`)

// Made reports whether a vault's prefix is that of a run, whose containers have the names of days. The run is at work, or
// was killed: the next one removes what it left.
func Made(prefix string) bool { return ofRun.MatchString(prefix + "-2006-01-02") }

// account returns the account and what authorizes requests to it.
func (c Config) account() (blob.Account, error) {
	switch {
	case c.ConnectionString != "":
		return blob.ParseConnectionString(c.ConnectionString)
	case c.Credential != nil:
		return blob.WithToken(c.Endpoint, c.Credential)
	}
	return blob.WithSignature(c.Endpoint, func(string) bool { return false })
}

// The verdicts about probes and their parts.
const (
	AsExpected = "as expected"
	Differs    = "differs"
	NotTried   = "not tried"
)

// Finding is what a probe found.
type Finding struct {
	Number   int    `json:"number" help:"the number of the probe"`
	Tried    string `json:"tried" help:"what was tried"`
	Expected string `json:"expected" help:"what was expected"`
	Breaks   string `json:"breaks" help:"what in the vault depends on it"`
	Verdict  string `json:"verdict" help:"how the service answered: as expected, different, or not tried"`
	Parts    []Part `json:"parts" help:"the requests of the probe"`
	Requests int    `json:"requests" help:"how many requests were sent"`
}

// Part is a part of a probe.
type Part struct {
	What     string `json:"what" help:"what was sent"`
	Verdict  string `json:"verdict" help:"how the service answered"`
	Seen     string `json:"seen" help:"the answer, or why it was not tried"`
	Expected string `json:"expected,omitempty" help:"the answer that was expected"`
}

// Summary describes the parts in a line. Alone leaves out those that have another verdict than the probe.
func (f Finding) Summary(alone bool) string {
	var texts []string
	for i := 0; i < len(f.Parts); {
		p := f.Parts[i]
		what := p.What // and of the parts in a row that have the same to say
		for i++; i < len(f.Parts) && f.Parts[i].Seen == p.Seen && f.Parts[i].Verdict == p.Verdict; i++ {
			what += ", " + f.Parts[i].What
		}
		switch {
		case alone && p.Verdict != f.Verdict:
		case p.Verdict == NotTried && f.Verdict != NotTried:
			texts = append(texts, what+" not tried: "+p.Seen)
		case p.Verdict == Differs && !alone:
			texts = append(texts, what+": "+p.Seen+", expected "+p.Expected)
		default:
			texts = append(texts, what+": "+p.Seen)
		}
	}
	return strings.Join(texts, "; ")
}

// Count is the number of probes.
func Count() int { return len(probes) }

// Run removes what killed runs have left, makes all probes and reports what each finds. Its containers have a prefix of
// their own. In the end, and when ctx ends, it removes them. The error names those that it could not remove.
func Run(ctx context.Context, c Config, report func(Finding) error) (err error) {
	id := uuid.New()
	r := &run{Config: c, prefix: fmt.Sprintf("first-hour-%x", id[:4]), lease: []string{"X-Ms-Lease-Id", id.String()}}
	defer func() {
		if err = errors.Join(err, r.clear(ctx)); err != nil {
			err = fmt.Errorf("first hour: %w", err)
		}
	}()
	if r.wire, err = r.open(ctx); err != nil {
		return err
	}
	if err := r.sweep(); err != nil {
		return err
	}
	if err := r.create(); err != nil {
		return err
	}
	r.container = r.newest()
	defer r.hold()()
	for i, probe := range probes {
		before := r.requests.Load()
		x := &trial{run: r, verdict: NotTried}
		probe.try(x)
		if ctx.Err() != nil {
			return fmt.Errorf("interrupted in probe %d: %w", i+1, ctx.Err())
		}
		f := Finding{i + 1, probe.tried, probe.expected, probe.breaks, x.verdict, x.parts, int(r.requests.Load() - before)}
		if err := report(f); err != nil {
			return err
		}
	}
	return nil
}

// run is a run of the probes.
type run struct {
	Config
	wire
	prefix    string
	container string   // of the probes that need none of their own
	lease     []string // the header that names the run's leases
	requests  atomic.Int64
	made      []string // containers
}

// open returns what sends the requests of the run.
func (r *run) open(ctx context.Context) (wire, error) {
	account, err := r.account()
	if r.Wait == nil {
		r.Wait = func(ctx context.Context, d time.Duration) error {
			sleep.For(ctx, d)
			return ctx.Err()
		}
	}
	login := account.Login(blob.Options{ClientOptions: policy.ClientOptions{Transport: r.Transport}, Concurrency: rampWorkers})
	return wire{ctx: ctx, login: login, version: cmp.Or(r.Version, blob.Version), sent: func(class blob.Class) {
		r.requests.Add(1)
		if r.Sent != nil {
			r.Sent(string(class))
		}
	}}, err
}

// sweep removes the containers of killed runs. A run that is at work has a lease of its first container, which ends soon
// after a kill.
func (r *run) sweep() error {
	_, found, err := r.list("?comp=list&include=metadata&prefix=first-hour-")
	if err != nil {
		return fmt.Errorf("list containers by version %s: %w; planvault doctor says what to change", r.version, err)
	}
	left, waited := map[string]error{}, false
	for _, c := range found { // of each run, the first container comes first
		name := ofRun.FindStringSubmatch(c.Name)
		if name == nil || c.Metadata[mark] == "" || left[name[1]] != nil {
			continue
		}
		a := r.send("DELETE", c.Name+ofContainer, nil)
		if a.is("412") && !waited {
			waited = true
			if err := r.Wait(r.ctx, leaseTime+time.Second); err != nil {
				return err
			}
			a = r.send("DELETE", c.Name+ofContainer, nil)
		}
		if left[name[1]] = nil; !a.is(gone) {
			left[name[1]] = errors.New(a.String())
		}
	}
	for _, prefix := range slices.Sorted(maps.Keys(left)) {
		if r.Swept != nil {
			r.Swept(prefix, left[prefix])
		}
	}
	return nil
}

// leaseTime is how long the lease lasts that shows that a run is at work.
const leaseTime = time.Minute

// hold takes the lease and renews it until the returned function is called.
func (r *run) hold() (end func()) {
	const renewals = 3 // in the time of the lease
	w, target := r.wire, r.container+ofContainer+"&comp=lease"
	var cancel context.CancelFunc
	w.ctx, cancel = context.WithCancel(w.ctx)
	w.send("PUT", target, nil, "X-Ms-Lease-Action", "acquire", "X-Ms-Lease-Duration", fmt.Sprint(leaseTime.Seconds()), "X-Ms-Proposed-Lease-Id", r.lease[1])
	var renewing sync.WaitGroup
	renewing.Go(func() {
		for sleep.For(w.ctx, leaseTime/renewals) {
			w.send("PUT", target, nil, append([]string{"X-Ms-Lease-Action", "renew"}, r.lease...)...)
		}
	})
	return func() {
		cancel()
		renewing.Wait()
	}
}

// ofContainer makes a request one about a container.
const ofContainer = "?restype=container"

// mark is the metadata of the containers of runs, which no other container has, whatever its name.
const mark = "firsthour"

// create makes a container with the name of a day, each time that of the next one.
func (r *run) create() error {
	r.made = append(r.made, r.prefix+"-"+time.Now().UTC().AddDate(0, 0, len(r.made)).Format(time.DateOnly))
	name := r.newest()
	a := r.send("PUT", name+ofContainer, nil, "X-Ms-Meta-"+mark, "1")
	if a.is("201") {
		return nil
	}
	if a.err == nil && a.status < http.StatusInternalServerError {
		r.made = r.made[:len(r.made)-1] // it was refused
	}
	return fmt.Errorf("create container %s: %s", name, a)
}

// newest returns the container that was made last.
func (r *run) newest() string { return r.made[len(r.made)-1] }

// Limits of the removal: the time before a container is tried again, and the whole time.
const (
	clearPause = time.Second
	ClearLimit = time.Minute
)

// gone are the answers to the removal of a container that is gone, or soon will be.
const gone = "202 or 404 or 409 ContainerBeingDeleted"

// LeftError names the containers that a run could not remove.
type LeftError struct{ error }

// clear removes the containers that were made, even if ctx has ended.
func (r *run) clear(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), ClearLimit)
	defer cancel()
	r.ctx = ctx
	var errs []error
	if r.container != "" {
		r.send("PUT", r.container+ofContainer+"&comp=lease", nil, append([]string{"X-Ms-Lease-Action", "release"}, r.lease...)...)
	}
	for _, name := range r.made {
		var a answer
		for try, headers := range [...][]string{nil, r.lease, nil, nil} {
			if try > 0 {
				_ = r.Wait(ctx, clearPause)
			}
			if a = r.send("DELETE", name+ofContainer, nil, headers...); a.is(gone) {
				break
			}
		}
		if !a.is(gone) {
			errs = append(errs, fmt.Errorf("container %s is left, delete it by hand: %s", name, a))
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return &LeftError{errors.Join(errs...)}
}

// trial is a probe that is being made.
type trial struct {
	*run
	verdict string
	parts   []Part
}

// note adds what was seen of a part, and whether it is as expected.
func (x *trial) note(what, seen, expected string, ok bool) {
	verdict := map[bool]string{true: AsExpected, false: Differs}[ok]
	x.parts = append(x.parts, Part{what, verdict, seen, expected})
	if x.verdict != Differs {
		x.verdict = verdict
	}
}

// skip adds a part that can't be tried, and why.
func (x *trial) skip(what, why string) { x.parts = append(x.parts, Part{what, NotTried, why, ""}) }

// see adds an answer, which should have one of some outcomes.
func (x *trial) see(what string, a answer, outcomes string) {
	x.note(what, a.String(), outcomes, a.is(outcomes))
}

// ask sends a request without a body and adds the answer.
func (x *trial) ask(what, outcomes, method, target string, headers ...string) {
	x.see(what, x.send(method, target, nil, headers...), outcomes)
}

// askBy sends a request by several methods, which should all have one of some outcomes.
func (x *trial) askBy(methods []string, what string, w wire, target, outcomes string, headers ...string) {
	if w.cannot != "" {
		x.skip(what, w.cannot)
		return
	}
	var texts []string
	whose, ok := map[string]string{}, true
	for _, method := range methods {
		a := w.send(method, target, nil, headers...)
		text := a.String()
		if !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
		whose[text] = strings.TrimPrefix(whose[text]+" and "+method, " and ")
		ok = ok && a.is(outcomes)
	}
	for i, text := range texts {
		if len(texts) > 1 {
			texts[i] = whose[text] + " " + text
		}
	}
	x.note(what, strings.Join(texts, ", "), outcomes, ok)
}

// put stores a blob. It adds only a failure: what follows may tell nothing.
func (x *trial) put(target, body string, headers ...string) {
	if a := x.send("PUT", target, []byte(body), headers...); !a.is("201") {
		x.see("PUT", a, "201")
	}
}

// unchanged adds whether a blob has a body.
func (x *trial) unchanged(what, target, body string) {
	a := x.send("GET", target, nil)
	if a.is("200") {
		a.text = map[bool]string{true: "unchanged", false: "has changed"}[string(a.body) == body]
	}
	x.note(what, a.String(), "unchanged", a.text == "unchanged")
}

// fresh makes a container, and adds the failure if there is one.
func (x *trial) fresh() bool {
	err := x.create()
	if err != nil {
		x.note("PUT", err.Error(), "201", false)
	}
	return err == nil
}
