package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestProfilesAreSecret checks who can read the file, and that damage in it does not keep flags from working.
func TestProfilesAreSecret(t *testing.T) {
	s := newStage(t)
	path := filepath.Join(t.TempDir(), "new", "folder", "profiles.json")
	s.env["PLANVAULT_PROFILES"] = path
	if r := s.run(t.Context(), "profile", "set", "default"); r.code != exitDone {
		t.Fatalf("%+v", r)
	}
	for name, mode := range map[string]os.FileMode{path: 0o600, filepath.Dir(path): 0o700 | os.ModeDir} {
		if info, err := os.Stat(name); err != nil || info.Mode() != mode {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "*")); len(left) != 1 {
		t.Errorf("the folder has %q", left)
	}
	for _, damage := range []string{
		"", "{", "[]", `{"a": {"nosuch": 1}}`, `{"a": 1}`, `{"a":{"prefix":"p"}} {"b":{"prefix":"p"}}`, `{"a":{"prefix":"p"}} }`,
	} {
		must(t, os.WriteFile(path, []byte(damage), 0o600))
		for args, code := range map[string]int{"list --allow-empty": exitDone, "profile list": exitUsage, "profile set a": exitUsage, "list --profile a": exitUsage} {
			if r := s.run(t.Context(), strings.Fields(args)...); r.code != code {
				t.Errorf("%q: %s: %+v", damage, args, r)
			}
		}
		if text, _ := os.ReadFile(path); string(text) != damage {
			t.Errorf("%q was replaced by %q", damage, text)
		}
	}
}

// TestProfilesWithoutHome checks that a process without a home needs none.
func TestProfilesWithoutHome(t *testing.T) {
	s := newStage(t)
	for _, home := range []string{"HOME", "XDG_CONFIG_HOME", "AppData"} {
		t.Setenv(home, "")
	}
	delete(s.env, "PLANVAULT_PROFILES")
	for args, code := range map[string]int{"list --allow-empty": exitDone, "profile list": exitDone, "profile set a": exitFailed, "list --profile a": exitUsage} {
		if r := s.run(t.Context(), strings.Fields(args)...); r.code != code {
			t.Errorf("%s: %+v", args, r)
		}
	}
}
