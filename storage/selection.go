package storage

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/workflow"
)

// Selection says which plans a call such as [Purge] is about. The zero value selects nothing and is [ErrInvalid].
type Selection struct {
	filters Filters
	set     bool
}

// SelectIDs selects plans by their IDs. Without IDs it selects nothing.
func SelectIDs(ids ...uuid.UUID) Selection {
	return Selection{Filters{ByIDs: append([]uuid.UUID{}, ids...)}, true}
}

// SelectWhere selects the plans that match filters, as in a Search. The filters must say something in particular: without
// fields, or with a Limit alone, they are [ErrInvalid].
func SelectWhere(f Filters) Selection { return Selection{f, true} }

// Filters returns the filters of a Search for the selected plans.
func (s Selection) Filters() Filters { return s.filters }

// String says for people what is selected, such as "2 plans by ID" or "plans with ByStatus [Failed], Limit 10".
func (s Selection) String() string {
	fields := s.filters.Fields()
	switch {
	case len(fields) == 0:
		return "nothing"
	case slices.Equal(fields, []string{"ByIDs"}):
		return fmt.Sprintf("%d plans by ID", len(s.filters.ByIDs))
	}
	v := reflect.ValueOf(s.filters)
	for i, name := range fields {
		value := v.FieldByName(name).Interface()
		if t, ok := value.(time.Time); ok {
			value = t.UTC().Format(time.RFC3339)
		}
		fields[i] = fmt.Sprintf("%s %v", name, value)
	}
	return "plans with " + strings.Join(fields, ", ")
}

// check returns [ErrInvalid] for a selection of nothing in particular.
func (s Selection) check() error {
	switch fields := s.filters.Fields(); {
	case !s.set:
		return invalid("Selection", "is empty: see SelectIDs and SelectWhere")
	case len(fields) == 0:
		return invalid("Selection", "has filters without fields: it would select all plans")
	case slices.Equal(fields, []string{"Limit"}):
		return invalid("Selection.Limit", "is all that is set: it would select the newest plans, whatever they are")
	}
	return nil
}

// invalid returns [ErrInvalid] with a [*workflow.FieldError].
func invalid(field, problem string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrInvalid, &workflow.FieldError{Field: field, Problem: fmt.Sprintf(problem, args...)})
}
