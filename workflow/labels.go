package workflow

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The limits of a plan's labels: their number, and the bytes of a key and of a value.
const (
	MaxLabels     = 16
	MaxLabelKey   = 63
	MaxLabelValue = 128
)

// CheckLabels returns what is wrong with labels, by the rules of [Plan].Labels.
func CheckLabels(labels map[string]string) error {
	if len(labels) > MaxLabels {
		return fmt.Errorf("there are %d labels, at most %d are allowed", len(labels), MaxLabels)
	}
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		value := labels[key]
		switch notInKey := func(r rune) bool { return r <= ' ' || r > '~' || r == '=' || r == ',' }; {
		case key == "" || len(key) > MaxLabelKey || strings.ContainsFunc(key, notInKey):
			return fmt.Errorf("%.100q is not a key: it must have 1 to %d visible ASCII characters without = and ,", key, MaxLabelKey)
		case len(value) > MaxLabelValue:
			return fmt.Errorf("the value of %s has %d bytes, at most %d are allowed", key, len(value), MaxLabelValue)
		case !utf8.ValidString(value), strings.ContainsFunc(value, unicode.IsControl), strings.Contains(value, ","), strings.TrimSpace(value) != value:
			return fmt.Errorf("the value of %s, %q, must be UTF-8 without commas, control characters and blanks at its ends", key, value)
		}
	}
	return nil
}

// FormatLabels returns labels as a text such as env=prod,team=web, sorted by key.
func FormatLabels(labels map[string]string) string {
	var text []byte
	for i, key := range slices.Sorted(maps.Keys(labels)) {
		if i > 0 {
			text = append(text, ',')
		}
		text = append(append(append(text, key...), '='), labels[key]...)
	}
	return string(text)
}

// ParseLabels parses a text as [FormatLabels] returns it for one label or more. Blanks around a label are ignored.
func ParseLabels(text string) (map[string]string, error) {
	labels := map[string]string{}
	for label := range strings.SplitSeq(strings.Clone(text), ",") { // the text may be part of a large one
		key, value, ok := strings.Cut(strings.TrimSpace(label), "=")
		if !ok {
			return nil, fmt.Errorf("%.200q is not a label: labels look like key=value", label)
		}
		if _, twice := labels[key]; twice {
			return nil, fmt.Errorf("label %.100q is given twice", key)
		}
		labels[key] = value
	}
	return labels, CheckLabels(labels)
}
