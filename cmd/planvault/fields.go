package main

import (
	_ "embed"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/planvault/azblob/internal/firsthour"
)

// output is what commands print: the columns of a table, and the fields of JSON. outputs is the only place that says what
// they mean; the help topic output-fields and the man pages are made of it.
type output struct {
	commands string // such as "hold, release"
	when     string // if the command prints different things: which this is
	row      any    // a value of the type that is written as JSON
	columns  []columnNote
	fields   map[string]string // the block of the output in fields.txt
	shared   map[string]string // the block of all outputs
}

// columnNote is what the help says of a column.
type columnNote struct {
	title string
	shown shownIn
}

// notesOf returns what the help says of columns.
func notesOf[T any](columns []column[T]) (notes []columnNote) {
	for _, c := range columns {
		if title := strings.TrimPrefix(c.title, ">"); title != "" {
			notes = append(notes, columnNote{title, c.shown})
		}
	}
	return notes
}

// tables returns "PLAN, STATUS, NAME", and says which of the columns only one of the tables has.
func (o output) tables() string {
	var titles []string
	for _, c := range o.columns {
		titles = append(titles, c.title+[]string{"", " (without --wide)", " (--wide)"}[c.shown])
	}
	return strings.Join(titles, ", ")
}

// jsonField is a field of an object.
type jsonField struct {
	name     string // with a dot behind the field that has the object: problems.kind
	optional bool   // it is left out if it has nothing to say
}

// fieldsOf returns the fields of the JSON of a type, with those of the structs in it.
func fieldsOf(t reflect.Type) (fields []jsonField) {
	for f := range t.Fields() {
		name, options, tagged := strings.Cut(f.Tag.Get("json"), ",")
		of := f.Type
		for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice {
			of = of.Elem()
		}
		switch {
		case f.Anonymous && name == "":
			fields = append(fields, fieldsOf(of)...)
			continue
		case !tagged && name == "" || name == "-":
			continue
		}
		fields = append(fields, jsonField{name, options != ""})
		if of.Kind() == reflect.Struct {
			for _, below := range fieldsOf(of) {
				fields = append(fields, jsonField{name + "." + below.name, below.optional})
			}
		}
	}
	return fields
}

// outputsOf returns what a command prints.
func (a *app) outputsOf(command string) []output {
	return slices.DeleteFunc(a.outputs(), func(o output) bool { return !slices.Contains(strings.Split(o.commands, ", "), command) })
}

// outputFields is the page of help about what the commands print.
func (a *app) outputFields() string {
	var b strings.Builder
	b.WriteString(wrap("The columns of tables, and the fields of the JSON of --output json. Fields with a ? are left out if they have nothing to say. planvault get prints the plan itself, as it is stored.", helpWidth))
	for _, o := range a.outputs() {
		b.WriteString("\n\n" + o.commands)
		if o.when != "" {
			b.WriteString(", " + o.when)
		}
		if len(o.columns) > 0 {
			b.WriteString("\n  table: " + strings.ReplaceAll(wrap(o.tables(), helpWidth-9), "\n", "\n         "))
		}
		for _, f := range o.described() {
			b.WriteString("\n" + f)
		}
	}
	return b.String()
}

// described returns a line for each field of the JSON.
func (o output) described() (lines []string) {
	for _, f := range fieldsOf(reflect.TypeOf(o.row)) {
		name := f.name
		if f.optional {
			name += "?"
		}
		meaning, _ := o.meaning(f.name)
		lines = append(lines, fmt.Sprintf("  %-20s  %s", name, meaning))
	}
	return lines
}

// fieldNotes says what the fields of JSON mean.
//
//go:embed fields.txt
var fieldNotes string

// notedFields returns what fields.txt says of each output, by the name of its block; that of the first one is "".
func notedFields() map[string]map[string]string {
	notes, block := map[string]map[string]string{"": {}}, ""
	for line := range strings.Lines(fieldNotes) {
		line = strings.TrimSuffix(line, "\n")
		if name, meaning, ok := strings.Cut(line, ": "); ok {
			notes[block][name] = meaning
		} else if name, ok := strings.CutPrefix(line, "["); ok {
			block = strings.TrimSuffix(name, "]")
			notes[block] = map[string]string{}
		}
	}
	return notes
}

// block returns the name of the output's block in fields.txt.
func (o output) block() string { return strings.TrimSuffix(o.commands+" | "+o.when, " | ") }

// meaning returns what a field means, and the name under which the output's block has that, or "".
func (o output) meaning(field string) (meaning, noted string) {
	if m := o.fields[field]; m != "" {
		return m, field
	}
	if at := strings.LastIndex(field, "."); at >= 0 {
		within := "*" + field[at+1:]
		return o.fields[within], within
	}
	return o.shared[field], ""
}

// outputs returns what each command prints.
func (a *app) outputs() []output {
	all := []output{
		{commands: "list", row: planRow{}, columns: notesOf(a.planColumns())},
		{commands: "stuck", row: openRow{}, columns: notesOf(openColumns(true))},
		{commands: "nodes", row: nodeRow{}, columns: notesOf(a.nodeColumns())},
		{commands: "show", row: planSummary{}},
		{commands: "count", row: tally{}},
		{commands: "report", row: reported{}},
		{commands: "fork", row: forked{}},
		{commands: "stop", row: stopped{}},
		{commands: "takeover", row: takenOver{}},
		{commands: "check", row: checkReport{}},
		{commands: "doctor", row: finding{}},
		{commands: "doctor", when: "with --first-hour", row: firsthour.Finding{}},
		{commands: "recover", row: recoverReport{}},
		{commands: "stats", row: dayRow{}, columns: notesOf(dayColumns(true))},
		{commands: "stats", when: "with --forecast", row: forecast{}},
		{commands: "vaults", row: vaultRow{}},
		{commands: "log", row: auditRow{}, columns: notesOf(a.logColumns())},
		{commands: "policy set", row: policySet{}},
		{commands: "policy show", row: policyShown{}},
		{commands: "suspend", row: suspended{}},
		{commands: "mirror", when: "a round of --follow", row: followed{}},
		{commands: "switch", row: switched{}},
		{commands: "drill", row: drilled{}},
		{commands: "catalogue", row: cataloguedRow{}},
		{commands: "expire", row: expiredRow{}},
		{commands: "hold, holds, release", row: heldRow{}},
		{commands: "catalogue, expire, hold, release", when: "the last object of a dry run", row: planned{}},
		{commands: "export", row: exported{}},
		{commands: "import", row: imported{}},
		{commands: "import", when: "a plan", row: importedRow{}},
		{commands: "import", when: "with --verify-only", row: verified{}},
		{commands: "mirror", row: mirrored{}},
		{commands: "purge", row: purgeDone{}},
		{commands: "purge", when: "a dry run", row: purgePlanned{}},
		{commands: "emulator", row: emulation{}},
		{commands: "profile list", row: profileRow{}},
		{commands: "man", row: manuals{}},
		{commands: "version", row: version{}},
		{commands: "web", row: served{}},
	}
	notes := notedFields()
	for i, o := range all {
		all[i].fields, all[i].shared = notes[o.block()], notes[""]
	}
	return all
}
