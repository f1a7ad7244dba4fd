// Package firsthour tries on an account what the vault relies on and only a real account can settle: how the service
// answers, mark by mark. It sends requests of its own, without the vault and without retries, because those hide what
// an answer looks like.
package firsthour

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

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
	// Prefix is what the names of the containers begin with. None may exist.
	Prefix string
	// Version is the x-ms-version to send. The default is that of the vault.
	Version string
	// Ramp lets probe 12 write up to [RampWrites] blobs, for up to a minute.
	Ramp bool
	// Wait waits by the service's clock. The default waits by this machine's.
	Wait func(ctx context.Context, d time.Duration) error
	// Begin is called before each probe, with its number, and Sent before each request, with its billing class, at
	// once from several goroutines. Both may be nil.
	Begin func(number int)
	Sent  func(class string)
}

// open returns what sends the requests of the run.
func (p *prober) open() (err error) {
	p.account, err = p.parse()
	if p.Transport == nil {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.MaxIdleConns, t.MaxIdleConnsPerHost = rampWorkers, rampWorkers
		stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		p.Transport = &http.Client{Transport: t, CheckRedirect: stay}
	}
	if p.Wait == nil {
		p.Wait = func(ctx context.Context, d time.Duration) error {
			sleep.For(ctx, d)
			return ctx.Err()
		}
	}
	sent := func(class string) {
		p.requests.Add(1)
		if p.Sent != nil {
			p.Sent(class)
		}
	}
	p.wire = wire{transport: p.Transport, login: &blob.Login{Account: p.account}, version: cmp.Or(p.Version, blob.Version), sent: sent}
	return err
}

// parse returns the account.
func (c Config) parse() (blob.Account, error) {
	switch {
	case c.ConnectionString != "":
		return blob.ParseConnectionString(c.ConnectionString)
	case c.Credential != nil:
		return blob.WithToken(c.Endpoint, c.Credential)
	}
	return blob.WithSignature(c.Endpoint, func(string) bool { return false })
}

// The verdicts about probes.
const (
	AsExpected = "as expected"
	Differs    = "differs"
	NotTried   = "not tried"
)

// Finding is what a probe found.
type Finding struct {
	Number   int    `json:"number"`
	Tried    string `json:"tried"`
	Expected string `json:"expected"`
	Breaks   string `json:"breaks"` // in the vault, if it differs
	Verdict  string `json:"verdict"`
	// Seen is all that was seen, in the order of the requests.
	Seen []Sight `json:"seen,omitempty"`
	// NotTried is what could not be tried, each part with the reason.
	NotTried []Part `json:"notTried,omitempty"`
	Requests int    `json:"requests"`
}

// Sight is what was seen of a part of a probe.
type Sight struct {
	What     string `json:"what"`
	Seen     string `json:"seen"`
	Expected string `json:"expected"`
	Differs  bool   `json:"differs,omitempty"`
}

// Part is a part of a probe that could not be tried. What is empty if it is the whole.
type Part struct {
	What string `json:"what,omitempty"`
	Why  string `json:"why"`
}

// Summary says in a line what was seen and what could not be tried. With differences alone, it leaves out what is as
// expected.
func (f Finding) Summary(differencesAlone bool) string {
	var parts []string
	for i := 0; i < len(f.Seen); {
		s := f.Seen[i]
		whats := []string{s.What} // that saw the same
		for i++; i < len(f.Seen) && f.Seen[i].Seen == s.Seen && f.Seen[i].Differs == s.Differs; i++ {
			whats = append(whats, f.Seen[i].What)
		}
		switch {
		case s.Differs && !differencesAlone:
			parts = append(parts, fmt.Sprintf("%s: %s, NOT %s", strings.Join(whats, ", "), s.Seen, s.Expected))
		case s.Differs, !differencesAlone:
			parts = append(parts, strings.Join(whats, ", ")+": "+s.Seen)
		}
	}
	for _, p := range f.NotTried {
		switch {
		case f.Verdict == NotTried:
			parts = append(parts, strings.TrimPrefix(p.What+": "+p.Why, ": "))
		case !differencesAlone:
			parts = append(parts, p.What+" not tried: "+p.Why)
		}
	}
	return strings.Join(parts, "; ")
}

// Count is the number of probes.
func Count() int { return len(probes()) }

// Run makes all probes and reports what each finds. In the end, and when ctx ends, it removes the containers that it
// made. The error names those that it could not remove.
func Run(ctx context.Context, c Config, report func(Finding) error) (err error) {
	p := &prober{Config: c}
	if err := p.open(); err != nil {
		return fmt.Errorf("first hour: %w", err)
	}
	if err := p.unused(ctx); err != nil {
		return fmt.Errorf("first hour: %w", err)
	}
	defer func() { err = errors.Join(err, p.clear(context.WithoutCancel(ctx))) }()
	if p.container, err = p.create(ctx); err != nil {
		return fmt.Errorf("first hour: %w", err)
	}
	for _, probe := range probes() {
		if c.Begin != nil {
			c.Begin(probe.Number)
		}
		x := &trial{prober: p, wire: p.wire, Finding: probe.Finding}
		before := p.requests.Load()
		probe.try(ctx, x)
		x.Requests = int(p.requests.Load() - before)
		if ctx.Err() != nil {
			return fmt.Errorf("first hour: interrupted in probe %d: %w", probe.Number, ctx.Err())
		}
		x.judge()
		if err := report(x.Finding); err != nil {
			return err
		}
	}
	return nil
}

// prober is a run of the probes.
type prober struct {
	Config
	account   blob.Account
	wire      wire
	container string // of the probes that need none of their own
	requests  atomic.Int64
	made      []string // containers
}

// unused returns an error if the prefix has containers.
func (p *prober) unused(ctx context.Context) error {
	names, err := p.listed(ctx)
	if err == nil && len(names) > 0 {
		err = fmt.Errorf("container %s exists already: choose another prefix", names[0])
	}
	return err
}

// listed returns the containers of the prefix.
func (p *prober) listed(ctx context.Context) ([]string, error) {
	page, err := p.wire.list(ctx, "?comp=list&prefix="+p.Prefix+"-")
	if err != nil {
		return nil, fmt.Errorf("list the containers of prefix %s by version %s: %w", p.Prefix, p.wire.version, err)
	}
	return page.names(), nil
}

// create makes a container with the name of a day, each time that of the next one.
func (p *prober) create(ctx context.Context) (name string, err error) {
	name = p.Prefix + "-" + time.Now().UTC().AddDate(0, 0, len(p.made)).Format(time.DateOnly)
	p.made = append(p.made, name)
	a := p.wire.send(ctx, "PUT", name+"?restype=container", nil)
	if a.is("201") {
		return name, nil
	}
	if a.err == nil && a.status < http.StatusInternalServerError {
		p.made = p.made[:len(p.made)-1] // it was refused
	}
	return name, fmt.Errorf("create container %s: %s", name, a)
}

// Limits of the removal: how often a container is tried before it is left, the time between, and the whole time.
const (
	clearTries = 4
	clearPause = time.Second
	ClearLimit = time.Minute
)

// clear removes the containers that were made.
func (p *prober) clear(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, ClearLimit)
	defer cancel()
	var errs []error
	for _, name := range p.made {
		var a answer
		for try := range clearTries {
			if try > 0 {
				_ = p.Wait(ctx, clearPause)
			}
			a = p.wire.send(ctx, "DELETE", name+"?restype=container", nil)
			if a.is("412 LeaseIdMissing") {
				p.wire.send(ctx, "PUT", name+"?restype=container&comp=lease", nil,
					"X-Ms-Lease-Action", "break", "X-Ms-Lease-Break-Period", "0")
			}
			if a.is(gone) {
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

// LeftError names the containers that a run could not remove.
type LeftError struct{ error }

// gone is the answer to the delete of a container that does not stay.
const gone = "202 or 404 or 409 ContainerBeingDeleted"

// trial is a probe that is being made.
type trial struct {
	*prober
	wire wire
	Finding
}

// note adds what was seen of a part.
func (x *trial) note(what, seen, expected string, ok bool) {
	x.Seen = append(x.Seen, Sight{what, seen, expected, !ok})
}

// see adds an answer, which should have one of some outcomes.
func (x *trial) see(what string, a answer, outcomes string) {
	x.note(what, a.String(), outcomes, a.is(outcomes))
}

// seeEach adds the answers to requests by several methods, which should all have one of some outcomes.
func (x *trial) seeEach(ctx context.Context, what string, w wire, methods []string, target, outcomes string, headers ...string) {
	answers := each(1, len(methods), func(i int) answer { return w.send(ctx, methods[i], target, nil, headers...) })
	x.note(what, byAnswer(methods, answers), outcomes, all(answers, outcomes))
}

// must adds an answer only if it is not as it should be: what follows may tell nothing.
func (x *trial) must(what string, a answer, outcomes string) {
	if !a.is(outcomes) {
		x.see(what, a, outcomes)
	}
}

// unchanged adds whether a blob has a body.
func (x *trial) unchanged(ctx context.Context, what, target string, body []byte) {
	a := x.wire.send(ctx, "GET", target, nil)
	seen := a.String()
	if a.is("200") {
		seen = map[bool]string{true: "unchanged", false: "has changed"}[bytes.Equal(a.body, body)]
	}
	x.note(what, seen, "unchanged", seen == "unchanged")
}

// fresh makes a container, and adds the failure if there is one.
func (x *trial) fresh(ctx context.Context) (name string, ok bool) {
	name, err := x.create(ctx)
	if err != nil {
		x.note("PUT", err.Error(), "201", false)
	}
	return name, err == nil
}

// cannot adds what can't be tried, and why.
func (x *trial) cannot(what, why string) { x.NotTried = append(x.NotTried, Part{what, why}) }

// judge sets the verdict.
func (x *trial) judge() {
	switch {
	case slices.ContainsFunc(x.Seen, func(s Sight) bool { return s.Differs }):
		x.Verdict = Differs
	case len(x.Seen) == 0:
		x.Verdict = NotTried
	default:
		x.Verdict = AsExpected
	}
}

// put stores a blob.
func (x *trial) put(ctx context.Context, target string, body []byte, headers ...string) answer {
	return x.wire.send(ctx, "PUT", target, body, headers...)
}

// atOnce is how many requests are under way at a time.
const atOnce = 16

// each makes requests, a number of them at a time, and returns their answers.
func each(atOnce, n int, send func(i int) answer) []answer {
	answers := make([]answer, n)
	next := make(chan int)
	var workers sync.WaitGroup
	for range min(n, atOnce) {
		workers.Go(func() {
			for i := range next {
				answers[i] = send(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	workers.Wait()
	return answers
}

// tally counts answers, such as "15 × 201, 1 × 404 ContainerNotFound", or just "201" if all are alike.
func tally(answers []answer) string {
	counts := map[string]int{}
	for _, a := range answers {
		counts[a.String()]++
	}
	var parts []string
	for _, text := range slices.Sorted(maps.Keys(counts)) {
		if len(counts) == 1 {
			return text
		}
		parts = append(parts, fmt.Sprintf("%d × %s", counts[text], text))
	}
	return strings.Join(parts, ", ")
}

// byAnswer says which of several requests had which answer, or just the answer if all are alike.
func byAnswer(of []string, answers []answer) string {
	var texts, parts []string
	whose := map[string][]string{}
	for i, a := range answers {
		text := a.marks()
		if whose[text] == nil {
			texts = append(texts, text)
		}
		whose[text] = append(whose[text], of[i])
	}
	if len(texts) == 1 {
		return texts[0]
	}
	for _, text := range texts {
		parts = append(parts, strings.Join(whose[text], " and ")+" "+text)
	}
	return strings.Join(parts, ", ")
}

// all reports whether each answer has one of some outcomes.
func all(answers []answer, outcomes string) bool {
	return !slices.ContainsFunc(answers, func(a answer) bool { return !a.is(outcomes) })
}
