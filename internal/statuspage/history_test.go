package statuspage

import (
	"strconv"
	"strings"
	"testing"
	"time"
)

func plain(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

func TestRates(t *testing.T) {
	t.Parallel()
	h := newHistory()
	start := time.Unix(1_000_000*20, 0)
	show := func(after time.Duration, sent, ticked, pending int64, lag time.Duration) {
		look := lookAt(start.Add(after))
		look.Queues[0].Sent, look.Queues[0].NewEvents = sent, sent-ticked
		look.Consumers[0].Pending, look.Consumers[0].Lag = pending, lag
		h.add(&look)
	}
	rate := func(r *rates, after time.Duration) string {
		v, ok := r.get(number(start.Add(after)))
		if !ok {
			return "none"
		}
		return plain(v)
	}
	show(0, 1000, 1000, 500, 0) // what came before is not ours
	show(2*time.Second, 1010, 1000, 500, time.Second)
	show(4*time.Second, 1030, 1030, 520, 9*time.Second)
	show(6*time.Second, 1030, 1030, 0, 3*time.Second)
	q, c := h.queues["q"], h.consumers[[2]string{"q", "c"}]
	if got := rate(&q.rates, 0); got != "5" { // 30 in 6 s
		t.Errorf("sent: %s/s, want 5", got)
	}
	if got, want := rate(&c.rates, 0), plain(530.0/6); got != want {
		t.Errorf("finished: %s/s, want %s", got, want)
	}
	if lag, _ := c.lags.get(number(start)); lag != 9 {
		t.Errorf("lag %v, want the highest, 9", lag)
	}
	// The database was away for ten minutes: what came meanwhile is spread over them.
	show(10*time.Minute, 1030+5940, 1030, 0, 0)
	if got := rate(&q.rates, 10*time.Minute); got != "10" {
		t.Errorf("after a gap: %s/s, want 10", got)
	}
	if got := rate(&q.rates, 5*time.Minute); got != "none" {
		t.Errorf("in the gap: %s/s, want none", got)
	}
	// The queue was dropped and made anew.
	show(11*time.Minute, 3, 1, 0, 0)
	if got := rate(&q.rates, 11*time.Minute); got != "none" {
		t.Errorf("a queue made anew: %s/s, want none", got)
	}
	// An hour later the ring has come round; the old slot is not the new one.
	if got := rate(&q.rates, time.Hour); got != "none" {
		t.Errorf("an hour later: %s/s, want none", got)
	}
	gone := lookAt(start.Add(12 * time.Minute))
	gone.Queues, gone.Consumers = nil, nil
	h.add(&gone)
	if len(h.queues) != 0 || len(h.consumers) != 0 {
		t.Error("what was dropped is kept")
	}
}

func TestPlot(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000*20, 0)
	last := number(now)
	draw := func(values map[int64]float64) plot {
		return newPlot("lag", spanOf(0), now, func(n int64) (float64, bool) { v, ok := values[n-last]; return v, ok }, plain)
	}
	for name, test := range map[string]struct {
		values map[int64]float64 // by how many slots ago, negative
		path   string
		top    string
	}{
		"nothing":  {nil, "", ""},
		"zero":     {map[int64]float64{0: 0}, "M29 40V38.5H30V40Z", "0"},
		"rises":    {map[int64]float64{-1: 1, 0: 2}, "M28 40V19.2H29V0.0H30V40Z", "2"},
		"level":    {map[int64]float64{-2: 4, -1: 4, 0: 4}, "M27 40V0.0H30V40Z", "4"},
		"gap":      {map[int64]float64{-3: 4, 0: 4}, "M26 40V0.0H27V40ZM29 40V0.0H30V40Z", "4"},
		"too old":  {map[int64]float64{-30: 4}, "", ""},
		"leftmost": {map[int64]float64{-29: 4}, "M0 40V0.0H1V40Z", "4"},
	} {
		p := draw(test.values)
		if p.Path != test.path || p.Top != test.top {
			t.Errorf("%s: %q with top %q, want %q with %q", name, p.Path, p.Top, test.path, test.top)
		}
		if !strings.HasPrefix(p.Label, "lag, last 10 min: ") {
			t.Errorf("%s: label %q", name, p.Label)
		}
	}
	if p := draw(map[int64]float64{-1: 3, 0: 2}); p.Label != "lag, last 10 min: now 2, at most 3" {
		t.Errorf("label %q", p.Label)
	}
	for known, want := range map[time.Duration]string{0: "last 10 min", 11 * time.Minute: "last 30 min", 2 * time.Hour: "last hour"} {
		if got := spanOf(known); got.Words != want {
			t.Errorf("after %s: %s", known, got.Words)
		}
	}
}
