package bootstrap

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stega/pgque-vendor/internal/pgtest"
)

// queueMaker makes one queue, for tests.
type queueMaker struct{}

func (queueMaker) Look(ctx context.Context, tx pgx.Tx, installed bool) (steps []string, err error) {
	if !installed {
		return []string{"create queue"}, nil
	}
	var exists bool
	if err := tx.QueryRow(ctx, "select exists (select from pgque.queue where queue_name = 'made')").Scan(&exists); err != nil || exists {
		return nil, err
	}
	return []string{"create queue"}, nil
}

func (queueMaker) Apply(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, "select pgque.create_queue('made')")
	return err
}

// A login that may act as the owner, but has nothing of its own in the schema, adds
// a queue to an install that is there. From PostgreSQL 16 on that is how a login
// with CREATEROLE ends up.
func TestQueueLaterAsOwner(t *testing.T) {
	t.Parallel()
	pg := newCluster(t)
	rds := pg.Role(t, "createrole", "noinherit")
	db := pg.DatabaseWith(t, pgtest.DatabaseOptions{Owner: rds})
	f := fileOf(pgtest.Standin())
	mustBootstrap(t, db.URLAs(rds), f, Options{})
	mustBootstrap(t, db.URLAs(rds), f, Options{Provisioner: queueMaker{}})
	if got := db.Value(t, "select count(*) from pgque.queue where queue_name = 'made'"); got != "1" {
		t.Errorf("%s queues", got)
	}
}
