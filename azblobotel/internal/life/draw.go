package main

import (
	"bytes"
	"fmt"
	"html"
	"time"
)

// The measures of the drawing, in pixels.
const (
	left, middle, right = 12, 290, 700 // of the names, the bars, and the results
	top, line           = 26, 20
)

// draw draws the rows as an SVG: bars on a common axis of time.
func draw(rows []row) []byte {
	var total time.Duration
	for _, r := range rows {
		total = max(total, r.end)
	}
	at := func(d time.Duration) float64 { return middle + float64(d)/float64(total)*(right-middle-70) }
	height := top + line*len(rows)
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 970 %d" width="970" height="%[1]d" role="img" aria-label="A trace: the operations of a plan's life, with their requests">`, height)
	fmt.Fprintf(&b, "\n"+`<rect width="970" height="%d" rx="8" fill="#0d1117"/>`+"\n", height)
	b.WriteString(`<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, DejaVu Sans Mono, monospace" font-size="12.5">` + "\n")
	text := func(x float64, y int, color, text string) {
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" fill="%s">%s</text>`+"\n", x, y, color, html.EscapeString(text))
	}
	for i, r := range rows {
		y, color := top+line*i, colorOf(r)
		text(float64(left+16*r.depth), y, color, r.name)
		if r.event {
			text(at(r.start)-4, y, color, "◆")
			text(at(r.start)+10, y, color, r.result)
			continue
		}
		fmt.Fprintf(&b, `<rect x="%.1f" y="%d" width="%.1f" height="10" rx="2" fill="%s"/>`+"\n", at(r.start), y-9, max(2, at(r.end)-at(r.start)), color)
		text(at(r.end)+6, y, "#8b949e", milliseconds(r.end-r.start))
		text(right, y, color, r.result)
	}
	b.WriteString("</g>\n</svg>\n")
	return b.Bytes()
}

func colorOf(r row) string {
	switch {
	case r.failed:
		return "#f85149"
	case r.event:
		return "#d29922"
	case r.depth < 2:
		return "#58a6ff"
	}
	return "#8b949e"
}
