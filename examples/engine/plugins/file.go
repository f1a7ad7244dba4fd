package plugins

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"

	"github.com/google/uuid"

	"github.com/planvault/azblob/engine"
)

// File writes files within a folder.
type File struct {
	Root *os.Root
}

// FileRequest is the request of [File].
type FileRequest struct {
	// Path is relative to the folder, with slashes. Missing folders are created.
	Path    string `json:"path"`
	Content string `json:"content,omitempty"`
	// Append adds a line with the action's ID and the content, instead of replacing the file. A rerun adds
	// another line.
	Append bool `json:"append,omitempty"`
}

// FileResponse is the response of [File].
type FileResponse struct {
	Bytes int `json:"bytes"`
}

// Run writes the file and returns when it is on disk. Whenever the process dies, a replaced file has the old
// content or the new.
func (f File) Run(_ context.Context, call engine.Call, r FileRequest) (FileResponse, error) {
	if r.Path == "" {
		return FileResponse{}, permanent(`file: "path" is missing in the request`)
	}
	if err := f.Root.MkdirAll(path.Dir(r.Path), 0o755); err != nil {
		return FileResponse{}, permanent("file: %v", err)
	}
	write := f.replace
	if r.Append {
		r.Content = call.Action.String() + " " + r.Content + "\n"
		write = f.add
	}
	if err := write(r.Path, r.Content, call.Action); err != nil {
		return FileResponse{}, fmt.Errorf("file: %w", err)
	}
	return FileResponse{Bytes: len(r.Content)}, nil
}

// add appends with one call, so that lines of several actions do not mix.
func (f File) add(name, line string, _ uuid.UUID) error {
	return f.write(name, line, os.O_APPEND)
}

// replace writes a temporary file, named after the action, and renames it.
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
