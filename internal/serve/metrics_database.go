package serve

import (
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stega/pgque-vendor/events"
)

// tooOld is when what was seen of the database is no longer shown: a gap in a graph
// says more than a line that stays as it was.
const tooOld = time.Minute

// database shows the last look at the database as metrics.
type database struct {
	look atomic.Pointer[Look]

	up, seen, took, leftOut, findings, published *prometheus.Desc

	queues    []series[events.QueueInfo]
	consumers []series[events.ConsumerInfo]
}

// series is one metric of each queue, or of each consumer.
type series[T any] struct {
	desc  *prometheus.Desc
	value func(*T) float64
}

func newDatabase() *database {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	queue := func(name, help string, value func(*events.QueueInfo) float64) series[events.QueueInfo] {
		return series[events.QueueInfo]{desc(name, help, "queue"), value}
	}
	consumer := func(name, help string, value func(*events.ConsumerInfo) float64) series[events.ConsumerInfo] {
		return series[events.ConsumerInfo]{desc(name, help, "queue", "consumer"), value}
	}
	return &database{
		up:        desc("pgque_database_up", "1 when the last look at the database succeeded."),
		seen:      desc("pgque_database_last_look_timestamp_seconds", "When the database was seen last, in Unix time."),
		took:      desc("pgque_database_look_duration_seconds", "How long the last look at the database took."),
		leftOut:   desc("pgque_series_left_out", "Queues and consumers that have no series here: beyond the first 200 of each, by name."),
		findings:  desc("pgque_findings", "What doctor finds, by code and severity.", "code", "severity"),
		published: desc("pgque_events_published_total", "Events sent to the queue, by their numbers: those of rolled back transactions count as well.", "queue"),
		queues: []series[events.QueueInfo]{
			queue("pgque_queue_tick_age_seconds", "Time since the queue's last tick; none when it has none.", func(q *events.QueueInfo) float64 {
				if q.LastTick.IsZero() {
					return absent
				}
				return q.TickAge.Seconds()
			}),
			queue("pgque_queue_new_events", "Events that no tick has covered yet, at most.", func(q *events.QueueInfo) float64 { return float64(q.NewEvents) }),
			queue("pgque_queue_retry_events", "Events that wait for a retry: the retry backlog.", func(q *events.QueueInfo) float64 { return float64(q.Retries) }),
			queue("pgque_queue_retry_due_events", "Events whose retry is due and that a ticker has not moved back yet.", func(q *events.QueueInfo) float64 { return float64(q.DueRetries) }),
			queue("pgque_queue_dead_letters", "Dead letters; none when the login may not see them.", func(q *events.QueueInfo) float64 { return float64(q.DeadLetters) }),
			queue("pgque_queue_rotation_age_seconds", "Time since the queue's tables were rotated.", func(q *events.QueueInfo) float64 { return q.RotationAge.Seconds() }),
			queue("pgque_queue_rotation_period_seconds", "How often the queue's tables are to be rotated.", func(q *events.QueueInfo) float64 { return q.RotationPeriod.Seconds() }),
			queue("pgque_queue_rotation_half_done", "1 when a rotation waits for its second step.", func(q *events.QueueInfo) float64 { return oneIf(q.HalfRotated) }),
			queue("pgque_queue_paused", "1 when the queue is paused: no ticks, no deliveries.", func(q *events.QueueInfo) float64 { return oneIf(q.Paused) }),
			queue("pgque_queue_consumers", "Subscriptions of the queue.", func(q *events.QueueInfo) float64 { return float64(q.Consumers) }),
		},
		consumers: []series[events.ConsumerInfo]{
			consumer("pgque_consumer_lag_seconds", "How far back the consumer is; 0 when nothing waits for it.", func(c *events.ConsumerInfo) float64 { return c.Lag.Seconds() }),
			consumer("pgque_consumer_lag_events", "Events up to the queue's last tick that the consumer has not finished, at most.", func(c *events.ConsumerInfo) float64 { return float64(c.Pending) }),
			consumer("pgque_consumer_idle_seconds", "Time since the consumer took or finished a batch.", func(c *events.ConsumerInfo) float64 { return c.Active.Seconds() }),
			consumer("pgque_consumer_batch_age_seconds", "Time since the consumer's batch was opened; 0 when none is open.", func(c *events.ConsumerInfo) float64 { return c.BatchAge.Seconds() }),
			consumer("pgque_consumer_retry_events", "Events that wait for a retry by the consumer.", func(c *events.ConsumerInfo) float64 { return float64(c.Retries) }),
			consumer("pgque_consumer_dead_letters", "Dead letters of the consumer; none when the login may not see them.", func(c *events.ConsumerInfo) float64 { return float64(c.DeadLetters) }),
		},
	}
}

// absent is the value of what is not known: no metric here can be below 0.
const absent = -1

// Describe names the metrics, for prometheus.Collector.
func (d *database) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{d.up, d.seen, d.took, d.leftOut, d.findings, d.published} {
		to <- desc
	}
	for _, s := range d.queues {
		to <- s.desc
	}
	for _, s := range d.consumers {
		to <- s.desc
	}
}

// Collect gives the values, for prometheus.Collector.
func (d *database) Collect(to chan<- prometheus.Metric) {
	look := d.look.Load()
	if look == nil {
		return
	}
	send := func(desc *prometheus.Desc, kind prometheus.ValueType, value float64, labels ...string) {
		if value != absent {
			to <- prometheus.MustNewConstMetric(desc, kind, value, labels...)
		}
	}
	send(d.up, prometheus.GaugeValue, oneIf(look.Trouble == ""))
	send(d.took, prometheus.GaugeValue, look.Took.Seconds())
	if look.Seen.IsZero() {
		return
	}
	send(d.seen, prometheus.GaugeValue, float64(look.Seen.UnixMilli())/1000)
	if time.Since(look.Seen) > tooOld {
		return
	}
	queues, consumers := look.Queues[:min(len(look.Queues), maxNames)], look.Consumers[:min(len(look.Consumers), maxNames)]
	send(d.leftOut, prometheus.GaugeValue, float64(len(look.Queues)-len(queues)+len(look.Consumers)-len(consumers)))
	for i := range queues {
		name := label(queues[i].Name)
		send(d.published, prometheus.CounterValue, float64(queues[i].Sent), name)
		for _, s := range d.queues {
			send(s.desc, prometheus.GaugeValue, s.value(&queues[i]), name)
		}
	}
	for i := range consumers {
		for _, s := range d.consumers {
			send(s.desc, prometheus.GaugeValue, s.value(&consumers[i]), label(consumers[i].Queue), label(consumers[i].Name))
		}
	}
	found := map[[2]string]float64{}
	for _, f := range look.Findings {
		found[[2]string{f.Code, f.Severity.String()}]++
	}
	for key, n := range found {
		send(d.findings, prometheus.GaugeValue, n, key[0], key[1])
	}
}

// label makes text that Prometheus takes from a name in a database, whose encoding
// may be none.
func label(name string) string { return strings.ToValidUTF8(name, "\uFFFD") }
