// Package notify says what is published to the queue of notifications. Publisher
// and consumer share it, so that a changed payload does not compile on one side.
package notify

import "github.com/stega/pgque-vendor/events"

// Queue is where notifications are published, Consumer who sends them.
const (
	Queue    = "stega.notifications"
	Consumer = "notification-worker"
)

// The events. The names are part of the agreement with every consumer: change a
// payload only by adding to it.
var (
	TicketWelcome     = events.Define[Ticket]("ticket.welcome")
	TicketSLABreached = events.Define[Ticket]("ticket.sla_breached")
	WeeklyReportReady = events.Define[Report]("report.weekly_ready")
)

// Ticket is what the events about a ticket carry.
type Ticket struct {
	ID      int64  `json:"id"`
	Subject string `json:"subject"`
	Email   string `json:"email"`
}

// Report is what report.weekly_ready carries.
type Report struct {
	ID    int64  `json:"id"`
	Week  string `json:"week"` // ISO 8601: 2026-W48
	Email string `json:"email"`
	Body  string `json:"body"`
}
