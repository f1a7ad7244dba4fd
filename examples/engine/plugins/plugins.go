// Package plugins has the plugins of the example: run a command, call an HTTP endpoint, write a file, sleep. Each implements
// the engine's Plugin.
//
// An action may be run more than once, so each passes the action's ID on as the key to tell a repetition by: the command in
// its environment, the endpoint in a header, a file in each line that is added to it.
package plugins

import (
	"fmt"

	"github.com/planvault/azblob/plugins"
)

// permanent is a failure that another attempt would meet again.
func permanent(format string, args ...any) error {
	return &plugins.Error{Message: fmt.Sprintf(format, args...), Permanent: true}
}

// maxOutput is how much of what a command or an endpoint says is kept.
const maxOutput = 16 << 10

// tail is the end of a text that is too long to be kept.
type tail struct{ text []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.text = append(t.text, p...)
	if over := len(t.text) - maxOutput; over > 0 {
		t.text = append(t.text[:0], t.text[over:]...)
	}
	return len(p), nil
}
