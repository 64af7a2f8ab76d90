package events

import "time"

// troubles are the queues that fail by themselves. Each rests for a while after
// a failure, so that the others are ticked together and in time.
type troubles map[string]trouble

type trouble struct {
	until time.Time
	rest  time.Duration
}

// The rest after a failure doubles up to the maximum.
const (
	firstRest = time.Second
	maxRest   = 30 * time.Second
)

func (t troubles) resting(queue string, now time.Time) bool {
	return now.Before(t[queue].until)
}

// add books a failure and says whether it is the first.
func (t troubles) add(queue string, now time.Time) (first bool) {
	was, known := t[queue]
	rest := min(max(firstRest, 2*was.rest), maxRest)
	t[queue] = trouble{until: now.Add(rest), rest: rest}
	return !known
}

// over forgets a queue's trouble and says whether there was any.
func (t troubles) over(queue string) bool {
	_, was := t[queue]
	delete(t, queue)
	return was
}
