package conformance

import (
	"net/http"
	"sync"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/planvault/azblob/emulator"
)

// Faulty is a connection on which requests meet temporary faults. The same request sent again is likely to succeed.
type Faulty struct {
	*emulator.Transport
	rules []*emulator.Rule
	late  sync.WaitGroup // goroutines that deliver copies
}

// NewFaulty returns a connection on which each request meets a fault with the given probability.
func NewFaulty(to policy.Transporter, seed uint64, chance float64) *Faulty {
	// The vault reports two damaged answers in a row as permanent damage, so only the first read of a blob is damaged.
	// The copy of a request without a condition could undo later requests. No network delays a request beyond its
	// connection, so such a copy arrives before the answer.
	var read sync.Map
	first := func(r emulator.Request) bool {
		_, again := read.LoadOrStore(r.Path(), true)
		return !again
	}
	conditional := func(r emulator.Request) bool { return r.IfMatch != "" || r.IfNoneMatch != "" }
	f := &Faulty{Transport: emulator.Proxy(to, emulator.Options{NoLog: true}).Transport(), rules: []*emulator.Rule{
		emulator.Random(chance, seed,
			emulator.LostRequest(), emulator.LostAnswer(), emulator.Reset(), emulator.Reset().Applied(),
			emulator.Answer(500, "InternalError"), emulator.Answer(500, "InternalError").Applied(),
			emulator.Answer(503, "ServerBusy"), emulator.Answer(503, "OperationTimedOut").Applied(),
			emulator.Answer(409, "ContainerBeingDeleted"), emulator.CutBody(20), emulator.CutBody(200),
		),
		emulator.On(emulator.GetBlob).Where(first).Chance(chance, seed+1).Do(emulator.FlipBit(1000)),
		emulator.On(emulator.PutBlob, emulator.DeleteBlob).Chance(chance/4, seed+2).Do(emulator.Duplicate(0)),
		emulator.Random(chance/4, seed+3, emulator.Duplicate(1), emulator.LostRequest().Late(1)).Where(conditional),
	}}
	f.Inject(f.rules...)
	return f
}

// Do sends a request. Late copies of earlier ones arrive while the caller goes on.
func (f *Faulty) Do(req *http.Request) (*http.Response, error) {
	resp, err := f.Transport.Do(req)
	f.late.Go(func() { f.Server().DeliverLate() })
	return resp, err
}

// Faults returns the number of faults so far.
func (f *Faulty) Faults() (n int) {
	for _, r := range f.rules {
		n += r.Fired()
	}
	return n
}

// Wait waits for late copies of requests.
func (f *Faulty) Wait() { f.late.Wait() }
