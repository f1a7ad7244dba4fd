package workflow_test

import (
	"encoding"
	"fmt"
	"testing"

	"github.com/planvault/azblob/workflow"
)

func TestStatusText(t *testing.T) {
	checkNames[workflow.Status](t, "status", "NotStarted", "Running", "Completed", "Failed", "Stopped")
}

func TestFailureReasonText(t *testing.T) {
	checkNames[workflow.FailureReason](
		t, "failure reason", "NoFailure", "PreCheckFailed", "ContCheckFailed", "BlockFailed",
		"PostCheckFailed", "DeferredCheckFailed", "DeferredActionFailed", "StopRequested",
		"ExceededRecovery", "DeadlineExceeded",
	)
}

func TestWhenText(t *testing.T) {
	checkNames[workflow.When](t, "when", "OnSuccess", "OnFailure", "Always")
}

// checkNames checks that the values 0, 1, 2 ... have these names, which are stored, and that there are no
// others.
func checkNames[T interface {
	~int
	fmt.Stringer
	encoding.TextMarshaler
}, P interface {
	*T
	encoding.TextUnmarshaler
}](t *testing.T, what string, names ...string) {
	t.Helper()
	for i, name := range names {
		v := T(i)
		if v.String() != name {
			t.Errorf("%d is %q, want %q", i, v, name)
		}
		if text, err := v.MarshalText(); err != nil || string(text) != name {
			t.Errorf("%d marshals to %q and %v, want %q", i, text, err, name)
		}
		got := T(-5)
		if err := P(&got).UnmarshalText([]byte(name)); err != nil || got != v {
			t.Errorf("%q is read as %d and %v, want %d", name, int(got), err, i)
		}
	}
	for _, i := range []int{-1, len(names), 1 << 30} {
		v := T(i)
		if want := fmt.Sprintf("%s(%d)", what, i); v.String() != want {
			t.Errorf("%d is %q, want %q", i, v, want)
		}
		if text, err := v.MarshalText(); err == nil {
			t.Errorf("%d, which has no name, marshals to %q", i, text)
		} else if want := fmt.Sprintf("there is no %s %d", what, i); err.Error() != want {
			t.Errorf("%d marshals to the error %q, want %q", i, err, want)
		}
	}
	for _, text := range []string{"", "Sleeping", "notstarted", "onsuccess", names[0] + " ", "0", T(len(names)).String()} {
		got := T(1)
		if err := P(&got).UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is read as %d", text, int(got))
		} else if want := fmt.Sprintf("there is no %s %q", what, text); err.Error() != want {
			t.Errorf("%q is read with the error %q, want %q", text, err, want)
		}
		if got != 1 {
			t.Errorf("reading the unknown name %q changed the value to %d", text, int(got))
		}
	}
}

func TestKindString(t *testing.T) {
	for k, want := range map[workflow.Kind]string{
		workflow.KindDeferBatch: "deferBatch", workflow.KindDeferBatch + 1: "kind(7)", -1: "kind(-1)",
	} {
		if k.String() != want {
			t.Errorf("kind %d is %q, want %q", int(k), k, want)
		}
	}
}

func TestStatus(t *testing.T) {
	for s, want := range map[workflow.Status]struct{ valid, final bool }{
		-1:                  {false, false},
		workflow.NotStarted: {true, false},
		workflow.Running:    {true, false},
		workflow.Completed:  {true, true},
		workflow.Failed:     {true, true},
		workflow.Stopped:    {true, true},
		5:                   {false, false},
	} {
		if s.Valid() != want.valid || s.Final() != want.final {
			t.Errorf("%v: Valid is %v and Final %v, want %v", s, s.Valid(), s.Final(), want)
		}
	}
}
