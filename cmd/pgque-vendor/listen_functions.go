package main

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stega/pgque-vendor/events"
)

// How often the page compares the database's functions with the vendored SQL, which
// takes more than other looks and changes with a deploy, and how long that may take.
const (
	functionsEvery = time.Minute
	functionsLimit = 5 * time.Second
)

// functionsLook is doctor's comparison of functions, for the page.
type functionsLook struct {
	env   *environment
	dir   string
	next  time.Time
	found []events.Finding // the last one's
}

// take compares when it is time to. It is done between two looks, over their
// connection.
func (f *functionsLook) take(ctx context.Context, pool *pgxpool.Pool, log *slog.Logger) {
	if time.Now().Before(f.next) {
		return
	}
	f.next, f.found = time.Now().Add(functionsEvery), nil
	ctx, cancel := context.WithTimeout(ctx, functionsLimit)
	defer cancel()
	err := pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		_, found, err := compareFunctions(ctx, f.env, conn.Conn(), f.dir)
		if found != nil {
			f.found = append(f.found, *found)
		}
		return err
	})
	if err != nil {
		log.Debug("the functions in the database were not compared with the vendored SQL", "err", err)
	}
}

// with gives findings and those of the last comparison, the worst first. Its
// commands name the folder and the database.
func (f *functionsLook) with(findings []events.Finding) []events.Finding {
	if len(f.found) == 0 {
		return findings
	}
	all := slices.Clone(findings)
	for _, found := range f.found {
		lines := strings.Split(found.Fix, "\n")
		for i, line := range lines {
			lines[i] = f.env.again(line)
		}
		found.Fix = strings.Join(lines, "\n")
		all = append(all, found)
	}
	slices.SortStableFunc(all, func(a, b events.Finding) int { return cmp.Compare(b.Severity, a.Severity) })
	return all
}
