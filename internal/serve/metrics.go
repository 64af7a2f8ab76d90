package serve

import (
	"bytes"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/common/expfmt"
	"github.com/stega/pgque-vendor/events"
)

// maxNames is how many queues, and how many consumers, have series of their own:
// who makes a queue for each customer would otherwise fill Prometheus. What comes
// later is left out.
const maxNames = 200

// Metrics counts what a ticker or a consumer does, and shows what is seen of the
// database, for Prometheus. docs/monitoring.md explains each.
type Metrics struct {
	registry *prometheus.Registry
	database *database

	ticks        *prometheus.CounterVec
	retriesMoved prometheus.Counter
	tickerFailed *prometheus.CounterVec

	handled     *prometheus.CounterVec
	retried     *prometheus.CounterVec
	dead        *prometheus.CounterVec
	handedBack  *prometheus.CounterVec
	handlerTime *prometheus.HistogramVec
	batchEvents *prometheus.HistogramVec
	batchTime   *prometheus.HistogramVec
	stale       *prometheus.CounterVec
	settleFails *prometheus.CounterVec
	interrupted *prometheus.CounterVec
	active      *prometheus.GaugeVec
	activations *prometheus.CounterVec

	mu     sync.Mutex
	queues map[string]bool // that have ticks counted

	rendering sync.Mutex // not mu: the work does not wait for a reader
	text      []byte
	rendered  time.Time
}

// NewMetrics makes the metrics of a process. ready is that of [Config]; connections
// says how many connections the work's pool has open, and has opened ever.
func NewMetrics(version string, ready func() (string, error), connections func() (open, opened float64)) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry(), database: newDatabase(), queues: map[string]bool{}}
	own := []string{"queue", "consumer"}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
		m.registry.MustRegister(c)
		return c
	}
	histogram := func(name, help string, buckets []float64) *prometheus.HistogramVec {
		h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, own)
		m.registry.MustRegister(h)
		return h
	}
	m.ticks = counter("pgque_ticks_total", "Ticks that this process made.", "queue")
	m.tickerFailed = counter("pgque_ticker_failures_total", "Failed tries of what a ticker does, by action.", "action")
	m.retriesMoved = prometheus.NewCounter(prometheus.CounterOpts{Name: "pgque_retries_moved_total", Help: "Due retries that this process moved back into their queues."})

	m.handled = counter("pgque_events_handled_total", "Events whose handler returned in this process, by outcome.", "queue", "consumer", "outcome")
	m.retried = counter("pgque_events_retried_total", "Events that this process settled as to be retried.", own...)
	m.dead = counter("pgque_events_dead_total", "Events that this process settled as dead letters, also because their attempts were spent.", own...)
	m.handedBack = counter("pgque_events_handed_back_total", "Events that this process had not started and gave back, their attempts unchanged.", own...)
	m.handlerTime = histogram("pgque_handler_duration_seconds", "How long handlers took for an event.", []float64{.001, .004, .016, .064, .25, 1, 4, 16, 60, 240})
	m.batchEvents = histogram("pgque_batch_events", "Events in a batch.", prometheus.ExponentialBuckets(1, 4, 10))
	m.batchTime = histogram("pgque_batch_duration_seconds", "From opening a batch until it was settled.", []float64{.004, .016, .064, .25, 1, 4, 16, 60, 240, 960})
	m.stale = counter("pgque_batches_stale_total", "Batches that another process had finished, so that nothing was settled here.", own...)
	m.settleFails = counter("pgque_settle_failures_total", "Failed tries to settle a batch; each is tried again.", own...)
	m.interrupted = counter("pgque_consumer_interruptions_total", "Times that consuming ended over a failure and was begun again.", own...)
	m.activations = counter("pgque_consumer_activations_total", "Times that this process became the active one of its consumer.", own...)
	m.active = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "pgque_consumer_active", Help: "1 when this process is the active one of its consumer, 0 when it stands by."}, own)

	build := prometheus.NewGauge(prometheus.GaugeOpts{Name: "pgque_vendor_build_info", Help: "1; the label is the version.", ConstLabels: prometheus.Labels{"version": version}})
	build.Set(1)
	m.registry.MustRegister(
		m.database, m.retriesMoved, m.active, build,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "pgque_ready", Help: "1 when /readyz says ready."}, func() float64 {
			_, err := ready()
			return oneIf(err == nil)
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "pgque_database_connections", Help: "Open connections of the pool that the work is done with."}, func() float64 {
			open, _ := connections()
			return open
		}),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "pgque_database_connections_opened_total", Help: "Connections that the pool has opened: it grows with each reconnect."}, func() float64 {
			_, opened := connections()
			return opened
		}),
	)
	return m
}

// Consumes makes the series of a consumer before anything happened, so that the
// first failure is a change and not a beginning.
func (m *Metrics) Consumes(queue, consumer string) {
	queue, consumer = label(queue), label(consumer)
	for _, outcome := range []events.Outcome{events.OutcomeDone, events.OutcomeSkipped, events.OutcomeRetried, events.OutcomeDead, events.OutcomeHandedBack, events.OutcomeAborted} {
		m.handled.WithLabelValues(queue, consumer, string(outcome))
	}
	for _, c := range []*prometheus.CounterVec{m.retried, m.dead, m.handedBack, m.stale, m.settleFails, m.interrupted, m.activations} {
		c.WithLabelValues(queue, consumer)
	}
	m.handlerTime.WithLabelValues(queue, consumer)
	m.batchEvents.WithLabelValues(queue, consumer)
	m.batchTime.WithLabelValues(queue, consumer)
	m.active.WithLabelValues(queue, consumer)
}

// Observe counts one thing that happened. It is an [events.Observer].
func (m *Metrics) Observe(o events.Observation) {
	switch o := o.(type) {
	case events.Ticked:
		if m.counts(o.Queue) {
			m.ticks.WithLabelValues(label(o.Queue)).Inc()
		}
	case events.Retried:
		m.retriesMoved.Add(float64(o.Events))
	case events.TickerFailed:
		m.tickerFailed.WithLabelValues(o.Action).Inc()
	case events.Handled:
		queue, consumer := label(o.Queue), label(o.Consumer)
		m.handled.WithLabelValues(queue, consumer, string(o.Outcome)).Inc()
		if o.Outcome != events.OutcomeHandedBack {
			m.handlerTime.WithLabelValues(queue, consumer).Observe(o.Duration.Seconds())
		}
	case events.Settled:
		m.settled(o)
	case events.Leased:
		queue, consumer := label(o.Queue), label(o.Consumer)
		m.active.WithLabelValues(queue, consumer).Set(oneIf(o.Active))
		if o.Active {
			m.activations.WithLabelValues(queue, consumer).Inc()
		}
	case events.ConsumerFailed:
		switch o.Action {
		case "settle":
			m.settleFails.WithLabelValues(label(o.Queue), label(o.Consumer)).Inc()
		case "consume":
			m.interrupted.WithLabelValues(label(o.Queue), label(o.Consumer)).Inc()
		}
	}
}

func (m *Metrics) settled(o events.Settled) {
	queue, consumer := label(o.Queue), label(o.Consumer)
	if o.Stale {
		m.stale.WithLabelValues(queue, consumer).Inc()
		return
	}
	m.retried.WithLabelValues(queue, consumer).Add(float64(o.Retried))
	m.dead.WithLabelValues(queue, consumer).Add(float64(o.Dead))
	m.handedBack.WithLabelValues(queue, consumer).Add(float64(o.HandedBack))
	m.batchEvents.WithLabelValues(queue, consumer).Observe(float64(o.Events))
	m.batchTime.WithLabelValues(queue, consumer).Observe(o.Duration.Seconds())
}

// counts says whether a queue has a series of its own.
func (m *Metrics) counts(queue string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.queues[queue] && len(m.queues) < maxNames {
		m.queues[queue] = true
	}
	return m.queues[queue]
}

// Show takes a look at the database. Series of queues that are gone go too.
func (m *Metrics) Show(look Look) {
	m.database.look.Store(&look)
	if look.Trouble != "" {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for queue := range m.queues {
		if !slices.ContainsFunc(look.Queues, func(q events.QueueInfo) bool { return q.Name == queue }) {
			delete(m.queues, queue)
			m.ticks.DeleteLabelValues(label(queue))
		}
	}
}

// renderEvery is how old an answer to Prometheus may be: however often somebody
// asks, the work is done once in that time.
const renderEvery = 250 * time.Millisecond

// ServeHTTP answers with all metrics in Prometheus' text format.
func (m *Metrics) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	text, err := m.render()
	if err != nil {
		answer(w, http.StatusInternalServerError, err.Error())
		return
	}
	w.Header().Set("Content-Type", string(expfmt.NewFormat(expfmt.TypeTextPlain)))
	_, _ = w.Write(text)
}

func (m *Metrics) render() ([]byte, error) {
	m.rendering.Lock()
	defer m.rendering.Unlock()
	if m.text != nil && time.Since(m.rendered) < renderEvery {
		return m.text, nil
	}
	families, err := m.registry.Gather()
	if len(families) == 0 {
		return nil, err
	}
	var text bytes.Buffer
	encoder := expfmt.NewEncoder(&text, expfmt.NewFormat(expfmt.TypeTextPlain))
	for _, family := range families { // an error is of a part; the rest counts all the same
		if err := encoder.Encode(family); err != nil {
			return nil, err
		}
	}
	m.text, m.rendered = text.Bytes(), time.Now()
	return m.text, nil
}

func oneIf(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
