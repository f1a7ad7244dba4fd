package emulator

import "context"

// Gate lets a scheduler decide when requests take effect. See [Transport.SetGate].
type Gate interface {
	// Enter is called before a request takes effect, and may block until it is
	// the request's turn. If it returns an error the request never takes effect
	// and fails with that error: a gate that waits should watch ctx, which is the
	// request's, and return its error.
	Enter(ctx context.Context, r Request) error

	// Leave is called when a request that entered has taken effect, or was
	// stopped by a fault, before the client learns of it. The request has its
	// outcome now.
	Leave(r Request)
}

// SetGate puts a gate before the requests of this transport; nil takes it away.
// Requests under way keep the gate that they came to.
func (t *Transport) SetGate(g Gate) {
	t.client.mu.Lock()
	defer t.client.mu.Unlock()
	t.client.gate = g
}
