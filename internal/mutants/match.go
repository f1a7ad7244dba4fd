package main

import (
	"go/scanner"
	"go/token"
	"maps"
	"slices"
	"strings"
)

// lexeme is a token of Go with its place in the text.
type lexeme struct {
	tok      token.Token
	text     string
	from, to int
}

// lex splits Go code, or a piece of it, into tokens. It leaves out comments, and what depends on where lines end:
// semicolons and commas before a closing bracket, and semicolons at the end of a piece.
func lex(text string) (list []lexeme) {
	file := token.NewFileSet().AddFile("", -1, len(text))
	var s scanner.Scanner
	s.Init(file, []byte(text), nil, 0)
	for {
		pos, tok, literal := s.Scan()
		last := len(list) - 1
		switch tok {
		case token.RPAREN, token.RBRACK, token.RBRACE, token.EOF:
			if last >= 0 && (list[last].tok == token.SEMICOLON || list[last].tok == token.COMMA && tok != token.EOF) {
				list = list[:last]
			}
			if tok == token.EOF {
				return list
			}
		case token.SEMICOLON:
			literal = ";"
		}
		if literal == "" {
			literal = tok.String()
		}
		from := file.Offset(pos)
		list = append(list, lexeme{tok, literal, from, from + len(literal)})
	}
}

// chain returns how many of the first tokens are a name and selectors, as in c.vault.client, as long as each name
// fits. It is 0 if the first is no name that fits.
func chain(list []lexeme, fits func(name string) bool) (n int) {
	for n < len(list) && list[n].tok == token.IDENT && fits(list[n].text) {
		if n++; n+1 >= len(list) || list[n].tok != token.PERIOD || list[n+1].tok != token.IDENT || !fits(list[n+1].text) {
			return n
		}
		n++
	}
	return n
}

// variable reports whether a pattern means any name by this one.
func variable(name string) bool { return len(name) == 1 && name != "_" }

func join(list []lexeme) string {
	var b strings.Builder
	for _, l := range list {
		b.WriteString(l.text)
	}
	return b.String()
}

// match returns how many tokens of code a pattern takes that the code begins with; ok is false if it does not. A name of
// one letter, or several with dots between them, as in c.v, matches any name, or any with dots between them: receivers
// and short variables may be renamed, and what they hold may move. Those in before stand for something already; all
// has what they stand for in the end.
func match(pattern, code []lexeme, before map[string]string) (n int, all map[string]string, ok bool) {
	if len(pattern) == 0 {
		return 0, before, true
	}
	size := chain(pattern, variable)
	if size == 0 {
		if len(code) == 0 || code[0].tok != pattern[0].tok || code[0].text != pattern[0].text {
			return 0, nil, false
		}
		n, all, ok = match(pattern[1:], code[1:], before)
		return n + 1, all, ok
	}
	name := join(pattern[:size])
	for most, used := chain(code, func(string) bool { return true }), 1; used <= most; used += 2 {
		text := join(code[:used])
		if was, there := before[name]; there && was != text {
			continue
		}
		with := map[string]string{name: text}
		maps.Copy(with, before)
		if n, all, ok := match(pattern[size:], code[used:], with); ok {
			return used + n, all, true
		}
	}
	return 0, nil, false
}

// found is a place that a pattern matches.
type found struct {
	from, to int // offsets in the text
	bound    map[string]string
}

// find returns the places in code that a pattern matches.
func find(pattern, code []lexeme) (all []found) {
	for i := range code {
		if i > 0 && code[i-1].tok == token.PERIOD && pattern[0].tok == token.IDENT {
			continue // the chain began before
		}
		if n, bound, ok := match(pattern, code[i:], nil); ok {
			all = append(all, found{code[i].from, code[i+n-1].to, bound})
		}
	}
	return all
}

// fill replaces the variables of a text by what they stand for.
func fill(text string, bound map[string]string) string {
	list := lex(text)
	var chains [][]lexeme
	for i := 0; i < len(list); i++ {
		if size := chain(list[i:], variable); size > 0 && (i == 0 || list[i-1].tok != token.PERIOD) {
			chains = append(chains, list[i:i+size])
			i += size - 1
		}
	}
	for _, names := range slices.Backward(chains) {
		for ; len(names) > 0; names = names[:max(0, len(names)-2)] {
			if with, ok := bound[join(names)]; ok {
				text = text[:names[0].from] + with + text[names[len(names)-1].to:]
				break
			}
		}
	}
	return text
}
