package efforttest_test

import (
	"testing"

	"github.com/planvault/azblob/internal/efforttest"
)

func TestPick(t *testing.T) {
	t.Setenv("PLANVAULT_LONG", "1")
	if got := efforttest.Pick("short", "normal", "long"); got != "long" || !efforttest.Long() {
		t.Errorf("with PLANVAULT_LONG=1: %s, Long is %t", got, efforttest.Long())
	}
	t.Setenv("PLANVAULT_LONG", "")
	want := "normal"
	if testing.Short() {
		want = "short"
	}
	if got := efforttest.Pick("short", "normal", "long"); got != want || efforttest.Long() {
		t.Errorf("without PLANVAULT_LONG: %s, want %s; Long is %t", got, want, efforttest.Long())
	}
}
