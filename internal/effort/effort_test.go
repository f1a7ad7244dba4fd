package effort_test

import (
	"testing"

	"github.com/planvault/azblob/internal/effort"
)

func TestPick(t *testing.T) {
	t.Setenv("PLANVAULT_LONG", "1")
	if got := effort.Pick("short", "normal", "long"); got != "long" || !effort.Long() {
		t.Errorf("with PLANVAULT_LONG=1: %s, Long is %t", got, effort.Long())
	}
	t.Setenv("PLANVAULT_LONG", "")
	want := "normal"
	if testing.Short() {
		want = "short"
	}
	if got := effort.Pick("short", "normal", "long"); got != want || effort.Long() {
		t.Errorf("without PLANVAULT_LONG: %s, want %s; Long is %t", got, want, effort.Long())
	}
}
