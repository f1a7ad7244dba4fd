package main

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/planvault/azblob"
)

// line describes one request, or many requests of a kind.
type line struct {
	Method string `json:"method"`
	// What is the blob's name without IDs, or the operation.
	What   string `json:"what"`
	Count  int    `json:"count"`
	Status int    `json:"status,omitempty"`
	Remark string `json:"remark,omitempty"`
	// Containers is the number of containers that the requests went to.
	Containers int `json:"containers"`
}

const uuidText = `[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`

var (
	partName = regexp.MustCompile(uuidText + `/` + uuidText + `\.json`)
	planID   = regexp.MustCompile(uuidText)
)

// shorten takes the IDs out of a name.
func shorten(name string) string {
	return planID.ReplaceAllString(partName.ReplaceAllString(name, "<plan>/…"), "<plan>")
}

// describe returns the line of one request.
func describe(r azblob.RequestEvent) line {
	l := line{Method: r.Method, What: shorten(r.Blob), Status: r.Status}
	switch r.Name {
	case "put", "get", "head", "delete":
	default:
		l.What = strings.TrimSpace(r.Name + " " + l.What)
	}
	if r.Status == 0 {
		l.Remark = "no answer"
	}
	return l
}

// trace turns requests into lines, in the order in which each kind first occurs. The requests of a fan-out
// share a line.
func trace(requests []azblob.RequestEvent) []line {
	var lines []line
	index := map[line]int{}
	containers := map[int]map[string]bool{}
	for _, r := range requests {
		l := describe(r)
		i, seen := index[l]
		if !seen {
			i = len(lines)
			index[l] = i
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
		result = fmt.Sprint(l.Status)
	}
	return fmt.Sprintf("%-6s %-60s %s", l.Method, what, result)
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
