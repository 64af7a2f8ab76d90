// Command worker sends the notifications: e-mails by SMTP, alerts to Slack.
package main

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stega/pgque-vendor/events"
	"github.com/stega/pgque-vendor/examples/notifications/internal/mailer"
	"github.com/stega/pgque-vendor/examples/notifications/internal/notify"
	"github.com/stega/pgque-vendor/examples/notifications/internal/once"
	"github.com/stega/pgque-vendor/examples/notifications/internal/settings"
	"github.com/stega/pgque-vendor/examples/notifications/internal/slack"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		slog.Error("worker", "err", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	env, err := settings.Required("EVENTS_DATABASE_URL", "APP_DATABASE_URL", "SMTP_ADDR", "SMTP_FROM", "SLACK_WEBHOOK_URL")
	if err != nil {
		return err
	}
	eventsDB, err := pgxpool.New(ctx, env[0])
	if err != nil {
		return err
	}
	defer eventsDB.Close()
	app, err := pgxpool.New(ctx, env[1])
	if err != nil {
		return err
	}
	defer app.Close()
	mail, err := newMailer(env[2], env[3])
	if err != nil {
		return err
	}

	n := &notifier{
		ledger: once.Ledger{DB: app},
		mail:   mail,
		slack:  slack.Webhook{URL: env[4], Client: &http.Client{Timeout: 10 * time.Second}},
	}
	consumer := events.NewConsumer(eventsDB, notify.Queue, notify.Consumer, events.ConsumerConfig{
		Workers:        4,
		HandlerTimeout: 45 * time.Second, // above what an effect and its notes take
		Logger:         slog.Default(),
	})
	events.Handle(consumer, notify.TicketWelcome, n.welcome)
	events.Handle(consumer, notify.TicketSLABreached, n.slaBreached)
	events.Handle(consumer, notify.WeeklyReportReady, n.weeklyReport)
	go n.purge(ctx)
	return consumer.Run(ctx)
}

func newMailer(addr, from string) (*mailer.Mailer, error) {
	host, portText, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	port, err := strconv.Atoi(portText)
	if err != nil {
		return nil, err
	}
	return mailer.New(mailer.Config{
		Host: host, Port: port, From: from,
		User: os.Getenv("SMTP_USER"), Password: os.Getenv("SMTP_PASSWORD"),
		Plaintext: os.Getenv("SMTP_PLAINTEXT") == "true",
	})
}
