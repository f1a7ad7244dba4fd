package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// oneOf is the value of a flag that takes one of a few words.
type oneOf struct {
	value *string
	words []cobra.Completion
}

func (o oneOf) String() string { return *o.value }
func (o oneOf) Type() string   { return "word" }

func (o oneOf) Set(text string) error {
	if !slices.Contains(o.words, text) {
		last := len(o.words) - 1
		return fmt.Errorf("%q is not %s or %s", printable(text, 50), strings.Join(o.words[:last], ", "), o.words[last])
	}
	*o.value = text
	return nil
}

// outputFlag is the flag --output, and timeFlag the flag --time.
func (a *app) outputFlag() oneOf { return oneOf{&a.output, []string{outputTable, outputJSON}} }

func (a *app) timeFlag() oneOf { return oneOf{&a.times, []string{timeUTC, timeLocal, timeRelative}} }

// flagError says in words what is wrong with a flag.
func flagError(c *cobra.Command, err error) error {
	var (
		value   *pflag.InvalidValueError
		missing *pflag.ValueRequiredError
		unknown *pflag.NotExistError
	)
	switch {
	case errors.As(err, &value):
		if wants := wanted(value.GetFlag().Value.Type(), value); wants != "" {
			return fmt.Errorf("--%s takes %s, not %q", value.GetFlag().Name, wants, printable(value.GetValue(), 50))
		}
		return fmt.Errorf("--%s: %w", value.GetFlag().Name, errors.Unwrap(value))
	case errors.As(err, &missing):
		name, usage := pflag.UnquoteUsage(missing.GetFlag())
		return fmt.Errorf("--%s needs a value, %s: %s", missing.GetFlag().Name, name, usage)
	case errors.As(err, &unknown):
		name := "--" + unknown.GetSpecifiedName()
		if short := unknown.GetSpecifiedShortnames(); short != "" {
			name = "-" + short
		}
		return fmt.Errorf("%s has no flag %s", c.CommandPath(), printable(name, 50))
	}
	return err
}

// wanted says what a flag of a type of pflag takes. It returns "" if the flag's own error says it.
func wanted(kind string, err error) string {
	var number *strconv.NumError
	switch kind {
	case "duration":
		return "a time with a unit, such as 30s or 5m"
	case "int", "int64", "uint":
		if errors.As(err, &number) && errors.Is(number, strconv.ErrRange) {
			return "a smaller number"
		}
		return "a whole number"
	case "float64":
		return "a number"
	case "bool":
		return "true or false"
	}
	return ""
}
