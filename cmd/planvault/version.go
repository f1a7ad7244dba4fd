package main

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is what was built.
type version struct {
	Version string `json:"version" help:"the version of the module"`
	Commit  string `json:"commit,omitempty" help:"the commit that was built"`
	Changed bool   `json:"changed,omitempty" help:"whether the tree differed from the commit"`
	Go      string `json:"go" help:"the release of Go"`
	System  string `json:"system" help:"the operating system and the processor"`
}

// versionCommand prints what was built.
func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Say which version this is",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			v := builtVersion(debug.ReadBuildInfo())
			return a.print(v, func(w io.Writer) { fmt.Fprintln(w, v) })
		},
	}
}

// builtVersion returns the version in what the Go command noted.
func builtVersion(info *debug.BuildInfo, ok bool) version {
	v := version{Version: "unknown", Go: runtime.Version(), System: runtime.GOOS + "/" + runtime.GOARCH}
	if !ok {
		return v
	}
	v.Version = info.Main.Version
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Commit = s.Value
		case "vcs.modified":
			v.Changed = s.Value == "true"
		}
	}
	return v
}

// String returns "planvault v1.2.3, commit 0123456789ab, go1.26 linux/amd64".
func (v version) String() string {
	commit := ""
	if v.Commit != "" {
		commit = ", commit " + v.Commit[:min(12, len(v.Commit))]
	}
	if v.Changed {
		commit += " with changes"
	}
	return fmt.Sprintf("planvault %s%s, %s %s", v.Version, commit, v.Go, v.System)
}
