package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// change is one random mutation of the code: other text in place of some.
type change struct {
	// file is the path within the module. fn is the function, as Type.Method, or the name of the constant or
	// variable.
	file, fn string
	// rule names the kind of change.
	rule string
	// source is the changed code on one line.
	source string
	// nth counts the changes of a function with the same rule and source, from 1.
	nth int
	// from and to are offsets in the file. text replaces what is between them.
	from, to int
	text     string
}

// maxSource is how much of the changed code a key contains, in bytes.
const maxSource = 90

// key names a change by what is changed and how, not by its line: edits elsewhere leave it as it is.
func (c change) key() string {
	source := c.source
	if len(source) > maxSource {
		source = strings.ToValidUTF8(source[:maxSource], "") + "…"
	}
	key := fmt.Sprintf("%s %s: %s: %s", c.file, c.fn, c.rule, source)
	if c.nth > 1 {
		key += fmt.Sprintf(" (%d)", c.nth)
	}
	return key
}

// sample sorts changes by a hash of seed and key. An edit of the code therefore keeps the order of all other
// changes.
func sample(changes []change, seed uint64) []change {
	rank := func(c change) []byte {
		sum := sha256.Sum256(fmt.Appendf(nil, "%d %s", seed, c.key()))
		return sum[:]
	}
	sorted := slices.Clone(changes)
	slices.SortFunc(sorted, func(a, b change) int { return bytes.Compare(rank(a), rank(b)) })
	return sorted
}

// program is the production code of a package, with types.
type program struct {
	fset  *token.FileSet
	names []string // of the files, within the module
	texts map[string][]byte
	files map[string]*ast.File
	heads map[string]*ast.File // the files without the bodies of functions
	info  *types.Info
	path  string
	deps  types.Importer
}

// load reads and type-checks packages of the module at root. It returns them by the names of their files. The
// packages that they import come from the build cache, and each is read once.
func load(root string, patterns ...string) (map[string]*program, error) {
	cmd := exec.Command("go", append([]string{"list", "-export", "-deps", "-json=ImportPath,Export,Dir,GoFiles,DepOnly"}, patterns...)...)
	cmd.Dir = root
	var problems bytes.Buffer
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list %s: %w: %s", patterns, err, problems.String())
	}
	exports := map[string]string{}
	fset := token.NewFileSet()
	deps := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	var all []*program
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var listed struct {
			ImportPath, Export, Dir string
			GoFiles                 []string
			DepOnly                 bool
		}
		if err := d.Decode(&listed); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("go list %s: %w", patterns, err)
		}
		exports[listed.ImportPath] = listed.Export
		if listed.DepOnly {
			continue
		}
		p, err := parse(fset, root, listed.Dir, listed.GoFiles)
		if err != nil {
			return nil, err
		}
		p.path, p.deps = listed.ImportPath, deps
		all = append(all, p)
	}
	byName := map[string]*program{}
	for _, p := range all {
		if err := errors.Join(p.check(p.files, p.info)...); err != nil {
			return nil, err
		}
		for _, name := range p.names {
			byName[name] = p
		}
	}
	return byName, nil
}

// parse reads the files of a package in a folder of the module at root.
func parse(fset *token.FileSet, root, dir string, names []string) (*program, error) {
	p := &program{
		fset: fset, texts: map[string][]byte{}, files: map[string]*ast.File{}, heads: map[string]*ast.File{},
		info: &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}},
	}
	for _, name := range names {
		path := filepath.Join(dir, name)
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return nil, err
		}
		rel = filepath.ToSlash(rel)
		if p.texts[rel], err = os.ReadFile(path); err != nil {
			return nil, err
		}
		if p.files[rel], err = parser.ParseFile(p.fset, rel, p.texts[rel], parser.ParseComments|parser.SkipObjectResolution); err != nil {
			return nil, err
		}
		p.heads[rel] = head(p.files[rel])
		p.names = append(p.names, rel)
	}
	return p, nil
}

// head returns the file without the bodies of functions.
func head(file *ast.File) *ast.File {
	h := *file
	h.Decls = slices.Clone(file.Decls)
	for i, decl := range h.Decls {
		if f, ok := decl.(*ast.FuncDecl); ok {
			bare := *f
			bare.Body = nil
			h.Decls[i] = &bare
		}
	}
	return &h
}

// check returns the errors of the type checker.
func (p *program) check(files map[string]*ast.File, info *types.Info) (errs []error) {
	all := make([]*ast.File, 0, len(files))
	for _, name := range p.names {
		all = append(all, files[name])
	}
	config := types.Config{Importer: p.deps, Error: func(err error) { errs = append(errs, err) }}
	_, _ = config.Check(p.path, p.fset, all, info)
	return errs
}

// mutated returns a file's text with those changes that are its own. They must not overlap.
func (p *program) mutated(file string, list []change) []byte {
	text := p.texts[file]
	for _, c := range slices.SortedFunc(slices.Values(list), func(a, b change) int { return cmp.Compare(b.from, a.from) }) {
		if c.file == file { // the last first, so that offsets remain
			text = slices.Concat(text[:c.from], []byte(c.text), text[c.to:])
		}
	}
	return text
}

// compiles reports whether the package compiles with all the changes.
func (p *program) compiles(list ...change) bool {
	local := !slices.ContainsFunc(list, func(c change) bool { return p.body(c) == nil })
	files := maps.Clone(p.files)
	if local {
		files = maps.Clone(p.heads)
	}
	changed := map[string]bool{}
	for _, c := range list {
		if changed[c.file] {
			continue
		}
		changed[c.file] = true
		file, err := parser.ParseFile(p.fset, c.file, p.mutated(c.file, list), parser.SkipObjectResolution)
		if err != nil {
			return false
		}
		files[c.file] = file
	}
	return !slices.ContainsFunc(p.check(files, nil), func(err error) bool {
		e, ok := errors.AsType[types.Error](err)
		return !local || !ok || changed[p.fset.Position(e.Pos).Filename]
	})
}

// broken returns the changes with which the package does not compile. It checks changes of different functions
// together, and one by one only if that fails.
func (p *program) broken(list []change) (broken []change) {
	rounds := map[int][]change{}
	seen := map[*ast.BlockStmt]int{}
	for i, c := range list {
		round := -1 - i // alone, unless it lies in a function
		if body := p.body(c); body != nil {
			round = seen[body]
			seen[body]++
		}
		rounds[round] = append(rounds[round], c)
	}
	for _, round := range rounds {
		if !p.compiles(round...) {
			broken = append(broken, slices.DeleteFunc(round, func(c change) bool { return p.compiles(c) })...)
		}
	}
	return broken
}

// body returns the body of the function in which a change lies. There it can't break other files. It is nil if
// the change lies elsewhere.
func (p *program) body(c change) *ast.BlockStmt {
	for _, decl := range p.files[c.file].Decls {
		f, ok := decl.(*ast.FuncDecl)
		if ok && f.Body != nil && p.fset.Position(f.Body.Lbrace).Offset < c.from && c.to <= p.fset.Position(f.Body.Rbrace).Offset {
			return f.Body
		}
	}
	return nil
}

// changes returns all changes of the package in the order of the code, including changes that do not compile.
func (p *program) changes() []change {
	var all []change
	for _, name := range p.names {
		file := p.files[name]
		if ast.IsGenerated(file) {
			continue
		}
		for _, decl := range file.Decls {
			switch decl := decl.(type) {
			case *ast.FuncDecl:
				if fn := functionName(decl); decl.Body != nil && !forText[decl.Name.Name] {
					m := mutator{program: p, file: name, fn: fn, ignored: map[ast.Expr]bool{}}
					m.function(decl.Type, decl.Body)
					all = append(all, m.found...)
				}
			case *ast.GenDecl:
				for _, spec := range decl.Specs {
					if spec, ok := spec.(*ast.ValueSpec); ok {
						m := mutator{program: p, file: name, fn: spec.Names[0].Name, ignored: map[ast.Expr]bool{}}
						for _, value := range spec.Values {
							m.walk(value)
						}
						all = append(all, m.found...)
					}
				}
			}
		}
	}
	seen := map[string]int{}
	for i := range all {
		c := &all[i]
		key := c.key()
		seen[key]++
		c.nth = seen[key]
	}
	return all
}

// forText holds the methods that make text for people.
var forText = map[string]bool{"String": true, "Error": true, "GoString": true, "Format": true}

func functionName(decl *ast.FuncDecl) string {
	if decl.Recv == nil {
		return decl.Name.Name
	}
	t := decl.Recv.List[0].Type
	if star, ok := t.(*ast.StarExpr); ok {
		t = star.X
	}
	switch index := t.(type) {
	case *ast.IndexExpr:
		t = index.X
	case *ast.IndexListExpr:
		t = index.X
	}
	return t.(*ast.Ident).Name + "." + decl.Name.Name
}

// mutator finds the changes of one function, constant or variable.
type mutator struct {
	*program
	file, fn string
	found    []change
	// results are the results of the innermost function.
	results *ast.FieldList
	ignored map[ast.Expr]bool
}

// change adds a change that replaces a node by text.
func (m *mutator) change(rule string, old ast.Node, text string) {
	from, to := m.fset.Position(old.Pos()).Offset, m.fset.Position(old.End()).Offset
	m.found = append(m.found, change{
		file: m.file, fn: m.fn, rule: rule, source: strings.Join(strings.Fields(m.text(old)), " "),
		from: from, to: to, text: text,
	})
}

func (m *mutator) text(n ast.Node) string {
	return string(m.texts[m.file][m.fset.Position(n.Pos()).Offset:m.fset.Position(n.End()).Offset])
}

func (m *mutator) function(t *ast.FuncType, body *ast.BlockStmt) {
	outer := m.results
	m.results = t.Results
	m.walk(body)
	m.results = outer
}

// walk finds the changes within a node.
func (m *mutator) walk(root ast.Node) {
	ast.Inspect(root, func(n ast.Node) bool {
		if s, ok := n.(ast.Stmt); ok && removable(s) {
			m.change("removed", s, m.uses(s))
		}
		switch n := n.(type) {
		case *ast.FuncLit:
			m.function(n.Type, n.Body)
			return false
		case *ast.CallExpr:
			return !m.makesText(n)
		case *ast.IfStmt:
			m.condition(n.Cond)
			m.empty(n.Body.List)
			if block, ok := n.Else.(*ast.BlockStmt); ok {
				m.empty(block.List)
			}
		case *ast.ForStmt:
			if n.Cond != nil {
				m.condition(n.Cond)
			}
		case *ast.SwitchStmt:
			if n.Tag == nil {
				for _, clause := range n.Body.List {
					for _, e := range clause.(*ast.CaseClause).List {
						m.condition(e)
					}
				}
			}
		case *ast.CaseClause:
			m.empty(n.Body)
		case *ast.CommClause:
			m.empty(n.Body)
		case *ast.ReturnStmt:
			m.returned(n)
		case *ast.BinaryExpr:
			m.binary(n)
		case *ast.BasicLit:
			m.literal(n)
		case *ast.Ident:
			m.ident(n)
		case *ast.AssignStmt:
			m.assignment(n)
		case *ast.IncDecStmt:
			other := map[token.Token]string{token.INC: "--", token.DEC: "++"}[n.Tok]
			m.change("arithmetic", n, m.text(n.X)+other)
		case *ast.BranchStmt:
			m.branch(n)
		}
		return true
	})
}

// condition negates a condition. Comparisons are left to binary.
func (m *mutator) condition(e ast.Expr) {
	switch e := e.(type) {
	case *ast.BinaryExpr:
		if opposites[e.Op] != "" {
			return
		}
	case *ast.UnaryExpr:
		if e.Op == token.NOT {
			m.change("negated", e, m.text(e.X))
			return
		}
	}
	m.change("negated", e, "!("+m.text(e)+")")
}

// empty removes the statements of a block, unless the block is one statement that is removable itself.
func (m *mutator) empty(list []ast.Stmt) {
	if len(list) > 1 || len(list) == 1 && !removable(list[0]) {
		m.change("emptied", stretch{list[0].Pos(), list[len(list)-1].End()}, m.uses(list...))
	}
}

// removable reports whether the language allows the statement to be missing.
func removable(s ast.Stmt) bool {
	switch s := s.(type) {
	case *ast.AssignStmt:
		return s.Tok != token.DEFINE
	case *ast.ExprStmt, *ast.DeferStmt, *ast.SendStmt, *ast.GoStmt, *ast.IncDecStmt:
		return true
	}
	return false
}

// stretch is a node that spans several nodes.
type stretch struct{ pos, end token.Pos }

func (s stretch) Pos() token.Pos { return s.pos }
func (s stretch) End() token.Pos { return s.end }

// uses returns a statement that uses the local variables of some statements, so that the compiler does not
// report them as unused.
func (m *mutator) uses(list ...ast.Stmt) string {
	var names []string
	for _, s := range list {
		ast.Inspect(s, func(n ast.Node) bool {
			id, ok := n.(*ast.Ident)
			if !ok {
				return true
			}
			v, ok := m.info.Uses[id].(*types.Var)
			if ok && !v.IsField() && v.Parent() != v.Pkg().Scope() && (v.Pos() < list[0].Pos() || v.Pos() > list[len(list)-1].End()) && !slices.Contains(names, id.Name) {
				names = append(names, id.Name)
			}
			return true
		})
	}
	if len(names) == 0 {
		return ""
	}
	return strings.Repeat("_, ", len(names)-1) + "_ = " + strings.Join(names, ", ")
}

// returned drops the error of a return statement and negates its bools.
func (m *mutator) returned(s *ast.ReturnStmt) {
	if m.results != nil && len(s.Results) == m.results.NumFields() && len(s.Results) > 0 {
		others, last := s.Results[:len(s.Results)-1], s.Results[len(s.Results)-1]
		declared := m.info.TypeOf(m.results.List[len(m.results.List)-1].Type)
		if declared.String() == "error" && m.text(last) != "nil" {
			kept := ""
			for _, e := range others {
				kept += m.text(e) + ", "
				m.ignored[e] = true // callers ignore results that come with an error
			}
			m.change("error dropped", s, "_ = "+m.text(last)+"; return "+kept+"nil")
		}
	}
	for _, e := range s.Results {
		b, ok := m.info.TypeOf(e).(*types.Basic)
		_, compound := e.(*ast.BinaryExpr)
		if ok && b.Info()&types.IsBoolean != 0 && !compound && !m.isLiteralBool(e) && !m.ignored[e] {
			m.condition(e)
		}
	}
}

func (m *mutator) isLiteralBool(e ast.Expr) bool {
	id, ok := e.(*ast.Ident)
	return ok && (id.Name == "true" || id.Name == "false")
}

var (
	opposites = map[token.Token]string{
		token.EQL: "!=", token.NEQ: "==", token.LSS: ">=", token.GEQ: "<", token.GTR: "<=", token.LEQ: ">",
	}
	boundaries = map[token.Token]string{token.LSS: "<=", token.LEQ: "<", token.GTR: ">=", token.GEQ: ">"}
	arithmetic = map[token.Token]string{
		token.ADD: "-", token.SUB: "+", token.MUL: "/", token.QUO: "*", token.REM: "*",
		token.SHL: ">>", token.SHR: "<<", token.AND: "|", token.OR: "&",
		token.ADD_ASSIGN: "-=", token.SUB_ASSIGN: "+=", token.MUL_ASSIGN: "/=", token.QUO_ASSIGN: "*=",
	}
)

func (m *mutator) binary(e *ast.BinaryExpr) {
	with := func(op string) string { return m.text(e.X) + " " + op + " " + m.text(e.Y) }
	if op := opposites[e.Op]; op != "" {
		m.change("comparison", e, with(op))
	}
	if op := boundaries[e.Op]; op != "" {
		m.change("boundary", e, with(op))
	}
	switch e.Op {
	case token.LAND:
		m.change("and, or", e, with("||"))
	case token.LOR:
		m.change("and, or", e, with("&&"))
	}
	if e.Op == token.LAND || e.Op == token.LOR {
		m.change("left operand alone", e, m.text(e.X))
		m.change("right operand alone", e, m.text(e.Y))
	}
	if op := arithmetic[e.Op]; op != "" && m.isNumber(e) {
		m.change("arithmetic", e, with(op))
	}
}

func (m *mutator) isNumber(e ast.Expr) bool {
	b, ok := m.info.TypeOf(e).Underlying().(*types.Basic)
	return ok && b.Info()&types.IsNumeric != 0
}

// literal changes a number. Texts stay: golden files pin those that matter, and most are for people.
func (m *mutator) literal(l *ast.BasicLit) {
	switch {
	case m.ignored[l]:
	case l.Kind == token.INT:
		m.change("constant + 1", l, "("+l.Value+" + 1)")
		if n, err := strconv.ParseInt(l.Value, 0, 64); err == nil && n > 1 {
			m.change("constant - 1", l, "("+l.Value+" - 1)")
		}
	case l.Kind == token.FLOAT:
		m.change("constant doubled", l, "("+l.Value+" * 2)")
	}
}

// ident swaps true and false, and min and max.
func (m *mutator) ident(id *ast.Ident) {
	other := map[string]string{"true": "false", "false": "true", "min": "max", "max": "min"}[id.Name]
	if obj := m.info.Uses[id]; other != "" && !m.ignored[id] && obj != nil && obj.Parent() == types.Universe {
		m.change(id.Name+" into "+other, id, other)
	}
}

func (m *mutator) assignment(s *ast.AssignStmt) {
	if op := arithmetic[s.Tok]; op != "" && m.isNumber(s.Lhs[0]) {
		m.change("arithmetic", s, m.text(s.Lhs[0])+" "+op+" "+m.text(s.Rhs[0]))
	}
}

func (m *mutator) branch(s *ast.BranchStmt) {
	if s.Label != nil {
		return
	}
	switch s.Tok {
	case token.BREAK:
		m.change("branch", s, "continue")
	case token.CONTINUE:
		m.change("branch", s, "break")
	}
}

// makesText reports whether a call makes the text of an error or a message.
func (m *mutator) makesText(call *ast.CallExpr) bool {
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	pkg, ok := f.X.(*ast.Ident)
	if !ok {
		return false
	}
	name, ok := m.info.Uses[pkg].(*types.PkgName)
	if !ok {
		return false
	}
	switch name.Imported().Name() + "." + f.Sel.Name {
	case "fmt.Errorf", "fmt.Sprintf", "fmt.Sprint", "errors.New", "driver.Invalid":
		return true
	}
	return false
}
