// Package plannote names the notes that ask something of a plan: its pause and its signals. Package fleet writes and reads
// them, and package mirror copies them. It also names the records of Uniques.
package plannote

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/google/uuid"
)

// The plan's ID as 32 digits follows these, and in the name of a signal a hyphen and four digits.
const (
	pausePrefix  = "pause-"
	signalPrefix = "signal-"
)

// UniqueRecord begins the name of the record that says which plan has a Unique. The Unique follows.
const UniqueRecord = "unique:"

// Pause returns the name of the note that pauses a plan.
func Pause(plan uuid.UUID) string { return fmt.Sprintf("%s%x", pausePrefix, plan[:]) }

// Signal returns the name of the note that is the signal of a plan with a number.
func Signal(plan uuid.UUID, number int) string {
	return fmt.Sprintf("%s%x-%04d", signalPrefix, plan[:], number)
}

// ParsePause returns the plan that a note with this name pauses.
func ParsePause(name string) (plan uuid.UUID, ok bool) {
	plan, rest, ok := parse(name, pausePrefix)
	return plan, ok && rest == ""
}

// ParseSignal returns the plan and the number of the signal that a note with this name is.
func ParseSignal(name string) (plan uuid.UUID, number int, ok bool) {
	plan, rest, ok := parse(name, signalPrefix)
	number, err := strconv.Atoi(strings.TrimPrefix(rest, "-"))
	return plan, number, ok && err == nil && number > 0 && name == Signal(plan, number)
}

// Plan returns the plan of a note with this name, if the note is a pause or a signal.
func Plan(name string) (plan uuid.UUID, ok bool) {
	if plan, ok = ParsePause(name); !ok {
		plan, _, ok = ParseSignal(name)
	}
	return plan, ok
}

func parse(name, prefix string) (plan uuid.UUID, rest string, ok bool) {
	name, ok = strings.CutPrefix(name, prefix)
	digits := hex.EncodedLen(len(plan))
	if !ok || len(name) < digits {
		return uuid.Nil, "", false
	}
	_, err := hex.Decode(plan[:], []byte(name[:digits]))
	return plan, name[digits:], err == nil && name[:digits] == fmt.Sprintf("%x", plan[:])
}
