package events

// Observer is told what a Consumer or a Ticker did, to count it as metrics. It is
// called from several goroutines and must return at once. A nil Observer is fine.
type Observer func(Observation)

// Observation is one thing that happened; switch on its type: [Handled],
// [Settled], [Leased], [StandingBy] and [ConsumerFailed] of a Consumer, [Ticked],
// [Retried] and [TickerFailed] of a Ticker.
type Observation interface{ observation() }

func (o Observer) observe(what Observation) {
	if o != nil {
		o(what)
	}
}

// Leased is observed when this process becomes the active one for its consumer,
// and when it no longer is.
type Leased struct {
	Queue, Consumer string
	Active          bool
}

// StandingBy is observed when this process finds that another one is active for
// its consumer, and waits to take over.
type StandingBy struct{ Queue, Consumer string }

// ConsumerFailed is observed for each failed try of what is tried again: "settle",
// where the outcomes of a batch are kept, and "consume", where consuming is begun
// anew. A handler's failure is none: that is [Handled].
type ConsumerFailed struct {
	Queue, Consumer string
	Action          string
	Err             error
}

func (Leased) observation()         {}
func (StandingBy) observation()     {}
func (ConsumerFailed) observation() {}
