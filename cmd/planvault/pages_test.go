package main

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/goldentest"
)

// The pages of documentation show commands with their output in blocks of the kind console:
//
//	```console
//	$ planvault stuck --older 1h
//	PLAN ...
//	```
//
// TestPagesRun runs those that stand below a line <!-- stage: NAME -->, in the order of the page, on a vault that
// scenes[NAME] prepares at three in the morning of page time, and compares what they print with the page; -update
// rewrites it. A line <!-- later: 2m --> lets time pass, and <!-- stage: end --> ends the part of the page that is run.
// `$ echo $?` prints the exit code of the command before. Other lines that begin with $ are not run, and keep their
// output. IDs that a command makes up are random: the page has others in their place, of the same time, and may use them
// in the commands that follow. Commands run in a folder of their own, in which a name without a folder is a file.
//
// All other blocks are not run. TestPagesNameCommandsThatExist checks their commands and flags.

// pageTime is the time at which each stage of a page begins.
var pageTime = time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)

// pages are the pages of documentation, from this folder.
func pages(t *testing.T) []string {
	t.Helper()
	list, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(list) == 0 {
		t.Fatalf("%d pages, %v", len(list), err)
	}
	return append(list, "../../README.md")
}

func TestPagesRun(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	for _, path := range append(pages(t), "testdata/fleet.txt", "testdata/repair.txt") {
		text, err := os.ReadFile(path)
		must(t, err)
		if !bytes.Contains(text, []byte("<!-- stage:")) {
			continue
		}
		path, err := filepath.Abs(path)
		must(t, err)
		t.Run(filepath.Base(path), func(t *testing.T) {
			t.Chdir(t.TempDir())
			goldentest.Equal(t, path, runPage(t, string(text)))
		})
	}
}

var stageLine = regexp.MustCompile(`(?m)^<!-- stage: (\S+) -->$`)

// runPage returns the page with what its commands print now. Each stage has a clock of its own.
func runPage(t *testing.T, text string) []byte {
	var out strings.Builder
	at, name := 0, "end"
	part := func(end int) {
		if text := text[at:end]; name == "end" {
			out.WriteString(text)
		} else if prepare := scenes[name]; prepare == nil {
			t.Fatalf("there is no scene %q", name)
		} else {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(time.Until(pageTime))
				s := newStage(t, emulator.Options{Latency: 10 * time.Millisecond}) // otherwise chance decides which requests are one round trip
				delete(s.env, "PLANVAULT_KEEP")                                    // the page has a folder of its own
				prepare(t, s)
				r := pageRun{stage: s, shown: map[string]string{}, real: map[string]string{}}
				if out.WriteString(r.run(t, text)); r.ran == 0 {
					t.Errorf("stage %s runs no command", name)
				}
			})
		}
	}
	for _, m := range stageLine.FindAllStringSubmatchIndex(text, -1) {
		part(m[0])
		at, name = m[0], text[m[2]:m[3]]
	}
	part(len(text))
	return []byte(out.String())
}

// pageRun is the run of one stage of a page.
type pageRun struct {
	*stage
	code, ran   int               // the exit code of the last command, and how many there were
	shown, real map[string]string // IDs on the page by those that commands made up, and the other way round
}

var laterLine = regexp.MustCompile(`^<!-- later: (\S+) -->$`)

// run returns a part of a page with what its commands print now.
func (r *pageRun) run(t *testing.T, text string) string {
	var out strings.Builder
	console, replaced := false, false // replaced: the output of the page gives way to that of the command
	lines := strings.SplitAfter(text, "\n")
	for i := 0; i < len(lines); i++ {
		line := strings.TrimSuffix(lines[i], "\n")
		if m := laterLine.FindStringSubmatch(line); m != nil {
			d, err := time.ParseDuration(m[1])
			must(t, err)
			time.Sleep(d)
		}
		switch {
		case line == "```console":
			console = true
		case line == "```":
			console, replaced = false, false
		case console && strings.HasPrefix(line, "$ "):
			out.WriteString(lines[i])
			for strings.HasSuffix(line, `\`) {
				i++
				out.WriteString(lines[i])
				line = strings.TrimSuffix(line, `\`) + strings.TrimSuffix(lines[i], "\n")
			}
			var printed string
			if printed, replaced = r.command(t, line); replaced {
				out.WriteString(printed)
			}
			continue
		}
		if !replaced {
			out.WriteString(lines[i])
		}
	}
	return out.String()
}

// command runs a line of a console, and returns what a terminal shows. It reports whether it has run it.
func (r *pageRun) command(t *testing.T, line string) (printed string, ran bool) {
	if line == "$ echo $?" {
		return fmt.Sprintln(r.code), true
	}
	args := shellWords(strings.TrimPrefix(line, "$ "))
	if len(args) == 0 || args[0] != "planvault" {
		return "", false
	}
	for i, arg := range args {
		args[i] = anID.ReplaceAllStringFunc(arg, func(id string) string {
			if r.real[id] == "" && madeUpID.MatchString(id) {
				t.Errorf("%s: no command before has printed that ID", line)
			}
			return cmp.Or(r.real[id], id)
		})
		if short, ok := r.real[arg]; ok {
			args[i] = short
		}
	}
	var terminal bytes.Buffer
	r.ran++
	r.code = run(t.Context(), r.process(&terminal, &terminal), args[1:])
	return r.stable(terminal.String()), true
}

var (
	anID = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	// anIDOrEnd also matches the last digits of an ID, as short tables have them.
	anIDOrEnd = regexp.MustCompile(anID.String() + `|\b[0-9a-f]{8}\b`)
	// madeUpID matches those that the page has in place of random ones.
	madeUpID = regexp.MustCompile(`-7000-8000-0000000000[a-f]`)
	// fixedID matches IDs that are not random: those of scenes, and groups, which are hashes of names.
	fixedID = regexp.MustCompile(`-7000-8000-0000|-5[0-9a-f]{3}-[89ab]|-0000-0000-0000`)
)

// stable replaces the IDs that a command made up, and the last digits of those.
func (r *pageRun) stable(text string) string {
	stored := sync.OnceValue(r.storedIDs)
	return anIDOrEnd.ReplaceAllStringFunc(text, func(id string) string {
		whole := id
		if len(id) == shortDigits {
			if whole = stored()[id]; whole == "" {
				return id
			}
		}
		if fixedID.MatchString(whole) {
			return id
		}
		if r.shown[whole] == "" {
			shown := fmt.Sprintf("%s-7000-8000-0000000000%02x", whole[:13], 0xa0+len(r.shown))
			r.shown[whole], r.real[shown] = shown, whole
			r.real[endOf(shown)] = endOf(whole)
		}
		return r.shown[whole][len(whole)-len(id):]
	})
}

func endOf(id string) string { return id[len(id)-shortDigits:] }

// storedIDs returns the IDs in the names and the metadata of all blobs, by their last digits.
func (r *pageRun) storedIDs() map[string]string {
	stored := map[string]string{}
	for c := range r.server.Containers() {
		for b := range r.server.Blobs(c) {
			for _, text := range append(slices.Collect(maps.Values(b.Metadata)), b.Name) {
				for _, id := range anID.FindAllString(text, -1) {
					stored[endOf(id)] = id
				}
			}
		}
	}
	return stored
}

// shellWords splits a command line as a shell does: at spaces that are not quoted, up to a comment.
func shellWords(line string) (words []string) {
	var word strings.Builder
	quote, begun := rune(0), false
	for _, c := range line + " " {
		switch {
		case quote == c && quote != 0:
			quote = 0
		case quote == 0 && (c == '\'' || c == '"'):
			quote, begun = c, true
		case quote == 0 && c == '#' && !begun:
			return words
		case quote == 0 && c == ' ':
			if begun {
				words = append(words, word.String())
			}
			word.Reset()
			begun = false
		default:
			word.WriteRune(c)
			begun = true
		}
	}
	return words
}

// TestPagesNameCommandsThatExist checks the commands and flags in the documentation.
func TestPagesNameCommandsThatExist(t *testing.T) {
	inText := regexp.MustCompile("`planvault ([a-z][^`]*)`")
	named := 0
	for _, path := range pages(t) {
		text, err := os.ReadFile(path)
		must(t, err)
		var commands []string
		console := false
		for line := range strings.Lines(strings.ReplaceAll(string(text), "\\\n", "")) {
			if strings.HasPrefix(line, "```") {
				console = line == "```console\n"
			}
			if command, ok := strings.CutPrefix(line, "$ planvault "); console && ok {
				commands = append(commands, command)
			}
			if command, ok := strings.CutPrefix(line, "    planvault "); ok {
				commands = append(commands, command)
			}
		}
		for _, m := range inText.FindAllStringSubmatch(string(text), -1) {
			commands = append(commands, strings.ReplaceAll(m[1], "\n", " ")) // a line of a page may end anywhere
		}
		named += len(commands)
		for _, command := range commands {
			if err := checkCommand(command); err != nil {
				t.Errorf("%s: planvault %s: %v", path, strings.TrimSpace(command), err)
			}
		}
	}
	if named == 0 {
		t.Error("the pages name no command, so this test looks for the wrong thing")
	}
}

// checkCommand returns an error if the tool lacks a command or its flags.
func checkCommand(line string) error {
	root := helpRoot()
	args := shellWords(strings.TrimSpace(line))
	if end := slices.IndexFunc(args, func(arg string) bool { return arg == "|" || arg == ">" || arg == "&" }); end >= 0 {
		args = args[:end]
	}
	if args[0] == "help" {
		_, _, err := root.Find(args[1:])
		return err
	}
	c, rest, err := root.Find(args)
	if err != nil {
		return err
	}
	return c.ParseFlags(rest)
}
