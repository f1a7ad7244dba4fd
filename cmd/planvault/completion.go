package main

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/planvault/azblob/storage"
)

const (
	// completedPlans is how many of the newest plans a shell offers, and completionTime how long it waits for them.
	completedPlans = 30
	completionTime = 3 * time.Second
)

// addCompletion says what a shell offers for the flags and arguments of a command, and of those below it. Commands that
// take the ID of a plan say so in Use.
func (a *app) addCompletion(c *cobra.Command) {
	byFlag := map[string]cobra.CompletionFunc{
		"status":     words("notstarted", "running", "completed", "failed", "stopped", "open", "final"),
		"profile":    a.completeProfiles,
		"to-profile": a.completeProfiles,
		"page":       a.completePlans,
	}
	offer := func(f *pflag.Flag) {
		complete := byFlag[f.Name]
		if value, ok := f.Value.(oneOf); ok {
			complete = words(value.words...)
		}
		if complete != nil {
			_ = c.RegisterFlagCompletionFunc(f.Name, complete) // it fails for a flag that has completion
		}
	}
	c.Flags().VisitAll(offer)
	c.PersistentFlags().VisitAll(offer)
	switch {
	case c.ValidArgsFunction != nil:
	case slices.ContainsFunc(strings.Fields(c.Use)[1:], func(arg string) bool { return strings.Trim(arg, "[].") == "ID" }):
		c.ValidArgsFunction = a.completePlans
	default:
		c.ValidArgsFunction = cobra.NoFileCompletions
	}
	for _, below := range c.Commands() {
		a.addCompletion(below)
	}
}

// words completes one of a few words.
func words(list ...cobra.Completion) cobra.CompletionFunc {
	return cobra.FixedCompletions(list, cobra.ShellCompDirectiveNoFileComp)
}

// completeProfiles completes the name of a profile.
func (a *app) completeProfiles(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	profiles, err := a.readProfiles()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return slices.Sorted(maps.Keys(profiles)), cobra.ShellCompDirectiveNoFileComp
}

// completePlans completes the ID of one of the newest plans, and says what it is. It takes the requests of a list, and is
// silent if there is no vault: a shell has no place for errors.
func (a *app) completePlans(c *cobra.Command, given []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(c.Context(), completionTime)
	defer cancel()
	v, err := a.open(ctx, a.connection)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	plans, _ := storage.Collect(v.List(ctx, completedPlans)) // those that could be read
	var offered []cobra.Completion
	for _, r := range plans {
		if id := r.ID.String(); !slices.Contains(given, id) {
			offered = append(offered, cobra.CompletionWithDesc(id, r.State.Status.String()+" "+printable(r.Name, 40)))
		}
	}
	return offered, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}
