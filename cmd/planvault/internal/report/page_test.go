package report_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"golang.org/x/net/html"

	"github.com/planvault/azblob/cmd/planvault/internal/report"
	"github.com/planvault/azblob/internal/goldentest"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/plugins"
	"github.com/planvault/azblob/workflow"
)

// began is when the plan of testdata/plan.json starts.
var began = time.Date(2026, 11, 20, 14, 3, 7, 0, time.UTC)

// rollout returns the plan of a release, as planvault get prints it: with all kinds of checks, attempts that failed, a
// host on which the release failed in the end, and what was done then.
func rollout(t testing.TB) *workflow.Plan {
	t.Helper()
	text, err := os.ReadFile("testdata/plan.json")
	if err != nil {
		t.Fatal(err)
	}
	p := new(workflow.Plan)
	if err := workflow.Unmarshal(text, p); err != nil {
		t.Fatal(err)
	}
	return p
}

// large returns a plan of a thousand actions.
func large(t testing.TB) *workflow.Plan {
	t.Helper()
	p := rollout(t)
	for i := range 330 {
		b := rollout(t).Blocks[0]
		if i%10 == 0 {
			b = rollout(t).Blocks[1] // it has attempts that failed
		}
		p.Blocks[2].Sequences = append(p.Blocks[2].Sequences, b.Sequences...)
	}
	return p
}

func write(t testing.TB, p *workflow.Plan, o report.Options) []byte {
	t.Helper()
	var page bytes.Buffer
	if err := report.Write(&page, p, o); err != nil {
		t.Fatal(err)
	}
	return page.Bytes()
}

// TestPage compares the page of a small plan, without its style, with a golden file.
func TestPage(t *testing.T) {
	p := rollout(t)
	p.Blocks = p.Blocks[2:]
	p.ForkedFrom = uuid.MustParse("019a0000-0000-7000-8000-000000000001")
	page := write(t, p, report.Options{
		Now: began.Add(time.Hour), Scripts: []string{"/live.js"}, OwnerName: "host-3", Stuck: "Nobody works on it.",
		Site:     &report.Site{Name: "ci", Home: "/", Find: "/find", Links: []report.Link{{Text: "Plans", URL: "/plans"}}},
		Commands: []report.Command{{When: "If all else fails:", Line: "planvault stop 'a plan'"}},
		PlanURL:  func(id uuid.UUID) string { return "/plan/" + id.String() },
	})
	page = regexp.MustCompile(`(?s)<style>.*</style>`).ReplaceAll(page, []byte("<style></style>"))
	page = regexp.MustCompile(`sha256-[^=]*=`).ReplaceAll(page, []byte("sha256-"))
	goldentest.Equal(t, "testdata/page.html", page)
}

// TestPageOfAThousandActions holds the page of a large plan to a size that a browser loads at once.
func TestPageOfAThousandActions(t *testing.T) {
	page := write(t, large(t), report.Options{Now: began.Add(time.Hour)})
	if actions := strings.Count(string(page), `class="node action`); actions < 1000 || len(page) > 2_100_000 {
		t.Errorf("a page of %d actions has %d bytes", actions, len(page))
	}
	if told := strings.Count(string(page), `class="node action told`); told > 10 { // print shows their attempts
		t.Errorf("print shows the attempts of %d actions", told)
	}
	if bars := strings.Count(string(page), "<title>"); bars > 3000 {
		t.Errorf("%d bars", bars)
	}
}

// TestStrangePlans makes pages of what no engine stores, but a vault may hold.
func TestStrangePlans(t *testing.T) {
	edge := func(edit func(p *workflow.Plan, a *workflow.Action)) *workflow.Plan {
		p := rollout(t)
		edit(p, p.Blocks[0].Sequences[0].Actions[0])
		return p
	}
	named := func(name string) *workflow.Plan {
		return edge(func(p *workflow.Plan, _ *workflow.Action) { p.Name = name })
	}
	year9999 := time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		name string
		plan *workflow.Plan
		want string // in the page's text
	}{
		{"nil", nil, "not started"},
		{"empty", new(workflow.Plan), "The plan has no actions."},
		{"without times", plantest.Full(), "not started 1 action"},
		{"a long name", named(strings.Repeat("n", 1e5)), strings.Repeat("n", 120) + "…"},
		{"its whole", named(strings.Repeat("n", 6e4)), "Whole name" + strings.Repeat("n", 6e4)},
		{"a name of 1 MB", named(strings.Repeat("n", 1e6)), "… (934464 more bytes)"},
		{"thousands of labels", edge(func(p *workflow.Plan, _ *workflow.Action) {
			p.Labels = map[string]string{}
			for i := range 5000 {
				p.Labels[fmt.Sprint("label", i)] = strings.Repeat("v", 100)
			}
		}), "label0=vvv"},
		{"an unprintable name", named("a\x1b[2Jb\u202ec"), `a\x1b[2Jb\u202ec`},
		{"a broken name", edge(func(_ *workflow.Plan, a *workflow.Action) { a.Name = "x\xffy\x00\u2028" }), `x\xffy\x00\u2028`},
		{"ends in the year 9999", edge(func(_ *workflow.Plan, a *workflow.Action) { a.Attempts[0].End = year9999 }), "9999-12-31 00:00:00.000Z"},
		{"starts in the year 1", edge(func(_ *workflow.Plan, a *workflow.Action) { a.Attempts[0].Start = time.Time{}.Add(1) }), "0001-01-01 00:00:00.000Z"},
		{"ends before it starts", edge(func(_ *workflow.Plan, a *workflow.Action) {
			a.Attempts[0].End = a.Attempts[0].Start.Add(-1500 * time.Millisecond)
		}), "-1.5s"},
		{"5,000 attempts", edge(func(_ *workflow.Plan, a *workflow.Action) {
			for range 5000 {
				a.Attempts = append(a.Attempts, workflow.Attempt{Start: began, End: began.Add(time.Millisecond), Err: &plugins.Error{Message: "no"}})
			}
		}), "4991 earlier attempts"},
		{"no such status", edge(func(p *workflow.Plan, _ *workflow.Action) { p.State.Status = -3 }), "status(-3)"},
		{"no such status of an action", edge(func(_ *workflow.Plan, a *workflow.Action) { a.State.Status = 77 }), "status(77)"},
		{"a request of 1 MB", edge(func(_ *workflow.Plan, a *workflow.Action) {
			a.Req = json.RawMessage(`"` + strings.Repeat("r", 1e6) + `"`)
		}), "934466 more bytes are not shown here."},
		{"a request that is nested deeply", edge(func(_ *workflow.Plan, a *workflow.Action) {
			a.Req = json.RawMessage(strings.Repeat("[", 9000) + strings.Repeat("]", 9000))
		}), "[[[[]]]]"},
		{"a request without JSON", edge(func(_ *workflow.Plan, a *workflow.Action) { a.Req = math.Inf(1) }), "float64: json: unsupported value: +Inf"},
		{"metadata that are no text", edge(func(p *workflow.Plan, _ *workflow.Action) { p.Meta = []byte{0xff, 0} }), `\xff\x00`},
		{"nil elements", &workflow.Plan{Blocks: []*workflow.Block{nil, {Sequences: []*workflow.Sequence{nil, {Actions: []*workflow.Action{nil}}}}}}, "no actions"},
	} {
		page := write(t, test.plan, report.Options{Now: began.Add(time.Hour)})
		if text := textOf(checkHTML(t, page)); !strings.Contains(text, test.want) || len(page) > 500_000 && !strings.Contains(test.name, "attempts") {
			t.Errorf("%s: the page has %d bytes, or lacks %.50q", test.name, len(page), test.want)
		}
	}
}

// checkHTML parses a page and reports what a plan must not bring into it: elements, attributes and links.
func checkHTML(t testing.TB, page []byte) *html.Node {
	t.Helper()
	doc, err := html.Parse(bytes.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	ids, links := map[string]bool{}, []string{}
	for n := range doc.Descendants() {
		switch n.Data {
		case "script", "iframe", "object", "embed", "img", "form", "base", "link":
			if n.Type == html.ElementNode {
				t.Errorf("the page has a %s", n.Data)
			}
		}
		for _, a := range n.Attr {
			switch {
			case strings.HasPrefix(a.Key, "on"), a.Key == "style", a.Key == "src":
				t.Errorf("a %s has the attribute %s", n.Data, a.Key)
			case a.Key == "href" && !strings.HasPrefix(a.Val, "#"):
				t.Errorf("the page has a link to %q", a.Val)
			case a.Key == "href":
				links = append(links, a.Val[1:])
			case a.Key == "id" && ids[a.Val]:
				t.Errorf("the id %s is there twice", a.Val)
			case a.Key == "id":
				ids[a.Val] = true
			case a.Key == "x" || a.Key == "width":
				if v, err := strconv.ParseFloat(strings.TrimSuffix(a.Val, "%"), 64); err != nil || v < 0 || v > 100 && strings.HasSuffix(a.Val, "%") {
					t.Errorf("%s=%q", a.Key, a.Val)
				}
			}
		}
	}
	for _, l := range links {
		if !ids[l] {
			t.Errorf("the link #%s leads nowhere", l)
		}
	}
	return doc
}

func textOf(doc *html.Node) string {
	var b strings.Builder
	for n := range doc.Descendants() {
		if n.Type == html.TextNode {
			b.WriteString(n.Data)
		}
	}
	return b.String()
}

// FuzzPage checks that whatever a plan holds, its page is HTML of the template's elements alone, and shows no
// character that is invisible.
func FuzzPage(f *testing.F) {
	for s := range plantest.Strange() {
		f.Add(s, int64(0), int64(1e9), uint8(2))
	}
	f.Add(`"><script>alert(1)</script>`, int64(math.MinInt64), int64(math.MaxInt64), uint8(3))
	f.Add(`</style></title></textarea><img src=x onerror=alert(1)>{{.}}`, int64(5e18), int64(0), uint8(1))
	f.Add("javascript:alert(1)", int64(-9e18), int64(1), uint8(200))
	f.Fuzz(func(t *testing.T, s string, start, end int64, status uint8) {
		at := func(ns int64) time.Time { return began.Add(time.Duration(ns)) }
		state := workflow.State{Status: workflow.Status(status), Start: at(start), End: at(end), ETag: s}
		a := &workflow.Action{
			Name: s, Descr: s, Plugin: s, Req: json.RawMessage(s), State: state, Timeout: time.Duration(start),
			Attempts: []workflow.Attempt{
				{Start: at(start), End: at(end), Resp: json.RawMessage(s), Err: &plugins.Error{Message: s, Wrapped: &plugins.Error{Message: s}}},
				{Start: at(end), Resp: s},
			},
		}
		p := &workflow.Plan{
			Name: s, Descr: s, Meta: []byte(s), State: state, Reason: workflow.FailureReason(status),
			Blocks:          []*workflow.Block{{Name: s, Descr: s, State: state, Sequences: []*workflow.Sequence{{Name: s, Actions: []*workflow.Action{a, a}}}}},
			DeferredActions: &workflow.DeferredActions{Batches: []*workflow.DeferBatch{{Name: s, When: workflow.When(status), Actions: []*workflow.Action{a}}}},
			PreChecks:       &workflow.Checks{Actions: []*workflow.Action{a}},
		}
		page := write(t, p, report.Options{Now: at(end)})
		for _, r := range textOf(checkHTML(t, page)) {
			if r < ' ' && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0 || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 {
				t.Errorf("the page has the character %U", r)
			}
		}
	})
}

// TestContrast computes the contrast of the palette in both themes, as WCAG 2.2 does: 4.5 for text, and 3 for
// graphics.
func TestContrast(t *testing.T) {
	css, err := os.ReadFile("tokens.css")
	if err != nil {
		t.Fatal(err)
	}
	light, dark, _ := strings.Cut(string(css), "@media (prefers-color-scheme: dark)")
	dark, _, _ = strings.Cut(dark, "\n}\n")
	for theme, text := range map[string]string{"light": light, "dark": dark} {
		palette := map[string]float64{}
		for _, m := range regexp.MustCompile(`--(\w+): #([0-9a-f]{6})`).FindAllStringSubmatch(text, -1) {
			palette[m[1]] = luminance(m[2])
		}
		if len(palette) != 13 {
			t.Errorf("%s: the palette has %d colors", theme, len(palette))
		}
		for _, c := range []string{"text", "dim", "link", "ok", "bad", "run", "stop", "cut", "idle"} {
			for _, ground := range []string{"bg", "panel"} {
				if got := contrast(palette[c], palette[ground]); got < 4.5 {
					t.Errorf("%s: %s on %s has a contrast of %.2f", theme, c, ground, got)
				}
			}
		}
		for _, badge := range []string{"ok", "bad", "run", "stop", "idle"} {
			if got := contrast(palette["on"], palette[badge]); got < 4.5 {
				t.Errorf("%s: the badge %s has a contrast of %.2f", theme, badge, got)
			}
		}
	}
}

func contrast(a, b float64) float64 { return (max(a, b) + 0.05) / (min(a, b) + 0.05) }

// luminance returns the relative luminance of a color.
func luminance(color string) (l float64) {
	for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
		n, _ := strconv.ParseUint(color[2*i:2*i+2], 16, 8)
		v := float64(n) / 255
		if v <= 0.04045 {
			v /= 12.92
		} else {
			v = math.Pow((v+0.055)/1.055, 2.4)
		}
		l += weight * v
	}
	return l
}

// TestPolicyAllowsTheStyle checks the hash of the style as a browser computes it, which the page would be bare
// without.
func TestPolicyAllowsTheStyle(t *testing.T) {
	_, rest, _ := bytes.Cut(write(t, plantest.Small(), report.Options{}), []byte("<style>"))
	style, _, _ := bytes.Cut(rest, []byte("</style>"))
	sum := sha256.Sum256(style)
	if want := "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"; !strings.Contains(report.Policy(report.Options{}), want) {
		t.Errorf("the policy %q lacks %s", report.Policy(report.Options{}), want)
	}
}

func TestWriteFails(t *testing.T) {
	full, w := io.Pipe()
	full.CloseWithError(io.ErrShortWrite)
	if err := report.Write(w, plantest.Full(), report.Options{}); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("Write returns %v", err)
	}
}
