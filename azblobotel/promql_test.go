package azblobotel_test

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// This file evaluates the part of PromQL that docs/alerts.yml uses, on series that tests record. Unlike Prometheus,
// rate and increase do not extrapolate.

// labels are the labels of a series. The name of the metric is __name__.
type labels map[string]string

// without returns the labels but some, as text.
func (l labels) without(names ...string) string {
	kept := maps.Clone(l)
	for _, name := range names {
		delete(kept, name)
	}
	return fmt.Sprint(map[string]string(kept)) // fmt sorts maps
}

// sample is a value at a time. NaN says that the series had ended.
type sample struct {
	at    time.Time
	value float64
}

// recorded is a series with its samples, oldest first.
type recorded struct {
	labels  labels
	samples []sample
}

// element is a series of a result.
type element struct {
	labels labels
	value  float64
}

// recording has all series, by a text that names them.
type recording map[string]*recorded

// note records a value.
func (r recording) note(key string, at time.Time, value float64, of func() labels) {
	if r[key] == nil {
		r[key] = &recorded{labels: of()}
	}
	r[key].samples = append(r[key].samples, sample{at, value})
}

// end ends the series that are not there any more at a time.
func (r recording) end(at time.Time) {
	for _, s := range r {
		if last := s.samples[len(s.samples)-1]; last.at.Before(at) {
			s.samples = append(s.samples, sample{at, math.NaN()})
		}
	}
}

// query evaluates an expression at a time.
type query struct {
	recording
	tokens []string
	at     time.Time
}

var token = regexp.MustCompile(`"[^"]*"|=~|!~|!=|==|\d+[smh]\b|[\d.]+|[\w:]+|\S`)

func (r recording) eval(expr string, at time.Time) []element {
	q := &query{r, token.FindAllString(expr, -1), at}
	result := q.binary(0)
	if len(q.tokens) > 0 {
		panic(fmt.Sprintf("what is %q in %q?", q.tokens, expr))
	}
	return result
}

func (q *query) peek() string {
	if len(q.tokens) == 0 {
		return ""
	}
	return q.tokens[0]
}

func (q *query) next() string {
	t := q.peek()
	q.tokens = q.tokens[1:]
	return t
}

// accept consumes a token if it is the next one.
func (q *query) accept(t string) bool {
	if q.peek() != t {
		return false
	}
	q.next()
	return true
}

func (q *query) expect(t string) {
	if !q.accept(t) {
		panic(fmt.Sprintf("%q should be %q", q.tokens, t))
	}
}

var operators = [][]string{{"or"}, {"unless", "and"}, {">", "<", "=="}, {"/", "*"}} // by precedence

func (q *query) binary(level int) []element {
	if level == len(operators) {
		return q.primary()
	}
	left := q.binary(level + 1)
	for slices.Contains(operators[level], q.peek()) {
		op := q.next()
		left = combine(op, left, q.binary(level+1))
	}
	return left
}

// combine applies an operator. Its right side is a vector whose labels are compared, or a number.
func combine(op string, left, right []element) (result []element) {
	match := func(e element, list []element) (element, bool) {
		i := slices.IndexFunc(list, func(o element) bool {
			return o.labels == nil || o.labels.without("__name__") == e.labels.without("__name__")
		})
		if i < 0 {
			return element{}, false
		}
		return list[i], true
	}
	for _, l := range left {
		r, found := match(l, right)
		switch op {
		case "or":
			result = append(result, l)
		case "unless", "and":
			if found == (op == "and") {
				result = append(result, l)
			}
		case "/":
			if found {
				result = append(result, element{l.labels, l.value / r.value})
			}
		default:
			if found && (op == ">" && l.value > r.value || op == "<" && l.value < r.value || op == "==" && l.value == r.value) {
				result = append(result, l)
			}
		}
	}
	if op == "or" {
		for _, r := range right {
			if _, found := match(r, left); !found {
				result = append(result, r)
			}
		}
	}
	return result
}

func (q *query) primary() (result []element) {
	if q.accept("(") {
		defer q.expect(")")
		return q.binary(0)
	}
	name := q.next()
	if number, err := strconv.ParseFloat(name, 64); err == nil {
		return []element{{nil, number}}
	}
	var by []string
	if q.accept("by") {
		by = q.names()
	}
	if !q.accept("(") {
		return q.series(name, func(s []sample, _ time.Duration) (float64, bool) {
			last := s[len(s)-1]
			return last.value, !math.IsNaN(last.value)
		})
	}
	defer q.expect(")")
	switch name {
	case "rate", "increase":
		return q.series(q.next(), func(s []sample, window time.Duration) (float64, bool) {
			s = slices.DeleteFunc(slices.Clone(s), func(s sample) bool { return math.IsNaN(s.value) })
			if len(s) < 2 {
				return 0, false
			}
			value := s[len(s)-1].value - s[0].value
			if name == "rate" {
				value /= window.Seconds()
			}
			return value, true
		})
	case "absent":
		if len(q.binary(0)) == 0 {
			return []element{{labels{}, 1}}
		}
		return nil
	case "histogram_quantile":
		quantile := q.primary()[0].value
		q.expect(",")
		return quantiles(quantile, q.binary(0))
	}
	return aggregate(name, by, q.binary(0))
}

func (q *query) names() (names []string) {
	q.expect("(")
	for !q.accept(")") {
		if name := q.next(); name != "," {
			names = append(names, name)
		}
	}
	return names
}

// series selects series, and returns what value says of the samples in the window, by default that of lookback.
func (q *query) series(name string, value func([]sample, time.Duration) (float64, bool)) (result []element) {
	match := q.matchers(name)
	window, at := 5*time.Minute, q.at
	if q.accept("[") {
		window, _ = time.ParseDuration(q.next())
		q.expect("]")
	}
	if q.accept("offset") {
		offset, _ := time.ParseDuration(q.next())
		at = at.Add(-offset)
	}
	for _, s := range q.recording {
		if !match(s.labels) {
			continue
		}
		from, _ := slices.BinarySearchFunc(s.samples, at.Add(-window+1), func(s sample, at time.Time) int { return s.at.Compare(at) })
		to, _ := slices.BinarySearchFunc(s.samples, at.Add(1), func(s sample, at time.Time) int { return s.at.Compare(at) })
		if from == to {
			continue
		}
		if v, ok := value(s.samples[from:to], window); ok {
			result = append(result, element{s.labels, v})
		}
	}
	return result
}

func (q *query) matchers(name string) func(labels) bool {
	all := []func(labels) bool{func(l labels) bool { return l["__name__"] == name }}
	if q.accept("{") {
		for !q.accept("}") {
			key, op := q.next(), q.next()
			pattern := regexp.QuoteMeta(strings.Trim(q.peek(), `"`))
			if strings.HasSuffix(op, "~") {
				pattern = strings.Trim(q.peek(), `"`)
			}
			q.next()
			like := regexp.MustCompile("^(?:" + pattern + ")$")
			all = append(all, func(l labels) bool { return like.MatchString(l[key]) == (op[0] == '=') })
			q.accept(",")
		}
	}
	return func(l labels) bool { return !slices.ContainsFunc(all, func(m func(labels) bool) bool { return !m(l) }) }
}

func aggregate(name string, by []string, all []element) []element {
	groups := map[string]*element{}
	for _, e := range all {
		group := labels{}
		for _, label := range by {
			if v, ok := e.labels[label]; ok {
				group[label] = v
			}
		}
		g := groups[group.without()]
		switch {
		case g == nil:
			groups[group.without()] = &element{group, e.value}
		case name == "sum":
			g.value += e.value
		case name == "max":
			g.value = max(g.value, e.value)
		default:
			panic("what is " + name + "?")
		}
	}
	return values(groups)
}

// quantiles returns the upper bound of the bucket in which the quantile lies.
func quantiles(quantile float64, buckets []element) []element {
	bound := func(e element) float64 {
		le, err := strconv.ParseFloat(e.labels["le"], 64)
		if err != nil {
			panic(err)
		}
		return le
	}
	slices.SortFunc(buckets, func(a, b element) int { return int(min(1, max(-1, bound(a)-bound(b)))) })
	totals, groups := map[string]float64{}, map[string]*element{}
	for _, b := range buckets {
		totals[b.labels.without("le")] = b.value
	}
	for _, b := range buckets {
		if key := b.labels.without("le"); groups[key] == nil && totals[key] > 0 && b.value >= quantile*totals[key] {
			rest := maps.Clone(b.labels)
			delete(rest, "le")
			groups[key] = &element{rest, bound(b)}
		}
	}
	return values(groups)
}

func values(groups map[string]*element) (all []element) {
	for _, g := range groups {
		all = append(all, *g)
	}
	return all
}
