package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stega/pgque-vendor/internal/dbconn"
	"golang.org/x/term"
)

// watchQueues looks again and again until a signal. A database that does not
// answer for a while is said and no reason to end: that is when somebody watches.
func (o *queuesOptions) watchQueues(ctx context.Context, env *environment, pool *pgxpool.Pool, settings *dbconn.Settings, state *queuesState) error {
	stdout := env.stream()
	screen := env.tty(stdout) && !o.json
	if screen {
		// Long lines are cut by the terminal, not wrapped: rows stay rows.
		fmt.Fprint(stdout, "\x1b[?7l\x1b[2J")
		defer fmt.Fprint(stdout, "\x1b[?7h")
	}
	again := time.NewTicker(o.every)
	defer again.Stop()
	var trouble, said string
	for {
		var err error
		switch {
		case screen:
			err = state.redraw(stdout, o.every, trouble)
		case trouble != "":
			if trouble != said {
				env.warnf("%s", trouble)
			}
		case o.json:
			err = json.NewEncoder(stdout).Encode(state.document())
		default:
			err = state.writeLines(stdout)
		}
		if err != nil {
			return err
		}
		said = trouble
		select {
		case <-ctx.Done():
			return nil
		case <-again.C:
		}
		now, err := o.look(ctx, env, pool, settings)
		if endedBySignal(ctx) {
			return nil
		}
		if trouble = ""; err != nil {
			trouble = eventsFault(err, settings, o.queue).Error()
			continue
		}
		state = now
	}
}

// redraw shows the tables from the top left corner, in one write so that nothing
// flickers. What does not fit is cut off and said.
func (s *queuesState) redraw(w io.Writer, every time.Duration, trouble string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "database %q at %s, every %s, ends with ctrl-c\n", s.database, s.time.Format(time.TimeOnly), every)
	if trouble != "" {
		fmt.Fprintf(&b, "NO ANSWER since then: %s\n", strings.ReplaceAll(printable(trouble), "\n", "; "))
	}
	b.WriteByte('\n')
	if len(s.queues) == 0 {
		b.WriteString("no queue\n")
	} else if err := s.writeTables(&b); err != nil {
		return err
	}
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	if f, ok := w.(*os.File); ok {
		if _, height, err := term.GetSize(int(f.Fd())); err == nil && height > 2 && len(lines) >= height {
			left := len(lines) - height + 2
			lines = append(lines[:height-2], fmt.Sprintf("… and %d lines more; name a queue to see less", left))
		}
	}
	_, err := fmt.Fprint(w, "\x1b[H"+strings.Join(lines, "\x1b[K\n")+"\x1b[K\n\x1b[J")
	return err
}
