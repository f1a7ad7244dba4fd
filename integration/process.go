package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync/atomic"
	"time"
)

// process is another process of this program. It gets an order on standard input and reports events on
// standard output, as JSON.
type process struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout io.Reader
	stderr bytes.Buffer
	killed atomic.Bool
}

// startProcess starts a process and sends it its order.
func startProcess(o order) (*process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.Command(program, soakClientFlag, fmt.Sprint(o.Client))}
	p.cmd.Stderr = &p.stderr
	stdin, errIn := p.cmd.StdinPipe()
	stdout, errOut := p.cmd.StdoutPipe()
	if err := errors.Join(errIn, errOut); err != nil {
		return nil, err
	}
	p.stdin, p.stdout = stdin, stdout
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	_ = p.send(o) // if it fails, the process has ended, and wait says why
	return p, nil
}

// send writes a message to the standard input of the process.
func (p *process) send(message any) error { return json.NewEncoder(p.stdin).Encode(message) }

// patience is how long a process may take to end.
const patience = 3 * time.Minute

// finish lets the process end what it does and exit. A process that hangs is killed, which is a failure.
func (p *process) finish() {
	_ = p.stdin.Close()
	time.AfterFunc(patience, func() { _ = p.cmd.Process.Kill() })
}

// kill ends the process with SIGKILL.
func (p *process) kill() error {
	p.killed.Store(true) // before wait can look
	err := p.cmd.Process.Kill()
	if err != nil {
		p.killed.Store(false) // it has ended by itself
	}
	return err
}

// wait waits for the end of the process, after listen has returned. It returns an error if the process failed
// and was not killed.
func (p *process) wait() error {
	if err := p.cmd.Wait(); err != nil && !p.killed.Load() {
		return fmt.Errorf("it ended by itself: %w: %s", err, p.stderr.String())
	}
	return nil
}

// listen calls each for all events of a process until its output ends.
func listen[E any](p *process, each func(E)) error {
	for in := json.NewDecoder(p.stdout); ; {
		var e E
		switch err := in.Decode(&e); {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF): // killed while it reported
			return nil
		case err != nil:
			return err
		}
		each(e)
	}
}
