package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stega/pgque-vendor/events"
	"github.com/stega/pgque-vendor/internal/bootstrap"
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

// Look finds what is missing without writing, and refuses what Apply would be
// refused.
func (p *provisioner) Look(ctx context.Context, tx pgx.Tx, installed bool) ([]string, error) {
	p.queueResults, p.subscriptionResults = nil, nil
	var lines []string
	for _, q := range p.queues {
		line, err := q.look(ctx, tx, installed)
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
		line, err := p.lookSubscription(ctx, tx, s, installed)
		if err != nil {
			return nil, err
		}
		if line != "" {
			lines = append(lines, line)
			continue
		}
		p.subscriptionResults = append(p.subscriptionResults, subscriptionResult{Queue: s.queue, Consumer: s.consumer})
	}
	return lines, nil
}

// look says what has to be done for a queue, "" for nothing.
func (q queueWanted) look(ctx context.Context, tx pgx.Tx, installed bool) (string, error) {
	if installed {
		var exists, may bool
		var login string
		err := tx.QueryRow(ctx, `select exists (select from pgque.queue where queue_name = $1),
			coalesce(has_function_privilege(to_regprocedure('pgque.create_queue(text)'), 'execute'), false), current_user`, q.name).Scan(&exists, &may, &login)
		switch {
		case err != nil:
			return "", err
		case exists:
			return q.lookAtSettings(ctx, tx)
		case !may:
			return "", fault.New(fault.Policy, "queue %q is not there, and %q may not make it", q.name, login).
				Hint("GRANT %q TO %s;", bootstrap.Admin, pgx.Identifier{login}.Sanitize())
		}
	}
	if err := events.CheckQueue(ctx, tx, q.name, q.settings); err != nil {
		return "", provisionError(err)
	}
	if len(q.settings) == 0 {
		return fmt.Sprintf("create queue %q", q.name), nil
	}
	return fmt.Sprintf("create queue %q with %s", q.name, q.words()), nil
}

// lookAtSettings has EnsureQueue look for differences: under a savepoint that is
// READ ONLY, also in the install's transaction, it succeeds exactly when it has
// nothing to change.
func (q queueWanted) lookAtSettings(ctx context.Context, tx pgx.Tx) (string, error) {
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
		return fmt.Sprintf("set parameters of queue %q: %s", q.name, q.words()), nil
	}
	return "", provisionError(err)
}

// words are the settings for people.
func (q queueWanted) words() string {
	var words []string
	for _, name := range slices.Sorted(maps.Keys(q.settings)) {
		words = append(words, name+"="+q.settings[name])
	}
	return strings.Join(words, ", ")
}

// lookSubscription says what has to be done for a subscription, "" for nothing. Its
// queue is there or made by the same run.
func (p *provisioner) lookSubscription(ctx context.Context, tx pgx.Tx, s subscriptionWanted, installed bool) (string, error) {
	exists := slices.ContainsFunc(p.queues, func(q queueWanted) bool { return q.name == s.queue })
	if installed {
		var there, subscribed, may bool
		var login string
		err := tx.QueryRow(ctx, `select exists (select from pgque.queue where queue_name = $1),
			exists (
				select from pgque.subscription as s
				join pgque.queue as q on q.queue_id = s.sub_queue
				join pgque.consumer as c on c.co_id = s.sub_consumer
				where q.queue_name = $1 and c.co_name = $2),
			coalesce(has_function_privilege(to_regprocedure('pgque.subscribe(text, text)'), 'execute'), false), current_user`,
			s.queue, s.consumer).Scan(&there, &subscribed, &may, &login)
		switch {
		case err != nil || subscribed:
			return "", err
		case (there || exists) && !may:
			return "", fault.New(fault.Policy, "%q is not subscribed to queue %q, and %q may not subscribe it", s.consumer, s.queue, login).
				Hint("GRANT %q TO %s;", bootstrap.Reader, pgx.Identifier{login}.Sanitize())
		}
		exists = exists || there
	}
	if err := events.CheckConsumer(s.consumer); err != nil {
		return "", provisionError(err)
	}
	if !exists {
		return "", noQueueFor(s, events.ErrQueueNotFound)
	}
	return fmt.Sprintf("subscribe %q to queue %q", s.consumer, s.queue), nil
}

func noQueueFor(s subscriptionWanted, err error) error {
	refusal := fault.New(fault.Policy, "subscribe %q to queue %q: %w", s.consumer, s.queue, err).
		Hint("make it in the same run: --queue %s", shellQuote(s.queue))
	if at := strings.LastIndex(s.consumer, "/"); at > 0 {
		refusal.Hint("if the queue's name holds a slash, name it in the same run: --queue %s", shellQuote(s.queue+"/"+s.consumer[:at]))
	}
	return refusal
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
		switch {
		case errors.Is(err, events.ErrQueueNotFound): // dropped since Look
			return noQueueFor(s, events.ErrQueueNotFound)
		case err != nil:
			return provisionError(err)
		}
		p.subscriptionResults = append(p.subscriptionResults, subscriptionResult{s.queue, s.consumer, created})
	}
	return nil
}

// provisionError makes what the user got wrong a failure of the right class.
// Others, which may pass or not, are sorted by package bootstrap.
func provisionError(err error) error {
	if errors.Is(err, events.ErrInvalid) {
		return fault.New(fault.Usage, "%w", err)
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
