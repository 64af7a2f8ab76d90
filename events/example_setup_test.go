package events_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stega/pgque-vendor/events"
	"github.com/stega/pgque-vendor/internal/pgtest"
)

// exampleTB stands in for the *testing.T that an Example does not have.
type exampleTB struct {
	testing.TB
	cleanups []func()
}

func (e *exampleTB) Helper()                   {}
func (e *exampleTB) Name() string              { return "Example" }
func (e *exampleTB) Context() context.Context  { return context.Background() }
func (e *exampleTB) Cleanup(f func())          { e.cleanups = append(e.cleanups, f) }
func (e *exampleTB) Logf(f string, a ...any)   { fmt.Fprintf(os.Stderr, f+"\n", a...) }
func (e *exampleTB) Fatal(a ...any)            { panic(fmt.Sprint(a...)) }
func (e *exampleTB) Fatalf(f string, a ...any) { panic(fmt.Sprintf(f, a...)) }
func (e *exampleTB) Skip(a ...any)             { panic(fmt.Sprint(a...)) }
func (e *exampleTB) Skipf(f string, a ...any)  { panic(fmt.Sprintf(f, a...)) }
func (e *exampleTB) close() {
	for i := len(e.cleanups) - 1; i >= 0; i-- {
		e.cleanups[i]()
	}
}

// exampleDatabase is a database with PgQue and the queue "notifications".
func exampleDatabase() (pool *pgxpool.Pool, done func()) {
	tb := &exampleTB{}
	db := pgtest.Database(tb)
	db.Install(tb, pgtest.Standin())
	pool = db.Pool(tb)
	if _, err := events.EnsureQueue(tb.Context(), pool, "notifications", nil); err != nil {
		panic(err)
	}
	return pool, tb.close
}
