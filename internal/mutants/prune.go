package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// prune drops from the test files of a package what the tests that a pattern matches don't need: other tests,
// and declarations that only those use. The tests of a large package take far longer to compile than to run.
//
// It goes by names alone. A name that is mentioned keeps every declaration and every type with its methods that
// has it, in all files. What remains keeps its line numbers.
func prune(files map[string][]byte, tests *regexp.Regexp) (map[string][]byte, error) {
	fset := token.NewFileSet()
	parsed := map[string]*ast.File{}
	p := pruner{declared: map[string][]ast.Decl{}, kept: map[ast.Decl]bool{}}
	for name, text := range files {
		f, err := parser.ParseFile(fset, name, text, parser.SkipObjectResolution|parser.ParseComments)
		if err != nil {
			return nil, err
		}
		parsed[name] = f
		for _, decl := range f.Decls {
			for _, name := range declares(decl) {
				p.declared[name] = append(p.declared[name], decl)
			}
		}
	}
	for name, decls := range p.declared {
		if name == "_" || name == "init" || name == "TestMain" || testName.MatchString(name) && tests.MatchString(name) {
			p.keep(decls)
		}
	}
	pruned := map[string][]byte{}
	for name, f := range parsed {
		pruned[name] = p.rest(fset, f, files[name])
	}
	return pruned, nil
}

var testName = regexp.MustCompile(`^(?:Test|Fuzz|Example)`)

// pruner knows which declarations are needed.
type pruner struct {
	declared map[string][]ast.Decl // by name; methods by the name of their type
	kept     map[ast.Decl]bool
}

// declares returns the names that need a declaration.
func declares(decl ast.Decl) (names []string) {
	switch decl := decl.(type) {
	case *ast.FuncDecl:
		name, _, _ := strings.Cut(functionName(decl), ".")
		names = append(names, name)
	case *ast.GenDecl:
		for _, spec := range decl.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				names = append(names, spec.Name.Name)
			case *ast.ValueSpec:
				for _, id := range spec.Names {
					names = append(names, id.Name)
				}
			}
		}
	}
	return names
}

// keep keeps declarations, and those whose names they mention.
func (p *pruner) keep(decls []ast.Decl) {
	for _, decl := range decls {
		if p.kept[decl] {
			continue
		}
		p.kept[decl] = true
		ast.Inspect(decl, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				p.keep(p.declared[id.Name])
			}
			return true
		})
	}
}

// rest returns the text of a file without what is not kept.
func (p *pruner) rest(fset *token.FileSet, f *ast.File, text []byte) []byte {
	text = slices.Clone(text)
	used := map[string]bool{}
	for _, decl := range f.Decls {
		if gen, ok := decl.(*ast.GenDecl); ok && gen.Tok == token.IMPORT {
			continue
		}
		if !p.kept[decl] {
			blank(text, fset, decl)
			continue
		}
		ast.Inspect(decl, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok {
				if id, ok := sel.X.(*ast.Ident); ok {
					used[id.Name] = true
				}
			}
			return true
		})
	}
	for _, spec := range f.Imports {
		if name := importName(spec); name != "_" && !used[name] {
			blank(text, fset, spec)
		}
	}
	return text
}

// importName returns the name by which a file knows a package. Packages of this module and those that its tests
// import are named after the last element of their paths, apart from a version.
func importName(spec *ast.ImportSpec) string {
	if spec.Name != nil {
		return spec.Name.Name
	}
	whole, _ := strconv.Unquote(spec.Path.Value) // the parser has checked it
	if version.MatchString(path.Base(whole)) {
		whole = path.Dir(whole)
	}
	return path.Base(whole)
}

var version = regexp.MustCompile(`^v\d+$`)

// blank overwrites a node by spaces.
func blank(text []byte, fset *token.FileSet, n ast.Node) {
	for i := fset.Position(n.Pos()).Offset; i < fset.Position(n.End()).Offset; i++ {
		if text[i] != '\n' {
			text[i] = ' '
		}
	}
}
