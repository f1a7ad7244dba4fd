package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

// program is the production code of a package.
type program struct {
	path  string
	files map[string]*file // by their paths within the module
	names []string         // their order
	fset  *token.FileSet
	deps  types.Importer
}

type file struct {
	text []byte
	ast  *ast.File
	head *ast.File // without the bodies of functions
}

// load reads packages of the module at root. Their imports come from the build cache.
func load(ctx context.Context, root string, patterns ...string) ([]*program, error) {
	exports, fset := map[string]string{}, token.NewFileSet()
	deps := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	var all []*program
	listed, err := goList(ctx, root, append([]string{"-export", "-deps"}, patterns...)...)
	if err != nil {
		return nil, err
	}
	for _, l := range listed {
		exports[l.ImportPath] = l.Export
		if l.DepOnly {
			continue
		}
		p := &program{path: l.ImportPath, files: map[string]*file{}, fset: fset, deps: deps}
		for _, name := range l.GoFiles {
			rel, err := filepath.Rel(root, filepath.Join(l.Dir, name))
			if err != nil {
				return nil, err
			}
			rel = filepath.ToSlash(rel)
			text, err := os.ReadFile(filepath.Join(root, rel))
			if err != nil {
				return nil, err
			}
			f := &file{text: text}
			if f.ast, err = parser.ParseFile(fset, rel, text, parser.ParseComments|parser.SkipObjectResolution); err != nil {
				return nil, err
			}
			f.head = head(f.ast)
			p.files[rel] = f
			p.names = append(p.names, rel)
		}
		all = append(all, p)
	}
	return all, nil
}

// head returns a file without the bodies of functions.
func head(f *ast.File) *ast.File {
	h := *f
	h.Decls = nil
	for _, decl := range f.Decls {
		if f, ok := decl.(*ast.FuncDecl); ok {
			bare := *f
			bare.Body = nil
			decl = &bare
		}
		h.Decls = append(h.Decls, decl)
	}
	return &h
}

// compiles returns why a file does not compile with another text. It does not look into functions of other files:
// changes are within functions, or of values.
func (p *program) compiles(name string, text []byte) error {
	changed, err := parser.ParseFile(p.fset, name, text, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	files := []*ast.File{changed}
	for other, f := range p.files {
		if other != name {
			files = append(files, f.head)
		}
	}
	var errs []error
	config := types.Config{Importer: p.deps, Error: func(err error) {
		if e, ok := errors.AsType[types.Error](err); ok && p.fset.Position(e.Pos).Filename == name {
			errs = append(errs, err)
		}
	}}
	_, _ = config.Check(p.path, p.fset, files, nil)
	return errors.Join(errs...)
}

// listed is what go list says about a package.
type listed struct {
	ImportPath, Export, Dir            string
	GoFiles, TestGoFiles, XTestGoFiles []string
	Imports, Deps                      []string
	DepOnly                            bool
}

func goList(ctx context.Context, root string, args ...string) ([]listed, error) {
	const fields = "-json=ImportPath,Export,Dir,GoFiles,TestGoFiles,XTestGoFiles,Imports,Deps,DepOnly"
	cmd := exec.CommandContext(ctx, "go", append([]string{"list", fields}, args...)...)
	cmd.Dir = root
	var problems bytes.Buffer
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list %s: %w: %s", args, err, problems.String())
	}
	var list []listed
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var l listed
		if err := d.Decode(&l); errors.Is(err, io.EOF) {
			return list, nil
		} else if err != nil {
			return nil, err
		}
		list = append(list, l)
	}
}
