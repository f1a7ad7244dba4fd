package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/internal/price"
)

func TestConfirm(t *testing.T) {
	c := change{doing: "purge", what: "5,000 plans", requests: price.Tally{azblob.ClassWrite: 5000, azblob.ClassOther: 30_000}}
	const said = "purge: 5,000 plans, about 35,000 requests, $0.041, in https://a.blob.core.windows.net, prefix p\n"
	const asked = said + "Go on? [y/N] "
	for _, test := range []struct {
		answer           string
		yes, interactive bool
		code             int
		stderr           string
	}{
		{"", true, false, exitDone, said},
		{"", false, false, exitUsage, said},
		{"y\n", false, false, exitUsage, said}, // nobody reads the question
		{"y\n", false, true, exitDone, asked},
		{"YES\r\n", false, true, exitDone, asked},
		{"\n", false, true, exitFailed, asked},
		{"n\n", false, true, exitFailed, asked},
		{"", false, true, exitFailed, asked},
	} {
		var stderr bytes.Buffer
		a := newApp(process{stdin: strings.NewReader(test.answer), stderr: &stderr, interactive: test.interactive})
		a.yes, a.places = test.yes, []string{"https://a.blob.core.windows.net, prefix p"}
		a.running.Store(true)
		err := a.confirm(t.Context(), c)
		if code := a.exitCode(t.Context(), err); code != test.code || stderr.String() != test.stderr {
			t.Errorf("%+v: exit code %d, %v\n%s", test, code, err, stderr.String())
		}
	}
}

// TestInterruptOfQuestion interrupts a question that nobody answers.
func TestInterruptOfQuestion(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	stdin, answers := io.Pipe()
	defer answers.Close()
	a := newApp(process{stdin: stdin, stderr: io.Discard, interactive: true})
	err := a.confirm(ctx, change{doing: "purge"})
	if code := a.exitCode(ctx, err); code != exitInterrupted || !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "nothing was changed") {
		t.Errorf("exit code %d, %v", code, err)
	}
}
