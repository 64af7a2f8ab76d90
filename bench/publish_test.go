package bench

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stega/pgque-vendor/events"
	"github.com/stega/pgque-vendor/internal/pgtest"
)

const (
	batchSize  = 1000
	calls      = 10 // of one turn
	mixedCalls = 3
)

// ticket is a payload with all that a worker needs to write a mail.
const ticket = `{"ticket_id":48211,"account_id":1093,"requester":{"name":"Ann Example","email":"ann@example.org","locale":"de"},` +
	`"subject":"The export of last week fails","priority":"high","opened_at":"2026-11-30T09:14:07Z","sla_due_at":"2026-11-30T13:14:07Z",` +
	`"tags":["export","report"],"url":"https://help.example.org/tickets/48211"}`

// 1,000 events of one type, beside pgbench calling send_batch(text[]) with the
// same bytes: as one literal, since a client has to send them.
func TestPublish(t *testing.T) {
	wanted(t)
	db, pool := database(t, server(t))
	for _, c := range []struct{ name, payload string }{
		{"publish 1,000 of one type", payload},
		{fmt.Sprintf("the same, %d bytes each", len(ticket)), ticket},
	} {
		literal := "{" + strings.TrimSuffix(strings.Repeat(`"`+strings.ReplaceAll(c.payload, `"`, `\"`)+`",`, batchSize), ",") + "}"
		bench := pgbench(t, db, fmt.Sprintf("select pgque.send_batch('%s', 'bench.event', '%s'::text[]);", queue, literal))
		es := make([]events.Event, batchSize)
		for i := range es {
			es[i] = events.Event{Type: "bench.event", Payload: json.RawMessage(c.payload)}
		}
		ours := func() float64 {
			return perSecond(t, calls*batchSize, func() error {
				for range calls {
					if _, err := events.SendBatch(t.Context(), pool, queue, es); err != nil {
						return err
					}
				}
				return nil
			})
		}
		compare(t, ours, bench).report(t, c.name, "pgbench, `send_batch(text[])`", 0.9)
	}
}

// 1,000 events of mixed types, beside one statement over unnest.
func TestPublishMixed(t *testing.T) {
	wanted(t)
	_, pool := database(t, server(t))
	for _, c := range []struct {
		name string
		run  int // of one type
	}{{"publish 1,000 of 3 types, mixed", 1}, {"publish 1,000 of 3 types, in runs of 100", 100}} {
		es := make([]events.Event, batchSize)
		types, data := make([]string, batchSize), make([]string, batchSize)
		for i := range es {
			types[i], data[i] = fmt.Sprint("bench.", i/c.run%3), payload
			es[i] = events.Event{Type: types[i], Payload: json.RawMessage(payload)}
		}
		ours := func() float64 {
			return perSecond(t, mixedCalls*batchSize, func() error {
				for range mixedCalls {
					if _, err := events.SendBatch(t.Context(), pool, queue, es); err != nil {
						return err
					}
				}
				return nil
			})
		}
		floor := func() float64 {
			return perSecond(t, mixedCalls*batchSize, func() error {
				for range mixedCalls {
					_, err := pool.Exec(t.Context(), `select pgque.insert_event($1::text, typ, data, null, null, null, null)
						from unnest($2::text[], $3::text[]) as u(typ, data)`, queue, types, data)
					if err != nil {
						return err
					}
				}
				return nil
			})
		}
		// "No slower" is 1; a twentieth is what two equal programs differ by here.
		compare(t, ours, floor).report(t, c.name, "one statement over `unnest`", 0.95)
	}
}

// pgbench gives a function that runs a script and returns its events per second,
// by its own clock, without the time to connect.
func pgbench(t *testing.T, db *pgtest.DB, script string) func() float64 {
	t.Helper()
	program, err := exec.LookPath("pgbench")
	if err != nil {
		t.Fatal("no pgbench in PATH, which the figure is to stand beside")
	}
	file := filepath.Join(t.TempDir(), "script.sql")
	if err := os.WriteFile(file, []byte(script+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	rate := regexp.MustCompile(`tps = ([0-9.]+) \(without`)
	return func() float64 {
		cmd := exec.CommandContext(t.Context(), program, "-n", "-f", file, "-t", strconv.Itoa(calls), db.URL)
		var out, log bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &log
		if err := cmd.Run(); err != nil {
			t.Fatalf("pgbench: %v\n%s", err, log.Bytes())
		}
		found := rate.FindSubmatch(out.Bytes())
		if found == nil {
			t.Fatalf("pgbench says\n%s", out.Bytes())
		}
		tps, err := strconv.ParseFloat(string(found[1]), 64)
		if err != nil {
			t.Fatal(err)
		}
		return tps * batchSize
	}
}
