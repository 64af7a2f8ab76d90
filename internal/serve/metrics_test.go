package serve

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stega/pgque-vendor/events"
)

func metricsText(t *testing.T, m *Metrics) string {
	t.Helper()
	m.rendered = time.Time{}
	w := httptest.NewRecorder()
	m.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != 200 || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain; version=0.0.4") {
		t.Fatalf("%d, %q", w.Code, w.Header().Get("Content-Type"))
	}
	return w.Body.String()
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	text := metricsText(t, fullMetrics(t))
	for _, line := range []string{
		`pgque_ticks_total{queue="q"} 1`, `pgque_retries_moved_total 2`, `pgque_ticker_failures_total{action="tick"} 1`,
		`pgque_events_handled_total{consumer="c",outcome="done",queue="q"} 1`, `pgque_events_handled_total{consumer="c",outcome="dead",queue="q"} 0`,
		`pgque_events_retried_total{consumer="c",queue="q"} 1`, `pgque_events_dead_total{consumer="c",queue="q"} 1`,
		`pgque_batches_stale_total{consumer="c",queue="q"} 1`, `pgque_batch_events_sum{consumer="c",queue="q"} 5`,
		`pgque_batch_events_count{consumer="c",queue="q"} 1`, `pgque_consumer_active{consumer="c",queue="q"} 1`,
		`pgque_queue_tick_age_seconds{queue="q"} 3`, `pgque_queue_dead_letters{queue="q"} 7`, `pgque_consumer_lag_seconds{consumer="c",queue="q"} 4`,
		`pgque_consumer_lag_events{consumer="c",queue="q"} 9`, `pgque_events_published_total{queue="q"} 100`,
		`pgque_findings{code="no-tick",severity="critical"} 2`, `pgque_ready 1`, `pgque_database_up 1`, `pgque_database_connections_opened_total 2`,
	} {
		if !strings.Contains(text, "\n"+line+"\n") {
			t.Errorf("no line %s", line)
		}
	}
	// -1 is "may not be seen".
	if strings.Contains(text, "pgque_consumer_dead_letters{") {
		t.Error("dead letters are told that were not seen")
	}
	if strings.Contains(text, "pgque_queue_tick_age_seconds{queue=\"q\"} -1") {
		t.Error("-1 as an age")
	}
}

// What was seen too long ago is a gap, not a line that stays as it was.
func TestMetricsOfADatabaseThatIsGone(t *testing.T) {
	t.Parallel()
	m := fullMetrics(t)
	look := *m.database.look.Load()
	look.Trouble = "gone"
	m.Show(look)
	if text := metricsText(t, m); !strings.Contains(text, "pgque_database_up 0\n") || !strings.Contains(text, "pgque_consumer_lag_seconds{") {
		t.Error("a look that failed: it is not told, or what was seen a moment ago is not")
	}
	look.Seen = time.Now().Add(-tooOld - time.Second)
	m.Show(look)
	if text := metricsText(t, m); strings.Contains(text, "pgque_consumer_lag_seconds{") || !strings.Contains(text, "pgque_database_last_look_timestamp_seconds ") {
		t.Error("what was seen long ago is told as if it were so now")
	}
}

// However many queues there are, and whatever their names, the answer is whole.
func TestMetricsOfManyAndOddNames(t *testing.T) {
	t.Parallel()
	m := fullMetrics(t)
	look := Look{At: time.Now(), Seen: time.Now()}
	names := []string{"bad\xff", "bad\xfe", "quote\"\\\n", ""}
	for len(names) < maxNames+50 {
		names = append(names, "q"+strings.Repeat("x", len(names)))
	}
	for _, name := range names {
		look.Queues = append(look.Queues, events.QueueInfo{Name: name})
		look.Consumers = append(look.Consumers, events.ConsumerInfo{Queue: name, Name: "c"})
		m.Observe(events.Ticked{Queue: name})
	}
	m.Show(look)
	text := metricsText(t, m)
	if n := strings.Count(text, "\npgque_queue_paused{"); n < maxNames-1 || n > maxNames {
		t.Errorf("%d series of queues, want %d", n, maxNames)
	}
	if n := strings.Count(text, "\npgque_ticks_total{"); n > maxNames {
		t.Errorf("%d series of ticks, want at most %d", n, maxNames)
	}
	if !strings.Contains(text, "pgque_series_left_out 100\n") || !strings.Contains(text, `pgque_queue_paused{queue="quote\"\\\n"} 0`) {
		t.Error("what is left out is not told, or an odd name is not escaped")
	}
	// Queues that were dropped make room.
	m.Show(Look{At: time.Now(), Seen: time.Now(), Queues: []events.QueueInfo{{Name: "new"}}})
	m.Observe(events.Ticked{Queue: "new"})
	text = metricsText(t, m)
	if n := strings.Count(text, "\npgque_ticks_total{"); n != 1 || !strings.Contains(text, `pgque_ticks_total{queue="new"} 1`) {
		t.Errorf("%d series of ticks after all other queues are gone, want 1", n)
	}
}

// However often somebody asks, the work is done a few times a second.
func TestMetricsAreRenderedOnce(t *testing.T) {
	t.Parallel()
	m := fullMetrics(t)
	first, err := m.render()
	if err != nil {
		t.Fatal(err)
	}
	m.rendered = time.Now().Add(time.Hour) // as if in no time
	again, err := m.render()
	if err != nil || &first[0] != &again[0] {
		t.Errorf("rendered again at once (%v)", err)
	}
}
