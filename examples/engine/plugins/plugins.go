// Package plugins holds the plugins of the example: run a command, call an HTTP endpoint, write a file,
// sleep.
//
// An action may run more than once. Each plugin therefore passes the action's ID on as an idempotency key: to
// the command in its environment, to the endpoint in a header, to a file in each appended line.
package plugins

import (
	"fmt"

	"github.com/planvault/azblob/plugins"
)

// permanent returns a failure that is not retried.
func permanent(format string, args ...any) error {
	return &plugins.Error{Message: fmt.Sprintf(format, args...), Permanent: true}
}

// maxOutput is how much output of a command or an endpoint is kept, in bytes.
const maxOutput = 16 << 10

// tail keeps the end of what is written to it.
type tail struct{ text []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.text = append(t.text, p...)
	if over := len(t.text) - maxOutput; over > 0 {
		t.text = append(t.text[:0], t.text[over:]...)
	}
	return len(p), nil
}
