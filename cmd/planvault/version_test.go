package main

import (
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
)

func TestVersion(t *testing.T) {
	info := &debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}, Settings: []debug.BuildSetting{
		{Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.modified", Value: "true"},
	}}
	built := runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH
	if got, want := builtVersion(info, true).String(), "planvault v1.2.3, commit 0123456789ab with changes, "+built; got != want {
		t.Errorf("%q, not %q", got, want)
	}
	if got, want := builtVersion(nil, false).String(), "planvault unknown, "+built; got != want {
		t.Errorf("%q, not %q", got, want)
	}
	said := newStage(t).run(t.Context(), "version")
	if flag := newStage(t).run(t.Context(), "--version"); flag != said || flag.code != exitDone || !strings.HasPrefix(flag.stdout, "planvault ") {
		t.Errorf("--version: %+v, version: %+v", flag, said)
	}
	if r := newStage(t).run(t.Context(), "version", "--output", "json"); r.code != exitDone || r.stdout == "" {
		t.Errorf("%+v", r)
	}
}
