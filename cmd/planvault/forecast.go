package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/internal/price"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// A forecast goes from the numbers of plans of past days to that of the days to come, and from there to requests, bytes
// and dollars, by what a plan of a typical day takes.

const (
	week         = 7
	leastWeeks   = 4  // of history that a forecast needs
	mostWeeks    = 8  // of history that it looks at
	forecastDays = 30 // that it covers
	historyWeeks = 26 // that are read, so that forecasts of the past can be compared with what came
)

// forecast is what the days from today on are expected to bring.
type forecast struct {
	Days []forecastDay `json:"days"`
	// Total is their sum, and Low and High its range, if a forecast of the past could be compared with what came.
	Total forecastDay  `json:"total"`
	Low   *forecastDay `json:"low,omitempty"`
	High  *forecastDay `json:"high,omitempty"`
	// Compared is how many forecasts of the past were, and Error how far what came was off on average: 0.1 is a tenth.
	Compared int     `json:"compared"`
	Error    float64 `json:"error"`
	// Weeks is how many weeks the forecast looked at, and SubObjects and Bytes are those of a plan of the sampled day.
	Weeks      int     `json:"weeks"`
	Sampled    string  `json:"sampled"`
	SubObjects float64 `json:"subObjectsPerPlan"`
	Bytes      float64 `json:"bytesPerPlan"`
}

// forecastDay is a day of a forecast, or the total. Dollars are those of the requests, and of storing the bytes for a
// month.
type forecastDay struct {
	Day        string  `json:"day,omitempty"`
	Plans      int64   `json:"plans"`
	NotStarted int64   `json:"notStarted"`
	Running    int64   `json:"running"`
	Completed  int64   `json:"completed"`
	Failed     int64   `json:"failed"`
	Stopped    int64   `json:"stopped"`
	Requests   int64   `json:"requests"`
	Bytes      int64   `json:"bytes"`
	Dollars    float64 `json:"dollars"`
}

func (d forecastDay) cells() []string {
	cells := []string{d.Day}
	for _, n := range []int64{d.Plans, d.NotStarted, d.Running, d.Completed, d.Failed, d.Stopped, d.Requests} {
		cells = append(cells, count(n))
	}
	return append(cells, byteSize(d.Bytes), dollars(d.Dollars))
}

// typical is what a plan takes: the shares of the statuses, the sub-objects and the bytes.
type typical struct {
	shares            map[workflow.Status]float64
	subObjects, bytes float64
}

// day returns what a number of plans takes. A plan that was begun takes the requests of docs/scale.md; one that is
// NotStarted only those of its creation.
func (t typical) day(name string, plans float64) forecastDay {
	of := func(s workflow.Status) int64 { return round(plans * t.shares[s]) }
	waiting := plans * t.shares[workflow.NotStarted]
	writes := waiting*(t.subObjects+3) + (plans-waiting)*(3*t.subObjects+6)
	others, bytes := plans-waiting, plans*t.bytes
	return forecastDay{
		Day: name, Plans: round(plans), NotStarted: of(workflow.NotStarted), Running: of(workflow.Running),
		Completed: of(workflow.Completed), Failed: of(workflow.Failed), Stopped: of(workflow.Stopped),
		Requests: round(writes + 2*others), Bytes: round(bytes), // a HEAD and a free delete for each
		Dollars: writes*price.Of(azblob.ClassWrite) + others*price.Of(azblob.ClassOther) + bytes/1e9*price.GBMonth,
	}
}

func round(n float64) int64 { return int64(n + 0.5) }

// forecastOf makes a forecast from the numbers of past days, the last of which is yesterday.
func forecastOf(history []float64, today time.Time, plan typical) forecast {
	f := forecast{Weeks: min(len(history)/week, mostWeeks), SubObjects: plan.subObjects, Bytes: plan.bytes}
	predicted := predict(history, forecastDays)
	for i, plans := range predicted {
		f.Days = append(f.Days, plan.day(date(today.AddDate(0, 0, i)), plans))
	}
	all := sum(predicted)
	f.Total = plan.day("total", all)
	if off := backtest(history, forecastDays); len(off) > 0 {
		low, high := plan.day("low", all*(1+min(0, slices.Min(off)))), plan.day("high", all*(1+max(0, slices.Max(off))))
		f.Low, f.High, f.Compared = &low, &high, len(off)
		for _, e := range off {
			f.Error += max(e, -e) / float64(len(off))
		}
	}
	return f
}

// forecastStats prints a forecast.
func (a *app) forecastStats(ctx context.Context, v *azblob.Vault, now time.Time) error {
	today := now.UTC().Truncate(24 * time.Hour)
	p := a.progress("stats", "day", historyWeeks*week).then(untouched)
	days, err := storage.Collect(v.Stats(ctx, azblob.StatsOptions{After: today.AddDate(0, 0, -historyWeeks*week), Before: today}))
	p.end()
	if err != nil {
		return err
	}
	history, plan := historyOf(days, today)
	if predict(history, 1) == nil {
		found := fmt.Sprintf("the oldest of the last %d weeks are %s old", historyWeeks, plural(len(history), "day"))
		if history == nil {
			found = fmt.Sprintf("the last %d weeks have none", historyWeeks)
		}
		return &exitError{exitFound, fmt.Errorf("a forecast needs %d weeks of plans, and %s", leastWeeks, found)}
	}
	sampled := sampleOf(days, today)
	if sampled.Total() > 0 {
		sized, err := storage.Collect(v.Stats(ctx, azblob.StatsOptions{After: sampled.Day, Before: sampled.Day.AddDate(0, 0, 1), Bytes: true}))
		if err != nil {
			return err
		}
		for _, d := range sized {
			n := float64(max(1, d.Total()))
			plan.subObjects, plan.bytes = max(0, float64(d.Blobs)/n-2), float64(d.Bytes)/n
		}
	}
	f := forecastOf(history, today, plan)
	f.Sampled = date(sampled.Day)
	if a.output == outputJSON {
		return a.print(f, nil)
	}
	return cmp.Or(printTable(a, f.rows(), forecastDay.cells,
		"DAY", ">PLANS", ">NOT STARTED", ">RUNNING", ">COMPLETED", ">FAILED", ">STOPPED", ">REQUESTS", ">SIZE", ">$"), a.print(f, f.notes))
}

// historyOf returns the plans of each day until yesterday, beginning with the first day that has any, and how the statuses
// share those of the days that are closed.
func historyOf(days []azblob.DayStats, today time.Time) (history []float64, plan typical) {
	plan.shares = map[workflow.Status]float64{}
	all := 0.0
	for _, d := range slices.Backward(days) {
		ago := int(today.Sub(d.Day) / (24 * time.Hour))
		if history == nil && d.Total() > 0 {
			history = make([]float64, ago)
		}
		if ago < 1 || history == nil {
			continue
		}
		history[len(history)-ago] = float64(d.Total())
		for status, n := range d.Plans {
			if 2 <= ago && ago <= mostWeeks*week {
				plan.shares[status] += float64(n)
				all += float64(n)
			}
		}
	}
	for status := range plan.shares {
		plan.shares[status] /= all
	}
	return history, plan
}

// sampleOf returns the day that is in the middle of the last weeks' by its number of plans, so that one day stands for all.
func sampleOf(days []azblob.DayStats, today time.Time) (sample azblob.DayStats) {
	last := slices.DeleteFunc(slices.Clone(days), func(d azblob.DayStats) bool {
		return d.Total() == 0 || d.Day.Before(today.AddDate(0, 0, -mostWeeks*week)) || d.Day.After(today.AddDate(0, 0, -2))
	})
	if len(last) == 0 {
		return sample
	}
	slices.SortFunc(last, func(a, b azblob.DayStats) int { return cmp.Compare(a.Total(), b.Total()) })
	return last[len(last)/2]
}

// rows returns the days, their total and its range.
func (f forecast) rows() []forecastDay {
	rows := append(slices.Clone(f.Days), f.Total)
	if f.Compared > 0 {
		rows = append(rows, *f.Low, *f.High)
	}
	return rows
}

// notes says what the forecast goes by, and how far forecasts of the past were off.
func (f forecast) notes(w io.Writer) {
	fmt.Fprintf(w, "from %d weeks; a plan has %.3g sub-objects and %s, as on %s\n", f.Weeks, f.SubObjects, byteSize(round(f.Bytes)), f.Sampled)
	if f.Compared == 0 {
		fmt.Fprintln(w, "no range: no forecast of the past can be compared with what came")
		return
	}
	fmt.Fprintf(w, "low and high: %s of the past missed what came by %.0f%% on average, and by this range at worst\n", plural(f.Compared, "forecast"), 100*f.Error)
}

// predict returns the numbers of the days that follow history, which has one number for each day. The number of a day is
// the median of its weekday in the last weeks, times a line through these weeks: the median of the slopes between two days
// each. So neither a burst nor a holiday counts for much. It returns nil if the history is shorter than four weeks.
func predict(history []float64, days int) []float64 {
	weeks := min(len(history)/week, mostWeeks)
	if weeks < leastWeeks {
		return nil
	}
	last := history[len(history)-week*weeks:]
	var usual [week]float64
	for d := range usual {
		var same []float64
		for i := d; i < len(last); i += week {
			same = append(same, last[i])
		}
		usual[d] = median(same)
	}
	relative := make([]float64, len(last)) // to what is usual; negative for weekdays on which nothing is
	for i, n := range last {
		relative[i] = -1
		if usual[i%week] > 0 {
			relative[i] = n / usual[i%week]
		}
	}
	slope, level := line(relative)
	predicted := make([]float64, days)
	for k := range predicted {
		i := len(last) + k
		predicted[k] = usual[i%week] * max(0, level+slope*float64(i))
	}
	return predicted
}

// line returns the slope and the start of a line through values, without those that are negative.
func line(values []float64) (slope, start float64) {
	var slopes, starts []float64
	for i, v := range values {
		for j := range i {
			if v >= 0 && values[j] >= 0 {
				slopes = append(slopes, (v-values[j])/float64(i-j))
			}
		}
	}
	slope = median(slopes)
	for i, v := range values {
		if v >= 0 {
			starts = append(starts, v-slope*float64(i))
		}
	}
	return slope, median(starts)
}

// backtest forecasts each month of the past that a history has, a week later each time, and returns how far what came was
// off: 0.1 is a tenth more than predicted.
func backtest(history []float64, days int) (errs []float64) {
	for end := len(history) - days; end >= leastWeeks*week; end -= week {
		if predicted := sum(predict(history[:end], days)); predicted > 0 {
			errs = append(errs, sum(history[end:end+days])/predicted-1)
		}
	}
	return errs
}

// median returns the median of values, which it sorts; 0 if there are none.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	middle := len(values) / 2
	if len(values)%2 == 1 {
		return values[middle]
	}
	return (values[middle-1] + values[middle]) / 2
}

func sum(values []float64) (sum float64) {
	for _, v := range values {
		sum += v
	}
	return sum
}
