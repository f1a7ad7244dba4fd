package emulator

import "context"

// Gate decides when requests take effect. See [Transport.SetGate], and the package emulator/schedule for a
// Gate that tries orders of requests.
type Gate interface {
	// Enter is called before a request takes effect and may block. If Enter returns an error, the request
	// never takes effect and fails with that error. A Gate that blocks should return the error of ctx, the
	// request's context, when ctx ends.
	Enter(ctx context.Context, r Request) error

	// Leave is called once the request has taken effect or was stopped by a fault, before the client learns
	// of the outcome. r contains the outcome.
	Leave(r Request)
}

// SetGate sets the gate for the requests of this transport. A nil gate removes it. Requests that have already
// reached a gate stay with that gate.
func (t *Transport) SetGate(g Gate) {
	t.client.mu.Lock()
	defer t.client.mu.Unlock()
	t.client.gate = g
}
