package statuspage

import "time"

// slot is the time that one point of a plot stands for, and points how many make
// the hour that is kept.
const (
	slot   = 20 * time.Second
	points = int(time.Hour / slot)
)

// history is what was seen over the last hour, in rings of an hour's slots.
type history struct {
	first     time.Time // look of all
	last      time.Time // look before
	queues    map[string]*queueHistory
	consumers map[[2]string]*consumerHistory
}

type queueHistory struct {
	sent  int64
	rates rates
}

type consumerHistory struct {
	done  int64 // events of the queue that it has come past
	lags  ring
	rates rates
}

func newHistory() *history {
	return &history{queues: map[string]*queueHistory{}, consumers: map[[2]string]*consumerHistory{}}
}

// add takes a look into the history, and forgets what is gone.
func (h *history) add(look *Look) {
	now, span := look.Seen, look.Seen.Sub(h.last).Seconds()
	h.last = now
	if h.first.IsZero() {
		h.first = now
	}
	ticked := map[string]int64{} // how many events of a queue a tick has covered
	for _, q := range look.Queues {
		ticked[q.Name] = q.Sent - q.NewEvents
	}
	queues, consumers := map[string]*queueHistory{}, map[[2]string]*consumerHistory{}
	for _, q := range look.Queues[:min(len(look.Queues), maxRows)] {
		one, known := h.queues[q.Name], true
		if one == nil {
			one, known = &queueHistory{}, false
		}
		if known {
			one.rates.add(now, float64(q.Sent-one.sent), span)
		}
		one.sent, queues[q.Name] = q.Sent, one
	}
	for _, c := range look.Consumers[:min(len(look.Consumers), maxRows)] {
		key := [2]string{c.Queue, c.Name}
		one, known := h.consumers[key], true
		if one == nil {
			one, known = &consumerHistory{}, false
		}
		one.lags.raise(now, c.Lag.Seconds())
		done := ticked[c.Queue] - c.Pending
		if known {
			one.rates.add(now, float64(done-one.done), span)
		}
		one.done, consumers[key] = done, one
	}
	h.queues, h.consumers = queues, consumers
}

// ring holds a value for each slot of the last hour.
type ring struct {
	numbers [points]int64 // of the slot that a value is of
	values  [points]float64
}

// number is that of a slot, counted from 1970.
func number(t time.Time) int64 { return t.Unix() / int64(slot/time.Second) }

// at gives the place of the slot of t, emptied if it was an older one's.
func (r *ring) at(t time.Time) *float64 {
	n := number(t)
	i := int(n % int64(points))
	if r.numbers[i] != n {
		r.numbers[i], r.values[i] = n, 0
	}
	return &r.values[i]
}

// raise keeps the highest value of a slot.
func (r *ring) raise(t time.Time, value float64) {
	v := r.at(t)
	*v = max(*v, value)
}

// get gives the value of a slot by its number.
func (r *ring) get(n int64) (float64, bool) {
	i := int(n % int64(points))
	return r.values[i], r.numbers[i] == n
}

// rates are numbers of events per second.
type rates struct {
	events, seconds ring
}

// add books events of the seconds up to t. A negative number is that of a queue that
// was made anew.
func (r *rates) add(t time.Time, events, seconds float64) {
	if seconds <= 0 || events < 0 {
		return
	}
	*r.events.at(t) += events
	*r.seconds.at(t) += seconds
}

func (r *rates) get(n int64) (float64, bool) {
	events, ok := r.events.get(n)
	seconds, _ := r.seconds.get(n)
	if !ok || seconds == 0 {
		return 0, false
	}
	return events / seconds, true
}

// now is the rate of this slot and the one before: a number that moves with what
// happens and does not jump.
func (r *rates) now(t time.Time) (float64, bool) {
	var events, seconds float64
	for _, n := range []int64{number(t) - 1, number(t)} {
		if e, ok := r.events.get(n); ok {
			s, _ := r.seconds.get(n)
			events, seconds = events+e, seconds+s
		}
	}
	if seconds == 0 {
		return 0, false
	}
	return events / seconds, true
}
