package main

import (
	"embed"
	"strings"

	"github.com/spf13/cobra"
)

// helpPages has a page for each command and each topic.
//
//go:embed help
var helpPages embed.FS

// helpOf returns the page of a command or a topic, and the examples below it. TestHelp finds a page that is missing.
func helpOf(name string) (long, example string) {
	page, _ := helpPages.ReadFile("help/" + strings.ReplaceAll(name, " ", "-") + ".txt")
	long, example, _ = strings.Cut(strings.TrimSuffix(string(page), "\n"), "\n\nExamples:\n")
	return long, example
}

// topics returns the pages of help that are about no command.
func (a *app) topics() (list []*cobra.Command) {
	for _, topic := range []struct{ name, short string }{
		{"connect", "Where the vault is, and how to log in"},
		{"exit-codes", "What the exit codes mean"},
		{"cost", "What requests cost, and how to see it"},
		{"output", "What commands print, and where"},
	} {
		long, _ := helpOf(topic.name)
		list = append(list, &cobra.Command{Use: topic.name, Short: topic.short, Long: long})
	}
	return append(list, &cobra.Command{Use: "output-fields", Short: "The columns and JSON fields of each command", Long: a.outputFields()})
}
