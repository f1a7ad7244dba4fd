package main

import (
	"fmt"
	"regexp"
	"strings"
)

// line is what a reader sees of one request, or of many of a kind.
type line struct {
	Method string `json:"method"`
	// What is the blob's name with the IDs taken out, or what the request is instead.
	What   string `json:"what"`
	Count  int    `json:"count"`
	Status int    `json:"status,omitempty"`
	Remark string `json:"remark,omitempty"`
	// Containers is how many it was about.
	Containers int `json:"containers"`
}

var (
	uuidText  = `[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`
	planPart  = regexp.MustCompile(uuidText + `/` + uuidText + `\.json`)
	planAlone = regexp.MustCompile(uuidText)
)

// shorten takes the IDs out of a name.
func shorten(name string) string {
	return planAlone.ReplaceAllString(planPart.ReplaceAllString(name, "<plan>/…"), "<plan>")
}

// trace puts requests into lines, in the order in which each kind of them first came. Requests of a fan-out are of one kind.
func trace(requests []request) []line {
	var lines []line
	at := map[line]int{}
	containers := map[int]map[string]bool{}
	for _, r := range requests {
		l := line{Method: r.Method, What: shorten(r.Blob + r.About), Status: r.Status, Remark: r.Remark}
		if r.About != "" {
			l.What = shorten(r.About)
		}
		i, seen := at[l]
		if !seen {
			i = len(lines)
			at[l] = i
			lines = append(lines, l)
			containers[i] = map[string]bool{}
		}
		lines[i].Count++
		containers[i][r.Container] = true
		lines[i].Containers = len(containers[i])
	}
	return lines
}

func (l line) String() string {
	what := l.What
	if l.Count > 1 {
		what += fmt.Sprintf(" x %d", l.Count)
	}
	if l.Containers > 1 {
		what += fmt.Sprintf(" in %d containers", l.Containers)
	}
	result := l.Remark
	if l.Status != 0 {
		result = strings.TrimSpace(fmt.Sprintf("%d  %s", l.Status, l.Remark))
	}
	return fmt.Sprintf("%-6s %-60s %s", l.Method, what, result)
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
