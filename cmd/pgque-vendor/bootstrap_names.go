package main

import (
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/stega/pgque-vendor/events"
	"github.com/stega/pgque-vendor/internal/fault"
)

// newProvisioner reads the flags. It returns nil when there are none.
func newProvisioner(queues, subscriptions []string) (*provisioner, error) {
	if len(queues)+len(subscriptions) == 0 {
		return nil, nil
	}
	p := &provisioner{}
	for _, text := range queues {
		q, err := parseQueue(text)
		if err != nil {
			return nil, err
		}
		if err := p.addQueue(q, text); err != nil {
			return nil, err
		}
	}
	for _, text := range subscriptions {
		s, err := p.parseSubscription(text)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(p.subscriptions, s) {
			p.subscriptions = append(p.subscriptions, s)
		}
	}
	return p, nil
}

// parseSubscription reads QUEUE/CONSUMER. Both names may hold a slash: the queue is the
// longest of those that --queue names, else it ends at the first slash.
func (p *provisioner) parseSubscription(text string) (subscriptionWanted, error) {
	queue, consumer, _ := strings.Cut(text, "/")
	for _, q := range p.queues {
		if rest, ok := strings.CutPrefix(text, q.name+"/"); ok && len(q.name) > len(queue) {
			queue, consumer = q.name, rest
		}
	}
	switch {
	case queue == "" || consumer == "":
		return subscriptionWanted{}, fault.New(fault.Usage, "--subscribe %q: it takes QUEUE/CONSUMER", text)
	case !utf8.ValidString(text):
		return subscriptionWanted{}, fault.New(fault.Usage, "--subscribe %q is not valid UTF-8", text)
	}
	return subscriptionWanted{queue, consumer}, nil
}

// addQueue takes a queue that is named again as the same one. Two values of one
// parameter would be set in turn, at every run.
func (p *provisioner) addQueue(q queueWanted, text string) error {
	at := slices.IndexFunc(p.queues, func(known queueWanted) bool { return known.name == q.name })
	if at < 0 {
		p.queues = append(p.queues, q)
		return nil
	}
	for name, value := range q.settings {
		if was, twice := p.queues[at].settings[name]; twice && was != value {
			return fault.New(fault.Usage, "--queue %q: %s of queue %q is given twice, as %q and %q", text, name, q.name, was, value)
		}
		p.queues[at].settings[name] = value
	}
	return nil
}

// parseQueue reads NAME[:param=value,…]. A colon belongs to the name unless a
// parameter follows it.
func parseQueue(text string) (queueWanted, error) {
	startOfSettings := regexp.MustCompile(`:[a-z_]+=`)
	q := queueWanted{name: text, settings: events.Settings{}}
	if at := startOfSettings.FindStringIndex(text); at != nil {
		q.name = text[:at[0]]
		for pair := range strings.SplitSeq(text[at[0]+1:], ",") {
			name, value, ok := strings.Cut(pair, "=")
			if !ok || name == "" || value == "" {
				return q, fault.New(fault.Usage, "--queue %q: %q is not param=value", text, pair)
			}
			if _, twice := q.settings[name]; twice {
				return q, fault.New(fault.Usage, "--queue %q: %s is given twice", text, name)
			}
			q.settings[name] = value
		}
	}
	if _, after, colon := strings.Cut(q.name, ":"); colon && strings.Contains(after, "=") {
		return q, fault.New(fault.Usage, "--queue %q: what follows the colon is not param=value; a parameter's name is of small letters and _", text)
	}
	for _, part := range strings.Split(q.name, ":")[1:] {
		if part == "" || slices.Contains(queueParameters(), part) {
			return q, fault.New(fault.Usage, "--queue %q: a value is missing; it takes NAME[:param=value,…]", text)
		}
	}
	switch {
	case q.name == "":
		return q, fault.New(fault.Usage, "--queue %q: it takes NAME[:param=value,…]", text)
	case !utf8.ValidString(text):
		return q, fault.New(fault.Usage, "--queue %q is not valid UTF-8", text)
	}
	return q, nil
}

// queueParameters are the names of events.Settings.
func queueParameters() []string {
	return []string{"external_ticker", "max_retries", "rotation_period", "ticker_idle_period", "ticker_max_count", "ticker_max_lag", "ticker_paused"}
}
