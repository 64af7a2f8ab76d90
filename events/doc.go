// Package events publishes and consumes events on [PgQue], the event queue that
// lives in PostgreSQL as plain SQL. It needs pgx and nothing else.
//
// One event goes to any number of independent, named consumers, each with its
// own position in the queue. The words are PgQue's: an event is sent to a queue;
// a consumer subscribes, receives a batch, nacks what failed and acks the batch;
// a tick cuts the queue into batches, so a ticker must run somewhere.
//
// # Describe an event once
//
// Publisher and handler share one description, so a wrong type name or a changed
// payload does not compile:
//
//	type Payload struct{ Email string }
//
//	var Welcome = events.Define[Payload]("ticket.welcome")
//
// # Publish
//
// [Send] takes a pool, a connection or your own transaction. In a transaction the
// event is committed with your rows, or not at all:
//
//	id, err := events.Send(ctx, tx, "notifications", Welcome.New(Payload{Email: "ann@example.com"}))
//
// # Consume
//
//	c := events.NewConsumer(pool, "notifications", "mailer", events.ConsumerConfig{Workers: 4})
//	events.Handle(c, Welcome, func(ctx context.Context, e *events.Event, p Payload) error {
//		return mail.Send(ctx, p.Email)
//	})
//	err := c.Run(ctx) // until ctx ends; then it lets handlers finish and settles
//
// What is wrong with the consumer's name or configuration is found by Run, too.
//
// A handler returns nil when it is done, an error to get the event again after a
// growing pause, or [RetryAfter], [Dead] or [Skip]. After the queue's maximum of
// retries (5 unless it was set) the event becomes a dead letter.
//
// An event is handled at least once. Handlers must bear a repeat: after a crash
// the batch comes again. [HandleTx] makes effects in a database happen once.
// Events with one key (ConsumerConfig.Key) are handled in order among first
// deliveries; between retries and later batches no order is promised.
//
// # Tick
//
//	err := events.NewTicker(pool, events.TickerConfig{}).Run(ctx)
//
// Any number of tickers may run at once. Without one nothing is ever delivered.
//
// # Roles
//
// Publishing needs pgque_writer; consuming pgque_reader, though without
// pgque_admin a consumer cannot dead-letter at once, has no crash guard and
// settles failures one by one; everything else needs pgque_admin.
//
// # Connections
//
// Every call has a deadline, names its own transaction mode and uses no prepared
// statements and no session state, so pools behind pgbouncer in transaction mode
// work, except that a consumer then polls instead of being woken.
//
// [PgQue]: https://github.com/NikolayS/PgQue
package events
