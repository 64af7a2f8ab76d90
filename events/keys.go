package events

import (
	"hash/maphash"
	"time"
)

// share gives each worker its events. Events of a key are one worker's, in their
// order; others go to whoever is free.
func (h *handling) share(records []*record, workers int) []func() *record {
	common := make(chan *record, len(records))
	own := make([][]*record, workers)
	seed := maphash.MakeSeed()
	for _, rec := range records {
		if key := h.key(rec); key != "" {
			worker := maphash.String(seed, key) % uint64(workers)
			own[worker] = append(own[worker], rec)
		} else {
			common <- rec
		}
	}
	close(common)
	shares := make([]func() *record, workers)
	for i := range shares {
		mine := inOrder(own[i])
		shares[i] = func() *record {
			if rec := mine(); rec != nil {
				return rec
			}
			return <-common
		}
	}
	return shares
}

// key is the event's, or none.
func (h *handling) key(rec *record) (key string) {
	if h.run.cfg.Key == nil {
		return ""
	}
	defer func() { // a key function that panics is not the process's failure
		if v := recover(); v != nil {
			key = ""
			h.keyPanicked.Do(func() {
				h.run.cfg.Logger.Error("Key panicked: events go on without a key, in no order", "event", rec.id, "panic", v)
			})
		}
	}()
	return h.run.cfg.Key(&rec.Event)
}

// hold has later events of the key sent back, to come again after delay.
func (h *handling) hold(key string, delay time.Duration) {
	if key == "" {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held[key] = delay
}

func (h *handling) isHeld(key string) (time.Duration, bool) {
	if key == "" {
		return 0, false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	delay, held := h.held[key]
	return delay, held
}
