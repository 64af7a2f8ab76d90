package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/stega/pgque-vendor/events"
	"github.com/stega/pgque-vendor/examples/notifications/internal/mailer"
	"github.com/stega/pgque-vendor/examples/notifications/internal/notify"
	"github.com/stega/pgque-vendor/examples/notifications/internal/once"
	"github.com/stega/pgque-vendor/examples/notifications/internal/slack"
)

// notifier has a handler for each event. What a handler returns as an error comes
// again after a growing pause, and becomes a dead letter after the queue's maximum
// of retries; "pgque-vendor dlq" shows and replays those.
type notifier struct {
	ledger once.Ledger
	mail   *mailer.Mailer
	slack  slack.Webhook
}

func (n *notifier) welcome(ctx context.Context, e *events.Event, t notify.Ticket) error {
	return n.email(ctx, e, t.Email,
		fmt.Sprintf("We have received your ticket %d", t.ID),
		fmt.Sprintf("Thank you for %q. We will be in touch.\n", t.Subject))
}

func (n *notifier) weeklyReport(ctx context.Context, e *events.Event, r notify.Report) error {
	return n.email(ctx, e, r.Email, "Your report for "+r.Week, r.Body)
}

// email sends a message. A second copy, if there must be one, has the Message-ID
// of the first.
func (n *notifier) email(ctx context.Context, e *events.Event, to, subject, body string) error {
	return n.ledger.Do(ctx, e, func(ctx context.Context, again bool) error {
		if again {
			slog.Warn("this e-mail may have been sent before", "event", e.ID, "message", once.Key(e))
		}
		return n.mail.Send(ctx, once.Key(e), to, subject, body)
	})
}

func (n *notifier) slaBreached(ctx context.Context, e *events.Event, t notify.Ticket) error {
	return n.ledger.Do(ctx, e, func(ctx context.Context, again bool) error {
		text := fmt.Sprintf(":rotating_light: ticket %d (%s) is past its time", t.ID, t.Subject)
		if again {
			text += " (you may have seen this before)"
		}
		return n.slack.Post(ctx, text)
	})
}

// remember is how long the ledger knows what is done. PgQue retries an event for
// hours at most; a dead letter should be replayed within this time.
const remember = 90 * 24 * time.Hour

func (n *notifier) purge(ctx context.Context) {
	for every := time.Tick(time.Hour); ; {
		if _, err := n.ledger.Purge(ctx, remember); err != nil && ctx.Err() == nil {
			slog.Error("purge the ledger", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-every:
		}
	}
}
