package azblob

import (
	"encoding/binary"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/internal/listing"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// The names of containers and blobs. They are built and parsed here and nowhere else.

// prefix is the name of a vault. It owns the containers <prefix>-YYYY-MM-DD, <prefix>-control and <prefix>-log, and no
// others. What stands before the date, "control" or "log" is the prefix, so a container belongs to one prefix only.
type prefix string

// maxPrefix leaves room for a hyphen and a date in the 63 characters of a container's name.
const maxPrefix = 63 - len("-2006-01-02")

// check says why the prefix can't be the start of container names, or returns "". It quotes nothing that may be a secret in
// the wrong place, such as a connection string. The rules are the service's:
// learn.microsoft.com/rest/api/storageservices/naming-and-referencing-containers--blobs--and-metadata
func (p prefix) check() string {
	switch {
	case p == "":
		return "is empty"
	case len(p) > maxPrefix:
		return fmt.Sprintf("has %d characters, at most %d are allowed", len(p), maxPrefix)
	case strings.Trim(string(p), "abcdefghijklmnopqrstuvwxyz0123456789-") != "":
		return "may have lower-case letters, digits and hyphens only"
	case p[0] == '-' || p[len(p)-1] == '-' || strings.Contains(string(p), "--"):
		return fmt.Sprintf("%q may have single hyphens only, and none at either end", string(p))
	}
	return ""
}

// containerPrefix is the start of the names of all containers of the vault. Those of other vaults may share it.
func (p prefix) containerPrefix() string { return string(p) + "-" }

// day returns the name of the container for the UTC day of t.
func (p prefix) day(t time.Time) string { return p.containerPrefix() + t.UTC().Format(time.DateOnly) }

// parseDay returns the day of a container. It returns false for a container of another prefix.
func (p prefix) parseDay(container string) (time.Time, bool) {
	date, ok := strings.CutPrefix(container, p.containerPrefix())
	if !ok {
		return time.Time{}, false
	}
	day, err := time.Parse(time.DateOnly, date)
	// One day has one name, whatever else Parse may accept.
	return day, err == nil && p.day(day) == container
}

// parseContainer returns the prefix that owns a container, and its day, which is zero for the control container. It
// returns false for a container that no vault makes.
func parseContainer(name string) (p prefix, day time.Time, ok bool) {
	const date = len("-2006-01-02")
	if text, isControl := strings.CutSuffix(name, controlTail); isControl {
		return prefix(text), time.Time{}, prefix(text).check() == ""
	}
	if len(name) <= date {
		return "", time.Time{}, false
	}
	p = prefix(name[:len(name)-date])
	day, ok = p.parseDay(name)
	return p, day, ok && p.check() == ""
}

// catalogueOf names the catalogue of a day, given the day's container.
func catalogueOf(container string) blob.Ref {
	return blob.Ref{Container: container, Name: catalogueName}
}

// droppingOf names the mark of an Expire that is dropping a day, given the day's container.
func droppingOf(container string) blob.Ref {
	return blob.Ref{Container: container, Name: droppingName}
}

// control returns the name of the container of what concerns all days: members, stop requests, notes and keys.
func (p prefix) control() string { return string(p) + controlTail }

// log returns the name of the container of the log.
func (p prefix) log() string { return p.containerPrefix() + "log" }

// auditEntry names an entry of the audit log. The first part of its name is the complement of the first half of the ID, so that
// listings show the newest first.
func (p prefix) auditEntry(id uuid.UUID) blob.Ref {
	return blob.Ref{Container: p.log(), Name: fmt.Sprintf("%s%016x-%s%s", auditDir, ^binary.BigEndian.Uint64(id[:8]), id, jsonTail)}
}

// auditEntriesFrom returns a name that is before those of the audit entries that are not younger than a time.
func auditEntriesFrom(at time.Time) string {
	return fmt.Sprintf("%s%012x", auditDir, ^uint64(at.UnixMilli())&(1<<48-1))
}

// parseAuditName parses the name of an audit entry. It returns false for a name that no vault writes.
func parseAuditName(name string) (id uuid.UUID, ok bool) {
	text, _ := strings.CutSuffix(name, jsonTail)
	id, ok = parseID(text[max(0, len(text)-len(uuid.Nil.String())):])
	return id, ok && workflow.IsV7(id) && prefix("").auditEntry(id).Name == name
}

// member names the record of a member.
func (p prefix) member(id uuid.UUID) blob.Ref {
	return blob.Ref{Container: p.control(), Name: nodesDir + id.String()}
}

// stop names the request to stop a plan.
func (p prefix) stop(plan uuid.UUID) blob.Ref {
	return blob.Ref{Container: p.control(), Name: signalsDir + plan.String() + stopTail}
}

// note names a note.
func (p prefix) note(name string) blob.Ref {
	return blob.Ref{Container: p.control(), Name: notesDir + name}
}

// key names the record of a key. Its name may be any text, and the blob's has lower-case letters, digits and hyphens: any other
// byte is _ with two hexadecimal digits.
func (p prefix) key(name string) blob.Ref {
	text := []byte(keysDir)
	for _, c := range []byte(name) {
		if c == '-' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' {
			text = append(text, c)
		} else {
			text = fmt.Appendf(text, "_%02x", c)
		}
	}
	return blob.Ref{Container: p.control(), Name: string(text)}
}

// parseKeyName parses the name of a key's record. It returns false for a name that no vault writes.
func parseKeyName(blobName string) (name string, ok bool) {
	text, err := url.PathUnescape(strings.ReplaceAll(strings.TrimPrefix(blobName, keysDir), "_", "%"))
	return text, err == nil && driver.CheckKeyName(text) == nil && prefix("").key(text).Name == blobName
}

// recordName is the content of a name in the control container.
type recordName struct {
	role role      // roleMember, roleStop, roleNote or roleKey
	id   uuid.UUID // of the member, or of the plan
	name string    // of the note, or of the key
}

// parseRecordName parses the name of a record. It returns false for a name that no vault writes.
func parseRecordName(name string) (recordName, bool) {
	if text, ok := strings.CutPrefix(name, nodesDir); ok {
		id, ok := parseID(text)
		return recordName{role: roleMember, id: id}, ok && workflow.IsV7(id)
	}
	if text, ok := strings.CutPrefix(name, notesDir); ok {
		return recordName{role: roleNote, name: text}, driver.CheckNoteName(text) == nil
	}
	if strings.HasPrefix(name, keysDir) {
		text, ok := parseKeyName(name)
		return recordName{role: roleKey, name: text}, ok
	}
	text, inDir := strings.CutPrefix(name, signalsDir)
	text, isStop := strings.CutSuffix(text, stopTail)
	id, isID := parseID(text)
	return recordName{role: roleStop, id: id}, inDir && isStop && isID && workflow.IsV7(id)
}

// plan returns the names of a plan's blobs.
func (p prefix) plan(id uuid.UUID) keys {
	return keys{p.day(workflow.Time(id)), id}
}

// keys are the names of one plan's blobs.
type keys struct {
	container string
	plan      uuid.UUID
}

const (
	controlTail   = "-control"
	catalogueName = "catalogue"

	openDir      = "open/"
	plansDir     = "plans/"
	deleteTail   = "-delete"
	changeInfix  = "-change-"
	droppingName = openDir + "dropping"
	entryTail    = "-entry.json"
	objectTail   = "-object.json"
	jsonTail     = ".json"

	keysDir    = "keys/" // before nodesDir: a roster begins there
	nodesDir   = "nodes/"
	notesDir   = "notes/"
	signalsDir = "signals/"
	stopTail   = "-stop"

	auditDir = "deeds/"
)

func (k keys) at(name string) blob.Ref { return blob.Ref{Container: k.container, Name: name} }

func (k keys) marker() blob.Ref       { return k.at(openDir + k.plan.String()) }
func (k keys) deleteMarker() blob.Ref { return k.at(openDir + k.plan.String() + deleteTail) }
func (k keys) entry() blob.Ref        { return k.at(plansDir + k.plan.String() + entryTail) }
func (k keys) object() blob.Ref       { return k.at(plansDir + k.plan.String() + objectTail) }

// changeMarker names the marker of one change of the plan.
func (k keys) changeMarker(id uuid.UUID) blob.Ref {
	return k.at(openDir + k.plan.String() + changeInfix + id.String())
}

// partsPrefix is the start of the names of the plan's sub-objects of one kind.
func (k keys) partsPrefix(kind kind) string { return kind.dir + k.plan.String() + "/" }

// part names the blob of a sub-object.
func (k keys) part(o workflow.Object) blob.Ref {
	return k.at(k.partsPrefix(kindOf(o)) + o.Header().ID.String() + jsonTail)
}

// of names the blob with an object's own fields. For a plan it is the entry.
func (k keys) of(o workflow.Object) blob.Ref {
	if o.Kind() == workflow.KindPlan {
		return k.entry()
	}
	return k.part(o)
}

// role is what a blob is to its plan, or to the fleet.
type role int

const (
	roleMarker role = iota
	roleDeleteMarker
	roleChangeMarker
	roleEntry
	roleObject
	rolePart
	roleMember
	roleStop
	roleNote
	roleKey
)

// parsed is the content of a blob's name.
type parsed struct {
	role role
	plan uuid.UUID
	kind kind      // of a sub-object
	id   uuid.UUID // of a sub-object, or of a change
}

// parseName parses a blob's name. It returns false for a name that no vault writes.
func parseName(name string) (parsed, bool) {
	dir, rest, ok := strings.Cut(name, "/")
	if !ok {
		return parsed{}, false
	}
	switch dir += "/"; dir {
	case openDir:
		if id, ok := strings.CutSuffix(rest, deleteTail); ok {
			return parsePlanName(roleDeleteMarker, id)
		}
		if planText, idText, ok := strings.Cut(rest, changeInfix); ok {
			plan, planOK := parseID(planText)
			id, idOK := parseID(idText)
			return parsed{role: roleChangeMarker, plan: plan, id: id}, planOK && idOK
		}
		return parsePlanName(roleMarker, rest)
	case plansDir:
		if id, ok := strings.CutSuffix(rest, entryTail); ok {
			return parsePlanName(roleEntry, id)
		}
		if id, ok := strings.CutSuffix(rest, objectTail); ok {
			return parsePlanName(roleObject, id)
		}
		return parsed{}, false
	}
	kind, known := kindIn(dir)
	planText, rest, cut := strings.Cut(rest, "/")
	idText, tail := strings.CutSuffix(rest, jsonTail)
	plan, planOK := parseID(planText)
	id, idOK := parseID(idText)
	return parsed{rolePart, plan, kind, id}, known && cut && tail && planOK && idOK
}

// parsePlanName parses a name that has only the plan's ID.
func parsePlanName(r role, idText string) (parsed, bool) {
	id, ok := parseID(idText)
	return parsed{role: r, plan: id}, ok
}

// isEntry reports whether a blob's name is that of an entry.
func isEntry(name string) bool { return strings.HasSuffix(name, entryTail) }

// parseID parses an ID in the one form that names use; uuid.Parse accepts others, too.
func parseID(s string) (uuid.UUID, bool) {
	id, err := uuid.Parse(s)
	return id, err == nil && id.String() == s
}

// groupEnd is the delimiter between the parts of an ID. The first part has 32 of the 48 bits of its
// milliseconds: plans of about a minute have it in common, so a day has about 1,300. The second part has the
// other 16 bits.
const groupEnd = "-"

// parseGroup parses the start of the names that the plans of a minute, or of a millisecond, have in a
// directory. It returns the first key of the group and how many there are.
func parseGroup(dir, name string) (from, size uint64, ok bool) {
	text, inDir := strings.CutPrefix(name, dir)
	size = listing.Minute
	switch len(text) {
	case len("01234567-"):
	case len("01234567-89ab-"):
		size = listing.Millisecond
	default:
		return 0, 0, false
	}
	id, ok := parseID(text + uuid.Nil.String()[len(text):])
	return listing.KeyOf(id), size, inDir && ok
}

// directories returns the directories of a container, sorted as in a listing.
func directories() []string {
	dirs := []string{openDir, plansDir}
	for _, k := range kinds {
		dirs = append(dirs, k.dir)
	}
	slices.Sort(dirs)
	return dirs
}
