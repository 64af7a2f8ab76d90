package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stega/pgque-vendor/events"
	"github.com/stega/pgque-vendor/internal/fault"
)

// provisioner makes the queues and subscriptions of --queue and --subscribe
// through the event library.
type provisioner struct {
	queues        []queueWanted
	subscriptions []subscriptionWanted

	queueResults        []queueResult
	subscriptionResults []subscriptionResult
}

type queueWanted struct {
	name     string
	settings events.Settings
}

type subscriptionWanted struct{ queue, consumer string }

type queueResult struct {
	Name    string          `json:"name"`
	Created bool            `json:"created"`
	Changed []settingChange `json:"changed"`
}

type settingChange struct {
	Name string `json:"name"`
	From string `json:"from"`
	To   string `json:"to"`
}

type subscriptionResult struct {
	Queue    string `json:"queue"`
	Consumer string `json:"consumer"`
	Created  bool   `json:"created"`
}

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
		p.queues = append(p.queues, q)
	}
	for _, text := range subscriptions {
		queue, consumer, ok := strings.Cut(text, "/")
		if !ok || queue == "" || consumer == "" {
			return nil, fault.New(fault.Usage, "--subscribe %q: it takes QUEUE/CONSUMER", text)
		}
		p.subscriptions = append(p.subscriptions, subscriptionWanted{queue, consumer})
	}
	return p, nil
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
	if q.name == "" {
		return q, fault.New(fault.Usage, "--queue %q: it takes NAME[:param=value,…]", text)
	}
	return q, nil
}

// Would says what is to be done in a database without PgQue.
func (p *provisioner) Would() []string {
	var lines []string
	for _, q := range p.queues {
		lines = append(lines, fmt.Sprintf("create queue %q", q.name))
	}
	for _, s := range p.subscriptions {
		lines = append(lines, fmt.Sprintf("subscribe %q to queue %q", s.consumer, s.queue))
	}
	return lines
}

// Look finds what is missing without writing. In a READ ONLY transaction
// EnsureQueue succeeds exactly when it has nothing to change; and a queue that
// was created a moment ago by Apply is of no concern here.
func (p *provisioner) Look(ctx context.Context, tx pgx.Tx) ([]string, error) {
	p.queueResults, p.subscriptionResults = nil, nil
	var lines []string
	for _, q := range p.queues {
		line, err := lookQueue(ctx, tx, q)
		if err != nil {
			return nil, err
		}
		if line != "" {
			lines = append(lines, line)
			continue
		}
		p.queueResults = append(p.queueResults, queueResult{Name: q.name, Changed: []settingChange{}})
	}
	for _, s := range p.subscriptions {
		var subscribed bool
		err := tx.QueryRow(ctx, `select exists (
			select from pgque.subscription as s
			join pgque.queue as q on q.queue_id = s.sub_queue
			join pgque.consumer as c on c.co_id = s.sub_consumer
			where q.queue_name = $1 and c.co_name = $2)`, s.queue, s.consumer).Scan(&subscribed)
		if err != nil {
			return nil, err
		}
		if !subscribed {
			lines = append(lines, fmt.Sprintf("subscribe %q to queue %q", s.consumer, s.queue))
			continue
		}
		p.subscriptionResults = append(p.subscriptionResults, subscriptionResult{Queue: s.queue, Consumer: s.consumer})
	}
	return lines, nil
}

// lookQueue says what has to be done for a queue, "" for nothing. A savepoint
// that is READ ONLY makes any write fail, also in the install's transaction.
func lookQueue(ctx context.Context, tx pgx.Tx, q queueWanted) (string, error) {
	var exists bool
	if err := tx.QueryRow(ctx, "select exists (select from pgque.queue where queue_name = $1)", q.name).Scan(&exists); err != nil {
		return "", err
	}
	if !exists {
		return fmt.Sprintf("create queue %q", q.name), nil
	}
	if len(q.settings) == 0 {
		return "", nil
	}
	nested, err := tx.Begin(ctx)
	if err != nil {
		return "", err
	}
	defer nested.Rollback(ctx)
	if _, err := nested.Exec(ctx, "set transaction read only"); err != nil {
		return "", err
	}
	_, err = events.EnsureQueue(ctx, nested, q.name, q.settings)
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) && pgErr.Code == "25006" {
		var words []string
		for _, name := range slices.Sorted(maps.Keys(q.settings)) {
			words = append(words, name+"="+q.settings[name])
		}
		return fmt.Sprintf("set parameters of queue %q: %s", q.name, strings.Join(words, ", ")), nil
	}
	return "", provisionError(err)
}

// Apply makes what is missing, in the install's transaction.
func (p *provisioner) Apply(ctx context.Context, tx pgx.Tx) error {
	p.queueResults, p.subscriptionResults = nil, nil
	for _, q := range p.queues {
		result, err := events.EnsureQueue(ctx, tx, q.name, q.settings)
		if err != nil {
			return provisionError(err)
		}
		changed := []settingChange{}
		for _, c := range result.Changed {
			changed = append(changed, settingChange(c))
		}
		p.queueResults = append(p.queueResults, queueResult{q.name, result.Created, changed})
	}
	for _, s := range p.subscriptions {
		created, err := events.Subscribe(ctx, tx, s.queue, s.consumer)
		if err != nil {
			return provisionError(err)
		}
		p.subscriptionResults = append(p.subscriptionResults, subscriptionResult{s.queue, s.consumer, created})
	}
	return nil
}

// provisionError makes what the user got wrong a failure of the right class.
// Others, which may pass or not, are sorted by package bootstrap.
func provisionError(err error) error {
	switch {
	case errors.Is(err, events.ErrInvalid):
		return fault.New(fault.Usage, "%w", err)
	case errors.Is(err, events.ErrQueueNotFound):
		return fault.New(fault.Policy, "%w", err).Hint("make it in the same run: --queue NAME")
	}
	return err
}

// lines describe what was done, for people.
func (p *provisioner) lines() []string {
	var lines []string
	for _, q := range p.queueResults {
		if q.Created {
			lines = append(lines, fmt.Sprintf("created queue %q", q.Name))
		}
		for _, c := range q.Changed {
			lines = append(lines, fmt.Sprintf("queue %q: %s was %q, is %q", q.Name, c.Name, c.From, c.To))
		}
	}
	for _, s := range p.subscriptionResults {
		if s.Created {
			lines = append(lines, fmt.Sprintf("subscribed %q to queue %q", s.Consumer, s.Queue))
		}
	}
	return lines
}
