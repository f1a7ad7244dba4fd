package plugins

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"

	"github.com/google/uuid"
)

// File writes files within a folder.
type File struct {
	Root *os.Root
}

// FileRequest says what to write.
type FileRequest struct {
	// Path is relative to the folder, with slashes. Its own folders are made.
	Path    string `json:"path"`
	Content string `json:"content,omitempty"`
	// Append adds one line, the action's ID and the content, instead of replacing the file. Repetitions add it again.
	Append bool `json:"append,omitempty"`
}

// FileResponse says what was written.
type FileResponse struct {
	Bytes int `json:"bytes"`
}

// Name is "file".
func (File) Name() string { return "file" }

// Request is a FileRequest.
func (File) Request() any { return FileRequest{} }

// Response is a FileResponse.
func (File) Response() any { return FileResponse{} }

// Run writes the file, and returns when it is on the disk. A file that is replaced has the old content or the new one whenever
// the process dies.
func (f File) Run(_ context.Context, action uuid.UUID, req any) (any, error) {
	r, ok := req.(FileRequest)
	if !ok || r.Path == "" {
		return nil, permanent(`file: "path" is missing in the request`)
	}
	if err := f.Root.MkdirAll(path.Dir(r.Path), 0o755); err != nil {
		return nil, permanent("file: %v", err)
	}
	write := f.replace
	if r.Append {
		r.Content = action.String() + " " + r.Content + "\n"
		write = f.add
	}
	if err := write(r.Path, r.Content, action); err != nil {
		return nil, fmt.Errorf("file: %w", err)
	}
	return FileResponse{Bytes: len(r.Content)}, nil
}

// add writes with one call, so that lines of several actions do not mix.
func (f File) add(name, line string, _ uuid.UUID) error {
	return f.write(name, line, os.O_APPEND)
}

// replace writes beside the file first, under a name of the action's own.
func (f File) replace(name, content string, action uuid.UUID) error {
	temporary := name + "." + action.String()
	if err := f.write(temporary, content, os.O_TRUNC); err != nil {
		return err
	}
	return f.Root.Rename(temporary, name)
}

func (f File) write(name, content string, how int) error {
	file, err := f.Root.OpenFile(name, os.O_CREATE|os.O_WRONLY|how, fs.FileMode(0o644))
	if err != nil {
		return err
	}
	_, err = file.WriteString(content)
	return errors.Join(err, file.Sync(), file.Close())
}
