package workflow

import "fmt"

// Key is what plans take turns for, such as a cluster or an API: no more than Limit plans with a key of the same name work at once.
type Key struct {
	// Name has 1 to [MaxKeyName] bytes of UTF-8 without control characters. It is compared byte by byte.
	Name string `json:"name"`
	// Limit is at most [MaxKeyLimit]; 0 means 1. If plans name different limits, the smallest holds.
	Limit int `json:"limit,omitzero"`

	unknown unknown
}

// The limits of a plan's keys: their number, the bytes of a name, and the limit that a key may have.
const (
	MaxKeys     = 8
	MaxKeyName  = 128
	MaxKeyLimit = 10_000
)

// KeepTurn says whether a plan that sleeps keeps its turns.
type KeepTurn int

// The zero value is KeepAlways.
const (
	KeepAlways     KeepTurn = iota // it keeps its turns until it is final
	KeepWhileAwake                 // it gives them back while it sleeps or is paused, and takes them anew before it goes on
)

var keepTurnNames = names[KeepTurn]{"rule for turns", []string{"KeepAlways", "KeepWhileAwake"}}

// String returns the name of the rule.
func (k KeepTurn) String() string { return keepTurnNames.string(k) }

// MarshalText returns the name of the rule, or an error if there is no such rule.
func (k KeepTurn) MarshalText() ([]byte, error) { return keepTurnNames.text(k) }

// UnmarshalText reads the name of a rule.
func (k *KeepTurn) UnmarshalText(text []byte) error { return keepTurnNames.unmarshal(k, text) }

// FirstKey returns the name of the first of p's Keys in the order of their names, or "" if there are none. It is WaitsFor of a
// plan that sleeps without its turns.
func (p *Plan) FirstKey() (first string) {
	for _, k := range p.Keys {
		if first == "" || k.Name < first {
			first = k.Name
		}
	}
	return first
}

// CheckKey returns a [*FieldError] with the first problem of a key.
func CheckKey(k Key) error { return firstOf(k.check) }

func (k Key) check(bad func(field, problem string, args ...any)) {
	if checkLine("Name", k.Name, MaxKeyName, bad); k.Name == "" {
		bad("Name", "is empty")
	}
	switch {
	case k.Limit < 0:
		bad("Limit", "%d is negative", k.Limit)
	case k.Limit > MaxKeyLimit:
		bad("Limit", "is %d, at most %d is allowed", k.Limit, MaxKeyLimit)
	}
}

// checkTurns reports what is wrong with the fields of a plan that are about turns.
func (p *Plan) checkTurns(bad func(field, problem string, args ...any)) {
	if len(p.Keys) > MaxKeys {
		bad("Keys", "there are %d, at most %d are allowed", len(p.Keys), MaxKeys)
	}
	first := make(map[string]int, min(len(p.Keys), MaxKeys))
	for i, k := range p.Keys {
		at := fmt.Sprintf("Keys[%d].", i)
		k.check(func(field, problem string, args ...any) { bad(at+field, problem, args...) })
		if j, twice := first[k.Name]; twice {
			bad(at+"Name", "is that of Keys[%d] already", j)
		} else {
			first[k.Name] = i
		}
	}
	if !keepTurnNames.valid(p.KeepTurn) {
		bad("KeepTurn", "there is no rule for turns %d", int(p.KeepTurn))
	}
	checkLine("Unique", p.Unique, MaxKeyName, bad)
	checkLine("WaitsFor", p.WaitsFor, MaxKeyName, bad)
}
