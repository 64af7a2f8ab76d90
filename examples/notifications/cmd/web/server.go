package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"

	"github.com/stega/pgque-vendor/events"
	"github.com/stega/pgque-vendor/examples/notifications/internal/notify"
	"github.com/stega/pgque-vendor/examples/notifications/internal/publish"
)

type server struct {
	pool *pgxpool.Pool
	jobs *river.Client[pgx.Tx]
}

func (s *server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /tickets", answer(s.openTicket))
	mux.HandleFunc("POST /tickets/{id}/sla-breach", answer(s.breachSLA))
	mux.HandleFunc("POST /reports", answer(s.addReport))
	return mux
}

// openTicket stores a ticket, with the job that will tell of it.
func (s *server) openTicket(r *http.Request) (any, error) {
	var ticket notify.Ticket
	if err := json.NewDecoder(r.Body).Decode(&ticket); err != nil || ticket.Email == "" {
		return nil, badRequest("a ticket needs subject and email")
	}
	err := pgx.BeginFunc(r.Context(), s.pool, func(tx pgx.Tx) error {
		err := tx.QueryRow(r.Context(), "insert into tickets (subject, email) values ($1, $2) returning id", ticket.Subject, ticket.Email).Scan(&ticket.ID)
		if err != nil {
			return err
		}
		return publishLater(r.Context(), s.jobs, tx, notify.TicketWelcome, ticket)
	})
	return ticket, err
}

// breachSLA tells of a ticket once, however often it is asked to.
func (s *server) breachSLA(r *http.Request) (any, error) {
	var ticket notify.Ticket
	err := pgx.BeginFunc(r.Context(), s.pool, func(tx pgx.Tx) error {
		err := tx.QueryRow(r.Context(), `update tickets set breached_at = now() where id::text = $1 and breached_at is null
			returning id, subject, email`, r.PathValue("id")).Scan(&ticket.ID, &ticket.Subject, &ticket.Email)
		if errors.Is(err, pgx.ErrNoRows) {
			return badRequest("no such ticket, or it is known")
		}
		if err != nil {
			return err
		}
		return publishLater(r.Context(), s.jobs, tx, notify.TicketSLABreached, ticket)
	})
	return ticket, err
}

func (s *server) addReport(r *http.Request) (any, error) {
	var report notify.Report
	if err := json.NewDecoder(r.Body).Decode(&report); err != nil || report.Email == "" {
		return nil, badRequest("a report needs week, email and body")
	}
	err := pgx.BeginFunc(r.Context(), s.pool, func(tx pgx.Tx) error {
		err := tx.QueryRow(r.Context(), "insert into reports (week, email, body) values ($1, $2, $3) returning id", report.Week, report.Email, report.Body).Scan(&report.ID)
		if err != nil {
			return err
		}
		return publishLater(r.Context(), s.jobs, tx, notify.WeeklyReportReady, report)
	})
	return report, err
}

// publishLater enqueues the job that publishes an event, in the transaction that
// makes it true.
func publishLater[T any](ctx context.Context, jobs *river.Client[pgx.Tx], tx pgx.Tx, t events.Type[T], payload T) error {
	job, err := publish.Job(t, payload)
	if err != nil {
		return err
	}
	_, err = jobs.InsertTx(ctx, tx, job, nil)
	return err
}

type badRequest string

func (text badRequest) Error() string { return string(text) }

// answer writes what a handler returns as JSON.
func answer(handle func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		result, err := handle(r)
		var bad badRequest
		switch {
		case errors.As(err, &bad), errors.Is(err, events.ErrInvalid), errors.Is(err, events.ErrTooLarge):
			http.Error(w, err.Error(), http.StatusBadRequest)
		case err != nil:
			slog.Error("request failed", "path", r.URL.Path, "err", err)
			http.Error(w, "try again later", http.StatusServiceUnavailable)
		default:
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusCreated)
			_ = json.NewEncoder(w).Encode(result)
		}
	}
}
