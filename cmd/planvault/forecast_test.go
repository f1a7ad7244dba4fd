package main

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/planvault/azblob/workflow"
)

// load returns the plans of each day of a year: fewer at weekends, a growth, noise, a burst of three days, and a holiday of
// ten.
func load(growth float64, seed uint64) []float64 {
	r := rand.New(rand.NewPCG(seed, 1))
	days := make([]float64, 365)
	for i := range days {
		days[i] = 1000 * (1 + growth*float64(i)/365) * (0.9 + 0.2*r.Float64())
		if i%week > 4 {
			days[i] *= 0.3
		}
		switch {
		case i >= 150 && i < 153:
			days[i] *= 6
		case i >= 250 && i < 260:
			days[i] *= 0.2
		}
	}
	return days
}

// TestForecastError forecasts each month of years of synthetic load. The bounds are those that the help page states.
func TestForecastError(t *testing.T) {
	for _, growth := range []float64{-0.5, 0, 1, 3} {
		var all, calm, worst float64 // errors
		var months, calmMonths, ranges, inRange int
		for seed := range uint64(2) {
			year := load(growth, seed)
			for end := mostWeeks * week; end+forecastDays <= len(year); end += 3 {
				came := sum(year[end : end+forecastDays])
				f := forecastOf(year[max(0, end-historyWeeks*week):end], time.Time{}, typical{})
				off := math.Abs(came/sum(predict(year[:end], forecastDays)) - 1)
				all, months = all+off, months+1
				if (end+forecastDays > 150 && end < 153) || (end+forecastDays > 250 && end < 260) {
					continue
				}
				calm, calmMonths, worst = calm+off, calmMonths+1, max(worst, off)
				if f.Compared >= 8 {
					if ranges++; float64(f.Low.Plans) <= came && came <= float64(f.High.Plans) {
						inRange++
					}
				}
			}
		}
		all, calm = all/float64(months), calm/float64(calmMonths)
		covered := float64(inRange) / float64(ranges)
		if all > 0.11 || calm > 0.05 || worst > 0.25 || covered < 0.9 {
			t.Errorf("growth %v: off by %.3f on average, without a burst and a holiday by %.3f and at worst %.3f; %.2f of %d in the range", growth, all, calm, worst, covered, ranges)
		}
	}
}

// TestPredict: a weekday without plans stays without, a trend goes on and ends at nothing, and a short history is refused.
func TestPredict(t *testing.T) {
	line := func(days int, of func(i int) float64) (h []float64) {
		for i := range days {
			h = append(h, of(i))
		}
		return h
	}
	for what, c := range map[string]struct {
		history []float64
		want    func(k int) float64
	}{
		"rising":   {line(56, func(i int) float64 { return float64(100 + i) }), func(k int) float64 { return float64(156 + k) }},
		"ending":   {line(56, func(i int) float64 { return float64(max(0, 60-i)) }), func(k int) float64 { return float64(max(0, 4-k)) }},
		"weekdays": {line(28, func(i int) float64 { return float64(min(1, i%week) * 10) }), func(k int) float64 { return float64(min(1, k%week) * 10) }},
		"nothing":  {line(30, func(int) float64 { return 0 }), func(int) float64 { return 0 }},
	} {
		for k, got := range predict(c.history, forecastDays) {
			if want := c.want(k); math.Abs(got-want) > 0.05*want+2 {
				t.Errorf("%s: %.1f on day %d, want %.1f", what, got, k, want)
			}
		}
	}
	if predict(make([]float64, leastWeeks*week-1), 1) != nil {
		t.Error("27 days are enough")
	}
}

// TestStatsForecast forecasts for a vault with a plan each day, of which every fourth failed.
func TestStatsForecast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		for n := range 80 {
			if n == leastWeeks*week-1 {
				if r := s.run(t.Context(), "stats", "--forecast"); r.code != exitFound || !strings.Contains(r.stderr, "27 days old") {
					t.Errorf("%+v", r)
				}
			}
			status := workflow.Completed
			if n%4 == 0 {
				status = workflow.Failed
			}
			s.store(t, workflow.NewV7At(time.Now().AddDate(0, 0, -n-1)), status, "daily")
		}
		r := s.run(t.Context(), "stats", "--forecast", "--output", "json")
		var f forecast
		if err := json.Unmarshal([]byte(r.stdout), &f); err != nil || r.code != exitDone {
			t.Fatalf("%+v, %v", r, err)
		}
		writes := 30 * (3*f.SubObjects + 6) // docs/scale.md
		if f.Total.Plans != 30 || f.Total.Completed+f.Total.Failed != 30 || f.Total.Failed < 6 || f.Total.Failed > 9 || len(f.Days) != forecastDays || f.Days[0].Day != date(time.Now()) ||
			f.SubObjects != 4 || f.Total.Requests != round(writes+60) || f.Total.Dollars < writes*0.0000055 || f.Compared != 4 || f.Error > 0.01 || f.Low.Plans > 30 || f.High.Plans < 30 {
			t.Errorf("%+v", f)
		}
		text := s.run(t.Context(), "stats", "--forecast").stdout
		for _, want := range []string{"\ntotal ", "\nlow ", "\nhigh ", "4 forecasts of the past missed what came by 0% on average", "a plan has 4 sub-objects"} {
			if !strings.Contains(text, want) {
				t.Errorf("no %q in\n%s", want, text)
			}
		}
		if r := s.run(t.Context(), "stats", "--forecast", "--bytes"); r.code != exitUsage {
			t.Errorf("%+v", r)
		}
	})
}
