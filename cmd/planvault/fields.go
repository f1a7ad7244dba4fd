package main

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/planvault/azblob/internal/firsthour"
)

// output is what commands print: the columns of a table, and the fields of JSON. outputs is the only place that says what
// they mean; the help topic output-fields and the man pages are made of it.
type output struct {
	commands string // such as "list, search"
	when     string // if the command prints different things: which this is
	row      any    // a value of the type that is written as JSON
	columns  []columnNote
	fields   map[string]string // what each field of the JSON means, by its name; of a struct within it, too
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
		lines = append(lines, fmt.Sprintf("  %-20s  %s", name, o.fields[f.name]))
	}
	return lines
}

// fields are what the fields of an output mean, one on each line, as "name: meaning".
func fields(text string) map[string]string {
	meanings := map[string]string{}
	for line := range strings.Lines(text) {
		if name, meaning, ok := strings.Cut(strings.TrimSpace(line), ": "); ok {
			meanings[name] = meaning
		}
	}
	return meanings
}

// outputs returns what each command prints.
func (a *app) outputs() []output {
	const plannedFields = `
		dryRun: nothing was changed
		requests: what the change would take
		dollars: what these requests cost at list prices
	`
	return []output{
		{commands: "list, search", row: planRow{}, columns: notesOf(a.planColumns()), fields: fields(`
			id: the plan's ID
			group: the ID of its group
			status: NotStarted, Running, Completed, Failed or Stopped
			submitted: when it was submitted
			started: when it began
			ended: when it ended
			owner: the node that owns it, or owned it last
			epoch: how often an owner has taken it
			name: its name
			descr: its description
			labels: its labels
		`)},
		{commands: "stuck", row: openRow{}, columns: notesOf(openColumns(true)), fields: fields(`
			id: the plan's ID
			group: the ID of its group
			name: its name
			status: NotStarted or Running
			condition: working, stopping, waiting, orphaned, unclaimed, unreadable or unknown
			stuck: whether somebody should look at it
			reason: why it is stuck or waits, in two or three words
			why: why it is stuck or is not, and what to do
			owner: the node that owns it
			ownerName: the name of that node
			ownerState: none, alive, silent or gone
			heartbeatSeconds: the time since the owner renewed its record
			epoch: how often an owner has taken it
			progress: the latest change that is stored in the plan
			idleSeconds: the time since then
			running: the running actions, longest first, at most 100
			running.path: the action's path in the plan
			running.since: when it began
			running.attempts: how often it was tried
			moreRunning: how many actions run beside these
			doneActions: how many actions are final
			actions: how many actions there are
			stopRequested: when somebody asked for a stop
			error: why the plan can't be read
		`)},
		{commands: "nodes", row: nodeRow{}, columns: notesOf(a.nodeColumns()), fields: fields(`
			id: the node's ID
			name: its name
			state: alive, silent or gone
			heartbeatSeconds: the time since it renewed its record
			renewed: when that was, by the store's clock
			ttlSeconds: how long it may be silent before it counts as dead
			started: when it joined, by its own clock
			plans: how many open plans it owns
			phase: whether it takes plans, if it does not work as usual
			trouble: what hinders it
		`)},
		{commands: "show", row: planSummary{}, fields: fields(`
			id: the plan's ID
			group: the ID of its group
			name: its name
			descr: its description
			labels: its labels
			status: NotStarted, Running, Completed, Failed or Stopped
			reason: why it failed
			owner: the node that owns it, or owned it last
			epoch: how often an owner has taken it
			forkedFrom: the plan that it continues
			forked: who asked for the fork, and why
			forked.by: who it was, as they said
			forked.why: why
			forked.at: when
			stopped: who asked for the stop, and why
			stopped.by: who it was, as they said
			stopped.why: why
			stopped.at: when
			submitted: when it was submitted
			started: when it began
			ended: when it ended
			tookSeconds: how long it took
			actions: how many actions have each status; NotApplied are of bypass checks that failed
			failed: the actions that failed
			failed.id: the action's ID
			failed.path: its path in the plan
			failed.plugin: its plugin
			failed.started: when it began
			failed.attempts: how often it was tried
			failed.error: its last error
			running: the actions that run
			running.id: the action's ID
			running.path: its path in the plan
			running.plugin: its plugin
			running.started: when it began
			running.attempts: how often it was tried
			running.error: its last error
		`)},
		{commands: "count", row: tally{}, fields: fields(`
			plans: how many plans there are
			foreign: how many plans of another program it left out
			status: with --by status, the status of these
			group: with --by group, their group
			day: with --by day, the day on which they were created
		`)},
		{commands: "report", row: reported{}, fields: fields(`
			id: the plan's ID
			file: the file that was written
		`)},
		{commands: "fork", row: forked{}, fields: fields(`
			id: the ID of the new plan; a dry run has none
			forkedFrom: the plan that it continues
			carriedOverActions: how many actions do not run again
			actions: how many actions there are
			again: in a dry run, the paths of the actions that would run
		`)},
		{commands: "stop", row: stopped{}, fields: fields(`
			id: the plan's ID
			status: its status
			requested: whether a request to stop was stored
			obeyed: whether it is final, or somebody is there to obey
			owner: the node that owns it
			message: the same as a sentence
		`)},
		{commands: "takeover", row: takenOver{}, fields: fields(`
			id: the plan's ID
			from: the node from which it was taken
			fenced: whether that node can't write to it any more
			evicted: whether that node was removed from the fleet
			owner: the node that has taken the plan since
			ownerName: the name of that node
			returned: whether the evicted process has taken it again
			epoch: how often an owner has taken it
			status: its status
			liveNodes: how many nodes are alive that can take it
		`)},
		{commands: "check", row: checkReport{}, fields: fields(`
			days: how many days were checked
			plans: how many plans were found
			blobs: how many blobs were listed
			bytes: the size of these
			inProgress: how many plans are being written or removed
			waitSeconds: the time until all of these can be judged
			foreign: how many plans another program wrote
			problems: what is wrong
			problems.kind: the kind of the problem
			problems.plan: the plan that has it
			problems.blob: the blob that shows it
			problems.detail: what is wrong with it
			problems.repair: what to do
			problems.waitSeconds: the time until Recovery repairs it
			complete: whether everything was checked
		`)},
		{commands: "doctor", row: finding{}, fields: fields(`
			check: what was looked at
			result: ok, warning, problem or unknown
			finding: what was found
			advice: what to do
		`)},
		{commands: "doctor", when: "with --first-hour", row: firsthour.Finding{}, fields: fields(`
			number: the number of the probe
			tried: what was tried
			expected: what was expected
			breaks: what in the vault depends on it
			verdict: how the service answered: as expected, different, or not tried
			parts: the requests of the probe
			parts.what: what was sent
			parts.verdict: how the service answered
			parts.seen: the answer, or why it was not tried
			parts.expected: the answer that was expected
			requests: how many requests were sent
		`)},
		{commands: "recover", row: recoverReport{}, fields: fields(`
			dryRun: nothing was changed
			days: how many days were looked at
			open: how many plans are open
			recent: how many plans are too young to judge
			foreign: how many plans another program wrote
			plans: what was repaired, or would be
			plans.id: the plan's ID
			plans.found: what was wrong
			plans.did: what was done
			plans.error: why it can't be repaired
			catalogues: the days whose catalogue was wrong
			strays: blobs that belong to no plan
		`)},
		{commands: "stats", row: dayRow{}, columns: notesOf(dayColumns(true)), fields: fields(`
			day: the day on which the plans were created
			plans: how many these are
			notStarted: how many of them have not begun
			running: how many run
			completed: how many are Completed
			failed: how many are Failed
			stopped: how many are Stopped
			unreadable: how many can't be read
			foreign: how many another program wrote
			held: whether the day is held
			blobs: with --bytes, how many blobs the day has
			bytes: with --bytes, the size of these
			dollarsPerMonth: with --bytes, what storing them costs
		`)},
		{commands: "stats", when: "with --forecast", row: forecast{}, fields: fields(`
			days: the next days
			days.day: the day
			days.plans: how many plans it is likely to bring
			days.notStarted: how many of them do not begin
			days.running: how many run still
			days.completed: how many are Completed
			days.failed: how many are Failed
			days.stopped: how many are Stopped
			days.requests: the requests of running them
			days.bytes: what they store
			days.dollars: what the requests cost, and a month of the bytes
			total: their sum
			total.day: the day
			total.plans: how many plans it is likely to bring
			total.notStarted: how many of them do not begin
			total.running: how many run still
			total.completed: how many are Completed
			total.failed: how many are Failed
			total.stopped: how many are Stopped
			total.requests: the requests of running them
			total.bytes: what they store
			total.dollars: what the requests cost, and a month of the bytes
			low: the lower end of its range
			low.day: the day
			low.plans: how many plans it is likely to bring
			low.notStarted: how many of them do not begin
			low.running: how many run still
			low.completed: how many are Completed
			low.failed: how many are Failed
			low.stopped: how many are Stopped
			low.requests: the requests of running them
			low.bytes: what they store
			low.dollars: what the requests cost, and a month of the bytes
			high: the upper end
			high.day: the day
			high.plans: how many plans it is likely to bring
			high.notStarted: how many of them do not begin
			high.running: how many run still
			high.completed: how many are Completed
			high.failed: how many are Failed
			high.stopped: how many are Stopped
			high.requests: the requests of running them
			high.bytes: what they store
			high.dollars: what the requests cost, and a month of the bytes
			compared: how many forecasts of the past were compared with what came
			error: how far these were off on average: 0.1 is a tenth
			weeks: how many weeks it looked at
			sampled: the day whose blobs were listed
			subObjectsPerPlan: the sub-objects of a plan of that day
			bytesPerPlan: its bytes
		`)},
		{commands: "undelete", row: undeletedRow{}, fields: fields(`
			id: the plan's ID
			day: the day
			status: the plan's status
			name: its name
			result: restored, there, kept or failed
			error: why it failed
		`)},
		{commands: "vaults", row: vaultRow{}, fields: fields(`
			prefix: the prefix of the vault
			days: how many days it has
			first: the first of them
			last: the last one
		`)},
		{commands: "log", row: deedRow{}, fields: fields(`
			id: the ID of the record
			at: when the change began
			what: the command
			by: who did it, as they said
			why: why
			plans: the plans that it is about
			from: the first day that it is about
			to: the last one
			detail: the flags
			result: how it ended; began if that is not known
			stored: when the record was stored, by the service's clock
		`)},
		{commands: "policy set", row: policySet{}, fields: fields(plannedFields + `
			keepDays: how many days a Completed or Stopped plan stays
			keepFailedDays: how many days a Failed plan stays
			catalogue: whether closed days get catalogues
			changed: whether it differs from the one before
			firstStep: what its first step removes
			firstStep.drop: how many days are dropped
			firstStep.purge: how many days lose some plans
			firstStep.plans: how many plans are removed one by one
			firstStep.held: how many days stay because they are held
		`)},
		{commands: "policy show", row: policyShown{}, fields: fields(`
			form: the form of the record
			keepDays: how many days a Completed or Stopped plan stays
			keepFailedDays: how many days a Failed plan stays
			catalogue: whether closed days get catalogues
			by: who set it, as they said
			why: why
			set: when, by the service's clock
			atOnce: whether it removes before a day has passed
			claim: who does a step now
			last: what the last step did
			last.at: when it began
			last.by: who did it
			last.dropped: how many days it dropped
			last.removed: how many plans it removed one by one
			last.kept: the first days that it had to keep
			last.kept.day: the day
			last.kept.why: why it stays
			last.keptAll: how many days it had to keep
			last.more: whether something was left to do
			last.error: what failed first
			next: when the next step may begin
			overdue: whether nobody has begun it
			due: what it removes
			due.drop: how many days are dropped
			due.purge: how many days lose some plans
			due.plans: how many plans are removed one by one
			due.held: how many days stay because they are held
		`)},
		{commands: "close", row: closed{}, fields: fields(`
			by: who closed the vault, as they said
			why: why
			evicted: how many nodes were evicted
			unclaimed: how many Running plans belong to engines without a fleet
		`)},
		{commands: "mirror", when: "a round of --follow", row: followed{}, fields: fields(`
			at: when the round ended
			caughtUp: the time up to which the copy has everything
			lagSeconds: how far it is behind
			copied: how many plans were copied
			updated: how many were written anew
			removed: how many were removed from the copy
			unchanged: how many the copy had already
			failed: how many could not be copied
			error: what failed
		`)},
		{commands: "switch", row: switched{}, fields: fields(`
			from: the vault
			to: the copy, which is open now
			lost: whether the vault was given up
			caughtUp: the time up to which the copy had everything before
			evicted: how many nodes were evicted
			unclaimed: how many Running plans belong to engines without a fleet
			copied: how many plans were copied
			updated: how many were written anew
			removed: how many were removed from the copy
			failed: how many could not be copied
			checked: how many plans of the copy were checked
			problems: how many problems that found
			opened: when the copy was opened
			by: who switched, as they said
			before: whether the copy was open already
		`)},
		{commands: "drill", row: drilled{}, fields: fields(`
			sandbox: the prefix of the sandbox
			cut: when the first account was lost
			plans: how many plans were submitted
			writes: how many writes were confirmed
			lostPlans: how many plans the copy does not have
			lostWrites: how many writes it does not have
			lostSince: the first of these
			caughtUp: the time up to which the copy had everything
			problems: how many problems check found in the copy
			openSeconds: the time from the loss until the copy was open
			workSeconds: the time until work went on
			ranAgain: how many actions ran again
			endedSeconds: the time until all plans had ended
			completed: how many are Completed
		`)},
		{commands: "catalogue", row: cataloguedRow{}, fields: fields(`
			day: the day
			result: due, built or skipped
			plans: how many plans the catalogue has
			bytes: its size
			why: why it was skipped
		`)},
		{commands: "expire", row: expiredRow{}, fields: fields(`
			day: the day
			result: what became of it
			plans: how many plans it had
			open: how many plans keep it, because they are open or being changed
			openPlans: some of these
			foreignPlans: some plans of another program, which keep it
			dryRun: nothing was changed
			error: why it failed
		`)},
		{commands: "hold, holds, release", row: heldRow{}, fields: fields(`
			day: the day
			result: what became of it
			error: why it failed
		`)},
		{commands: "catalogue, expire, hold, release", when: "the last object of a dry run", row: planned{}, fields: fields(plannedFields)},
		{commands: "export", row: exported{}, fields: fields(`
			file: the bundle that was written
			plans: how many plans it has
			bytes: its size
			unreadable: how many plans could not be read
			foreign: how many plans of another program it left out
		`)},
		{commands: "import", row: imported{}, fields: fields(plannedFields + `
			restored: how many plans were restored
			present: how many were there already
			failed: how many could not be restored
			more: whether the budget ended it early
		`)},
		{commands: "import", when: "a plan", row: importedRow{}, fields: fields(`
			id: the plan's ID
			result: restored, present or failed
		`)},
		{commands: "import", when: "with --verify-only", row: verified{}, fields: fields(`
			plans: how many plans the bundle has
			subObjects: how many blocks, sequences, checks and actions they have
			bytes: the size of the bundle
			unreadable: how many plans could not be read for it
			created: when it was written
			source: the vault that it is from
		`)},
		{commands: "mirror", row: mirrored{}, fields: fields(plannedFields + `
			plans: how many plans the vault has
			copied: how many were copied
			updated: how many were written anew
			removed: how many were removed from the copy
			unchanged: how many the copy had already
			extra: how many only the copy has
			failed: how many could not be copied
			foreign: how many plans of another program it left out
			behindSeconds: how far the copy is behind
			more: whether the budget ended it early
		`)},
		{commands: "purge", row: purgeDone{}, fields: fields(`
			removed: how many plans were removed
			gone: how many somebody else removed first
			held: how many were kept because their day is held
			heldDays: these days
			failed: how many could not be removed
			foreign: how many plans of another program it left out
			more: whether the budget ended it early
		`)},
		{commands: "purge", when: "a dry run", row: purgePlanned{}, fields: fields(plannedFields + `
			plans: how many plans would be removed
			open: how many of them are open
			held: how many would be kept because their day is held
			heldDays: these days
		`)},
		{commands: "emulator", row: emulation{}, fields: fields(`
			url: where the emulator is
			connectionString: what connects to it
			data: the file that keeps its data
			prefix: the prefix of the vault of sample plans
			plans: how many of these were stored
		`)},
		{commands: "profile list", row: profileRow{}, fields: fields(`
			name: the profile's name
			account: its account
			prefix: its prefix
			login: how it logs in
			serviceVersion: the version of the service that it asks for
		`)},
		{commands: "man", row: manuals{}, fields: fields(`
			dir: the folder
			pages: how many pages were written
		`)},
		{commands: "version", row: version{}, fields: fields(`
			version: the version of the module
			commit: the commit that was built
			changed: whether the tree differed from the commit
			go: the release of Go
			system: the operating system and the processor
		`)},
		{commands: "web", row: served{}, fields: fields(`
			url: where the pages are
		`)},
	}
}
