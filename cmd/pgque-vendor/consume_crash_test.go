//go:build unix

package main

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/stega/pgque-vendor/internal/pgtest"
)

// B017: 1,300 events in one transaction, a COMMAND that fails now and then, ticker and
// consume killed and started again in between. Every event is handled, and the queue
// is empty in the end.
func TestConsumeLosesNothing(t *testing.T) {
	pgtest.EachVariant(t, func(t *testing.T, v pgtest.Variant) {
		const n = 1300
		b := newConsumeBench(t, v)
		startTicker := func() *running { return b.start("ticker", "--every", "20ms", "--quiet") }
		// 52 of the events fail at their first attempt, in four ways.
		script := `read n; if test $PGQUE_EVENT_ATTEMPT = 1; then case $n in *13) exit 1 ;; *26) exit 75 ;; *39) kill -9 $$ ;; *52) exit 99 ;; esac; fi; echo $n >> done`
		startConsume := func() *running {
			return b.consume(script, "--workers", "4", "--retry-after", "1s", "--limit", "30s")
		}
		handled := func() int { return strings.Count(b.file("done"), "\n") }

		ticker, consume := startTicker(), startConsume()
		b.publish(numbered(n)...)
		b.until("a first part", func() bool { return handled() > 200 })
		consume.signal(syscall.SIGKILL)
		ticker.signal(syscall.SIGKILL)
		consume.code()
		before := handled()
		consume, ticker = startConsume(), startTicker()
		b.until("a second part", func() bool { return handled() > before+100 })
		consume.signal(syscall.SIGKILL) // this time under the crash guard
		consume.code()
		consume = startConsume()

		b.until("the end of the batch", func() bool { return b.db.Value(t, openBatches) == "0" && handled() > before+n })
		// What ran when consume was killed is booked for an hour later.
		b.db.Exec(t, "update pgque.retry_queue set ev_retry_after = now() where ev_retry_after > now() + interval '1 minute'")
		seen := func() map[string]int {
			times := map[string]int{}
			for line := range strings.Lines(b.file("done")) {
				times[strings.TrimSpace(line)]++
			}
			return times
		}
		missing := func() (numbers []int) {
			times := seen()
			for i := 1; i <= n; i++ {
				if times[fmt.Sprint(i)] == 0 {
					numbers = append(numbers, i)
				}
			}
			return numbers
		}
		b.untilOr("every event", func() bool { return len(missing()) == 0 }, func() { t.Errorf("not handled: %d", missing()) })
		if got := len(seen()); got != n {
			t.Errorf("COMMAND was given %d different payloads, want %d: one was not whole", got, n)
		}
		b.untilSQL(settled, "t")
		consume.signal(syscall.SIGTERM)
		consume.wantCode(0)
		ticker.signal(syscall.SIGTERM)
		ticker.wantCode(0)
		if got := b.db.Value(t, deadLetters); got != "0" {
			t.Errorf("%s dead letters, want 0", got)
		}
	})
}
