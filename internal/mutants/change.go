package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// change is one random mutation of the code.
type change struct {
	*program
	file, fn string // fn is the function, as Type.Method, or the name of the constant or variable
	rule     string // the kind of change
	source   string // the changed code on one line
	nth      int    // counts the changes of a function with the same rule and source, from 1
	from, to int    // offsets in the file
	text     string // to be put between them
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

// what is a change's key without file and type, which may be renamed.
func (c change) what() string {
	return strings.TrimPrefix(c.key(), c.file+" "+c.fn[:strings.LastIndexByte(c.fn, '.')+1])
}

// sample sorts changes by a hash of seed and key. An edit of the code therefore keeps the order of all other
// changes.
func sample(changes []change, seed uint64) []change {
	rank := func(c change) []byte {
		sum := sha256.Sum256(fmt.Appendf(nil, "%d %s", seed, c.key()))
		return sum[:]
	}
	return slices.SortedFunc(slices.Values(changes), func(a, b change) int { return bytes.Compare(rank(a), rank(b)) })
}

var (
	unused = regexp.MustCompile(`declared and not used: (\w+)`)
	word   = regexp.MustCompile(`\w+`)
)

// trial returns the mutant; ok is false if it does not compile. Variables that a removed statement used are no reason.
func (c change) trial() (t trial, ok bool) {
	t = newTrial(c.program, c.key(), c.file, c.from, c.to, c.text)
	err := c.compiles(c.file, t.text)
	if err == nil || c.text != "" {
		return t, err == nil
	}
	for _, m := range unused.FindAllStringSubmatch(err.Error(), -1) {
		c.text += "_ = " + m[1] + ";"
	}
	t = newTrial(c.program, c.key(), c.file, c.from, c.to, c.text)
	return t, c.compiles(c.file, t.text) == nil
}

// changes returns all changes of the package in the order of the code, including changes that do not compile.
func (p *program) changes() (all []change) {
	for _, name := range p.names {
		file := p.files[name].ast
		if ast.IsGenerated(file) {
			continue
		}
		for _, decl := range file.Decls {
			m := mutator{program: p, file: name, ignored: map[ast.Expr]bool{}}
			switch decl := decl.(type) {
			case *ast.FuncDecl:
				if m.fn = decl.Name.Name; decl.Recv != nil {
					m.fn = word.FindString(m.text(decl.Recv.List[0].Type)) + "." + m.fn
				}
				if decl.Body != nil && !forText[decl.Name.Name] {
					m.function(decl.Type, decl.Body)
				}
			case *ast.GenDecl:
				for _, spec := range decl.Specs {
					if spec, ok := spec.(*ast.ValueSpec); ok {
						m.fn = spec.Names[0].Name
						for _, value := range spec.Values {
							m.walk(value)
						}
					}
				}
			}
			all = append(all, m.found...)
		}
	}
	seen := map[string]int{}
	for i := range all {
		key := all[i].key()
		seen[key]++
		all[i].nth = seen[key]
	}
	return all
}

// forText holds the methods and functions that make text for people.
var forText = map[string]bool{
	"String": true, "Error": true, "GoString": true, "Format": true,
	"fmt.Errorf": true, "fmt.Sprintf": true, "fmt.Sprint": true, "errors.New": true, "driver.Invalid": true,
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
		program: m.program, file: m.file, fn: m.fn, rule: rule, source: strings.Join(strings.Fields(m.text(old)), " "),
		from: from, to: to, text: text,
	})
}

func (m *mutator) text(n ast.Node) string {
	return string(m.files[m.file].text[m.fset.Position(n.Pos()).Offset:m.fset.Position(n.End()).Offset])
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
			m.change("removed", s, "")
		}
		switch n := n.(type) {
		case *ast.FuncLit:
			m.function(n.Type, n.Body)
			return false
		case *ast.CallExpr:
			return !forText[m.text(n.Fun)]
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
			m.swap(n, m.text(n.Lhs[0])+" ", n.Tok, " "+m.text(n.Rhs[0]))
		case *ast.IncDecStmt:
			m.swap(n, m.text(n.X), n.Tok, "")
		case *ast.BranchStmt:
			if n.Label == nil {
				m.swap(n, "", n.Tok, "")
			}
		}
		return true
	})
}

// condition negates a condition. Comparisons are left to binary.
func (m *mutator) condition(e ast.Expr) {
	switch e := e.(type) {
	case *ast.BinaryExpr:
		if swaps[0].other[e.Op.String()] != "" {
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
		m.change("emptied", stretch{list[0].Pos(), list[len(list)-1].End()}, "")
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

// returned drops the error of a return statement and negates its bools.
func (m *mutator) returned(s *ast.ReturnStmt) {
	if m.results != nil && len(s.Results) == m.results.NumFields() && len(s.Results) > 0 {
		others, last := s.Results[:len(s.Results)-1], s.Results[len(s.Results)-1]
		declared, ok := m.results.List[len(m.results.List)-1].Type.(*ast.Ident)
		if ok && declared.Name == "error" && m.text(last) != "nil" {
			kept := ""
			for _, e := range others {
				kept += m.text(e) + ", "
				m.ignored[e] = true // callers ignore results that come with an error
			}
			m.change("error dropped", s, "_ = "+m.text(last)+"; return "+kept+"nil")
		}
	}
	for _, e := range s.Results {
		if _, compound := e.(*ast.BinaryExpr); !compound && !m.ignored[e] && m.text(e) != "true" && m.text(e) != "false" {
			m.condition(e) // which does not compile if it is no bool
		}
	}
}

// swaps are operators and keywords that are put in place of others, by the names of the rules.
var swaps = []struct {
	rule  string
	other map[string]string
}{
	{"comparison", map[string]string{"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}},
	{"boundary", map[string]string{"<": "<=", "<=": "<", ">": ">=", ">=": ">"}},
	{"and, or", map[string]string{"&&": "||", "||": "&&"}},
	{"arithmetic", map[string]string{
		"+": "-", "-": "+", "*": "/", "/": "*", "%": "*", "<<": ">>", ">>": "<<", "&": "|", "|": "&",
		"+=": "-=", "-=": "+=", "*=": "/=", "/=": "*=", "++": "--", "--": "++",
	}},
	{"branch", map[string]string{"break": "continue", "continue": "break"}},
}

// swap replaces the operator or keyword of a node, which stands between two texts.
func (m *mutator) swap(n ast.Node, before string, op token.Token, after string) {
	for _, s := range swaps {
		if other := s.other[op.String()]; other != "" {
			m.change(s.rule, n, before+other+after)
		}
	}
}

func (m *mutator) binary(e *ast.BinaryExpr) {
	m.swap(e, m.text(e.X)+" ", e.Op, " "+m.text(e.Y))
	if e.Op == token.LAND || e.Op == token.LOR {
		m.change("left operand alone", e, m.text(e.X))
		m.change("right operand alone", e, m.text(e.Y))
	}
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
	if other != "" && !m.ignored[id] {
		m.change(id.Name+" into "+other, id, other)
	}
}
