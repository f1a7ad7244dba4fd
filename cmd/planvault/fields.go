package main

import (
	"embed"
	"fmt"
	"reflect"
	"strings"

	"github.com/spf13/cobra"

	"github.com/planvault/azblob/cmd/planvault/internal/report"
	"github.com/planvault/azblob/internal/firsthour"
)

// output is what commands print: the columns of a table, and the fields of JSON. The tag help of a field says what it
// means. The help topic output-fields is made of these.
type output struct {
	commands string // such as "hold, release"
	when     string // if the command prints different things: which this is
	row      any    // a value of the type that is written as JSON
	columns  []columnNote
}

// columnNote is what the help says of a column.
type columnNote struct {
	title    string
	shown    shownIn
	optional bool
}

// notesOf returns what the help says of columns.
func notesOf[T any](columns []column[T]) (notes []columnNote) {
	for _, c := range columns {
		if title := strings.TrimPrefix(c.title, ">"); title != "" {
			notes = append(notes, columnNote{title, c.shown, c.optional})
		}
	}
	return notes
}

// tables returns "PLAN, STATUS, NAME", and says which of the columns only one of the tables has.
func (o output) tables() string {
	var titles []string
	for _, c := range o.columns {
		title := c.title + []string{"", " (without --wide)", " (--wide)"}[c.shown]
		if c.optional {
			title += " (if any)"
		}
		titles = append(titles, title)
	}
	return strings.Join(titles, ", ")
}

// jsonField is a field of an object.
type jsonField struct {
	name     string // with a dot behind the field that has the object: problems.kind
	optional bool   // it is left out if it has nothing to say
	meaning  string
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
		meaning, ok := f.Tag.Lookup("help")
		if !ok { // structs of other packages have no tags for this tool
			meaning = libraryFields[t.String()+"."+f.Name]
		}
		fields = append(fields, jsonField{name, options != "", meaning})
		if of.Kind() == reflect.Struct {
			for _, below := range fieldsOf(of) {
				fields = append(fields, jsonField{name + "." + below.name, below.optional, below.meaning})
			}
		}
	}
	return fields
}

// libraryFields says what the fields of structs of other packages mean.
var libraryFields = map[string]string{
	"retention.Policy.KeepDays":       "how many days a Completed or Stopped plan stays",
	"retention.Policy.KeepFailedDays": "how many days a Failed plan stays",
	"retention.Policy.Catalogue":      "whether past days get catalogues",
	"retention.Report.At":             "when it began",
	"retention.Report.By":             "who did it",
	"retention.Report.Dropped":        "how many days it dropped",
	"retention.Report.Removed":        "how many plans it removed one by one",
	"retention.Report.Kept":           "the first days that it had to keep",
	"retention.KeptDay.Day":           "the day",
	"retention.KeptDay.Why":           "why it stays",
	"retention.Report.KeptAll":        "how many days it had to keep",
	"retention.Report.More":           "whether something was left to do",
	"retention.Report.Error":          "what failed first",
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
		lines = append(lines, fmt.Sprintf("  %-20s  %s", name, f.meaning))
	}
	return lines
}

// outputs returns what each command prints.
func (a *app) outputs() []output {
	return []output{
		{commands: "list", row: report.Listed{}, columns: notesOf(a.planColumns())},
		{commands: "stuck", row: openRow{}, columns: notesOf(openColumns(true))},
		{commands: "nodes", row: nodeRow{}, columns: notesOf(a.nodeColumns())},
		{commands: "keys", row: keyRow{}, columns: notesOf(a.keyColumns())},
		{commands: "keys", when: "with a NAME", row: keyShown{}, columns: notesOf(a.holderColumns())},
		{commands: "key set, key repair", row: keyChanged{}},
		{commands: "show", row: planSummary{}},
		{commands: "wait", row: ended{}},
		{commands: "count", row: tally{}},
		{commands: "report", row: reported{}},
		{commands: "fork, retry", row: forked{}},
		{commands: "pause", row: paused{}},
		{commands: "resume", when: "of a plan", row: paused{}},
		{commands: "approve, reject", row: decided{}},
		{commands: "signal", row: signalled{}},
		{commands: "fork", when: "of the plans of a search", row: forkedEach{}},
		{commands: "stop", row: stopped{}},
		{commands: "stop", when: "of the plans of a search", row: stoppedEach{}},
		{commands: "takeover", row: takenOver{}},
		{commands: "check", row: checkReport{}},
		{commands: "doctor", row: finding{}},
		{commands: "doctor", when: "with --first-hour", row: firsthour.Finding{}},
		{commands: "recover", row: recoverReport{}},
		{commands: "stats", row: dayRow{}, columns: notesOf(dayColumns(true))},
		{commands: "vaults", row: vaultRow{}},
		{commands: "log", row: auditRow{}, columns: notesOf(a.logColumns())},
		{commands: "policy set", row: policySet{}},
		{commands: "policy show", row: policyShown{}},
		{commands: "suspend", row: suspended{}},
		{commands: "mirror", when: "a round of --follow", row: followed{}},
		{commands: "switch", row: switched{}},
		{commands: "drill", row: drilled{}},
		{commands: "recover", when: "with --catalogue", row: cataloguedRow{}},
		{commands: "expire", row: expiredRow{}},
		{commands: "hold, release", row: heldRow{}},
		{commands: "expire, hold, recover, release", when: "the last object of a dry run", row: planned{}},
		{commands: "export", row: exported{}},
		{commands: "import", row: imported{}},
		{commands: "import", when: "a plan", row: importedRow{}},
		{commands: "import", when: "with --verify-only", row: verified{}},
		{commands: "mirror", row: mirrored{}},
		{commands: "purge", row: purgeDone{}},
		{commands: "purge", when: "a dry run", row: purgePlanned{}},
		{commands: "emulator", row: emulation{}},
		{commands: "profile list", row: profileRow{}},
		{commands: "version", row: version{}},
		{commands: "web", row: served{}},
	}
}

// helpPages has a page for each command and each topic.
//
//go:embed help
var helpPages embed.FS

// helpOf returns the page of a command or a topic, and the examples below it. TestHelp finds a page that is missing.
func helpOf(name string) (long, example string) {
	page, _ := helpPages.ReadFile("help/" + strings.ReplaceAll(name, " ", "-") + ".txt")
	long, example, _ = strings.Cut(strings.TrimSuffix(string(page), "\n"), "\n\nExamples:\n")
	return long, example
}

// topics returns the pages of help that are about no command.
func (a *app) topics() (list []*cobra.Command) {
	for _, topic := range []struct{ name, short string }{
		{"connect", "Where the vault is, and how to log in"},
		{"exit-codes", "What the exit codes mean"},
		{"cost", "What requests cost, and how to see it"},
		{"output", "What commands print, and where"},
	} {
		long, _ := helpOf(topic.name)
		list = append(list, &cobra.Command{Use: topic.name, Short: topic.short, Long: long})
	}
	return append(list, &cobra.Command{Use: "output-fields", Short: "The columns and JSON fields of each command", Long: a.outputFields()})
}
