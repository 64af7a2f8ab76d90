package events

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Settings are a queue's parameters by PgQue's names, each with a value as
// PostgreSQL reads it ("50 ms", "2 hours", "10", "true"):
//
//	ticker_max_lag      how long an event may wait for a tick; 3 s in PgQue, 50 ms
//	                    on a queue that EnsureQueue makes
//	ticker_max_count    with so many new events the next tick comes at once; 500
//	ticker_idle_period  how far ticks spread out when nothing is sent; 1 minute
//	ticker_paused       no ticks, so no deliveries; false
//	external_ticker     ticks come from elsewhere; false
//	rotation_period     how long events are kept at least; 2 hours
//	max_retries         failed attempts before an event is a dead letter; 5
type Settings map[string]string

// settingTypes are the names that PgQue accepts and the types of their values.
func settingTypes() map[string]string {
	return map[string]string{
		"ticker_max_lag": "interval", "ticker_max_count": "integer", "ticker_idle_period": "interval",
		"ticker_paused": "boolean", "external_ticker": "boolean", "rotation_period": "interval",
		"max_retries": "integer",
	}
}

// QueueResult is what [EnsureQueue] found and did.
type QueueResult struct {
	Created bool            // false: the queue was there already
	Changed []SettingChange // settings that had another value, by name
}

// SettingChange is one setting before and after, as PostgreSQL writes the value.
type SettingChange struct{ Name, From, To string }

// defaultMaxLag is the ticker_max_lag of queues we make: half of the ticker's
// default period, so that no tick is declined for being too early.
const defaultMaxLag = "50 ms"

// EnsureQueue makes the queue unless it is there, and gives it the settings that
// are named; others stay as they are. Any number of processes may call it at once.
// It needs pgque_admin.
//
// Errors: [ErrInvalid] for a name, setting or value that PgQue would not take,
// [ErrPermission], [ErrNotInstalled]. When it fails nothing was changed.
func EnsureQueue(ctx context.Context, db DB, queue string, settings Settings) (QueueResult, error) {
	if err := checkQueue(queue); err != nil {
		return QueueResult{}, err
	}
	names, err := settingNames(settings)
	if err != nil {
		return QueueResult{}, err
	}
	ctx, cancel := withTimeout(ctx, callTimeout)
	defer cancel()
	var result QueueResult
	err = retryRaces(ctx, db, func(tx pgx.Tx) (err error) {
		result = QueueResult{}
		if result.Created, err = createQueue(ctx, tx, queue); err != nil {
			return err
		}
		if _, given := settings["ticker_max_lag"]; result.Created && !given {
			if _, err := changeSetting(ctx, tx, queue, "ticker_max_lag", defaultMaxLag); err != nil {
				return err
			}
		}
		for _, name := range names {
			change, err := changeSetting(ctx, tx, queue, name, settings[name])
			if err != nil {
				return err
			}
			if change.From != change.To && !result.Created {
				result.Changed = append(result.Changed, change)
			}
		}
		return nil
	})
	if err != nil {
		return QueueResult{}, wrap(err, "ensure queue %q", queue)
	}
	return result, nil
}

// CheckQueue says whether [EnsureQueue] would take the name and the settings. It
// changes nothing and needs no right and no PgQue: the database only reads the values.
//
// Errors: [ErrInvalid].
func CheckQueue(ctx context.Context, db DB, queue string, settings Settings) error {
	if err := checkQueue(queue); err != nil {
		return err
	}
	names, err := settingNames(settings)
	if err != nil {
		return err
	}
	ctx, cancel := withTimeout(ctx, callTimeout)
	defer cancel()
	for _, name := range names {
		kind, value := settingTypes()[name], settings[name]
		valid := map[string]string{"integer": "$1::text::integer > 0", "interval": "$1::text::interval > '0'", "boolean": "$1::text::boolean is not null"}[kind]
		if name == "max_retries" {
			valid = "$1::text::integer >= 0"
		}
		var ok bool
		err := db.QueryRow(ctx, "select "+valid, exec, value).Scan(&ok)
		switch {
		case err != nil:
			return wrap(settingError(err, name, value), "check queue %q", queue)
		case !ok:
			return fmt.Errorf("check queue %q: setting %s = %q is too small: %w", queue, name, value, ErrInvalid)
		}
	}
	return nil
}

// CheckConsumer says whether [Subscribe] would take the name.
//
// Errors: [ErrInvalid].
func CheckConsumer(consumer string) error { return checkConsumer(consumer) }

// settingNames gives the settings' names in order, all of them known.
func settingNames(settings Settings) ([]string, error) {
	types := settingTypes()
	var names []string
	for name, value := range settings {
		if types[name] == "" {
			known := make([]string, 0, len(types))
			for k := range types {
				known = append(known, k)
			}
			slices.Sort(known)
			return nil, fmt.Errorf("queue setting %q is unknown (known: %s): %w", name, strings.Join(known, ", "), ErrInvalid)
		}
		if err := checkText("value of "+name, value); err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return names, nil
}

// createQueue makes the queue and says whether it was not there.
//
// PgQue's first event takes the number that the first tick has noted already, so
// the ticker does not see it and it waits for an idle tick, up to a minute. One
// number taken here keeps that from happening.
func createQueue(ctx context.Context, tx pgx.Tx, queue string) (bool, error) {
	var created int
	if err := tx.QueryRow(ctx, "select pgque.create_queue($1)", exec, queue).Scan(&created); err != nil {
		return false, err
	}
	if created == 0 {
		return false, nil
	}
	_, err := tx.Exec(ctx, "select nextval(queue_event_seq::regclass) from pgque.queue where queue_name = $1", exec, queue)
	return true, err
}

// changeSetting gives a setting its value unless it has it, so that a start
// with the same settings writes nothing.
func changeSetting(ctx context.Context, tx pgx.Tx, queue, name, value string) (SettingChange, error) {
	change := SettingChange{Name: name}
	var same bool
	compare := fmt.Sprintf(`select coalesce(queue_%[1]s::text, ''), queue_%[1]s is not distinct from $2::text::%[2]s
		from pgque.queue where queue_name = $1`, name, settingTypes()[name])
	if err := tx.QueryRow(ctx, compare, exec, queue, value).Scan(&change.From, &same); err != nil {
		return change, settingError(err, name, value)
	}
	if same {
		change.To = change.From
		return change, nil
	}
	if _, err := tx.Exec(ctx, "select pgque.set_queue_config($1, $2, $3)", exec, queue, name, value); err != nil {
		return change, settingError(err, name, value)
	}
	err := tx.QueryRow(ctx, fmt.Sprintf("select coalesce(queue_%s::text, '') from pgque.queue where queue_name = $1", name), exec, queue).Scan(&change.To)
	return change, err
}

// settingError tells a bad value (a data exception, or what PgQue raises about
// it) from every other failure.
func settingError(err error, name, value string) error {
	var pg *pgconn.PgError
	if errors.As(err, &pg) && (strings.HasPrefix(pg.Code, "22") || pg.Code == "P0001" && strings.HasPrefix(pg.Message, "set_queue_config:")) {
		return fmt.Errorf("setting %s = %q: %w: %w", name, value, ErrInvalid, err)
	}
	return err
}

// DropQueue removes a queue with its events, retries and dead letters. Unless
// force is true it refuses while a consumer is subscribed. It needs pgque_admin.
//
// Errors: [ErrQueueNotFound]; [ErrInvalid] while consumers are subscribed.
func DropQueue(ctx context.Context, db DB, queue string, force bool) error {
	ctx, cancel := withTimeout(ctx, callTimeout)
	defer cancel()
	err := inTx(ctx, db, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "select pgque.drop_queue($1, $2)", exec, queue, force)
		return err
	})
	var pg *pgconn.PgError
	if errors.As(err, &pg) && strings.Contains(pg.Message, "consumers still attached") {
		err = fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return wrap(err, "drop queue %q", queue)
}

// Subscribe subscribes a consumer to a queue unless it is subscribed, and says
// whether it was not. From then on it gets every event that is sent. Any number of
// processes may call it at once. It needs pgque_reader; a queue without any tick
// (all its consumers were gone for long) also needs pgque_admin, since one tick
// must come first.
//
// Errors: [ErrInvalid] for a name that PgQue would not take, [ErrQueueNotFound],
// [ErrPermission], [ErrNotInstalled].
func Subscribe(ctx context.Context, db DB, queue, consumer string) (created bool, err error) {
	if err := errors.Join(checkQueue(queue), checkConsumer(consumer)); err != nil {
		return false, err
	}
	ctx, cancel := withTimeout(ctx, callTimeout)
	defer cancel()
	err = retryRaces(ctx, db, func(tx pgx.Tx) error {
		var ticked bool
		err := tx.QueryRow(ctx, `select exists (select from pgque.tick where tick_queue = queue_id)
			from pgque.queue where queue_name = $1`, exec, queue).Scan(&ticked)
		if errors.Is(err, pgx.ErrNoRows) {
			return ErrQueueNotFound
		}
		if err == nil && !ticked {
			err = firstTick(ctx, tx, queue)
		}
		if err != nil {
			return err
		}
		var n int
		err = tx.QueryRow(ctx, "select pgque.subscribe($1, $2)", exec, queue, consumer).Scan(&n)
		created = n > 0
		return err
	})
	return created, wrap(err, "subscribe %q to queue %q", consumer, queue)
}

// firstTick gives a queue without ticks the one that a subscription starts from.
func firstTick(ctx context.Context, tx pgx.Tx, queue string) error {
	_, err := tx.Exec(ctx, `select pg_advisory_xact_lock($1, queue_id), pgque.ticker(queue_name)
		from pgque.queue where queue_name = $2`, exec, lockTicks, queue)
	return wrap(err, "make the first tick of queue %q", queue)
}

// Unsubscribe ends a subscription and says whether there was one. The consumer's
// retries are dropped and, when it has no other subscription, all its dead
// letters too. Stop the consumer first: one that runs subscribes itself again. It
// needs pgque_reader.
func Unsubscribe(ctx context.Context, db DB, queue, consumer string) (bool, error) {
	ctx, cancel := withTimeout(ctx, callTimeout)
	defer cancel()
	var n int
	err := inTx(ctx, db, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, "select pgque.unsubscribe($1, $2)", exec, queue, consumer).Scan(&n)
	})
	return n > 0, wrap(err, "unsubscribe %q from queue %q", consumer, queue)
}

// retryRaces runs fn in a transaction (a savepoint inside the caller's), again
// when it collided with another process that did the same thing first.
func retryRaces(ctx context.Context, db DB, fn func(pgx.Tx) error) error {
	for try := 1; ; try++ {
		err := inTx(ctx, db, fn)
		if !raced(err) || try == 20 {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(rand.N(time.Duration(try) * 10 * time.Millisecond)):
		}
	}
}

// raced says that another process made the same queue or consumer at the same
// moment. PgQue does not handle it, and the next try finds the thing there.
func raced(err error) bool {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return false
	}
	switch pg.Code {
	case "40P01":
		return true
	case "23505":
		return slices.Contains([]string{"queue_name_uq", "consumer_name_uq", "subscription_pkey"}, pg.ConstraintName)
	}
	return false
}
