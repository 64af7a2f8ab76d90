package browsertest

import (
	"context"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/jackc/pgx/v5"
	"github.com/stega/pgque-vendor/events"
)

// Each trap of an event system that can be seen is on the page after it was set up,
// and gone after its fix. The log says how soon: within ten seconds each, where the
// machine is not busy with other things.
func TestTraps(t *testing.T) {
	p := openTab(t)
	done := func(context.Context, *events.Event) error { return nil }
	found := func(text string) string {
		return `(document.querySelector('.findings')?.innerText.includes(` + "`" + text + "`" + `) ?? false)`
	}
	well := `document.getElementById('state').innerText === 'All is well'`

	s := newSystem(t, "tickets")
	stopTicker := s.tick(t)
	stopConsumer := s.consume(t, "tickets", "mailer", done)
	p.do(chromedp.EmulateViewport(1000, 700), chromedp.Navigate(s.url))
	s.send(t, "tickets", 10)
	p.until("well at first", well)

	t.Log("the ticker does not run")
	stopTicker()
	s.send(t, "tickets", 3)
	p.until("no ticker", found("no ticker runs")+` && `+found("pgque-vendor ticker"))
	p.shoot("trap-no-ticker")
	stopTicker = s.tick(t)
	p.until("mended", well)

	t.Log("step 2 is forgotten")
	stopTicker() // which would not forget it
	s.db.Exec(t, `update pgque.queue set queue_switch_step2 = null, queue_switch_time = now() - interval '3 minutes'`)
	p.until("step 2", found("second step")+` && `+found("pgque.maint_rotate_tables_step2()"))
	s.db.Exec(t, value[string](p, `document.querySelector('.findings .critical code').innerText`))
	p.until("mended", well)

	t.Log("a second ticker without the lock")
	s.db.Exec(t, `select pgque.set_queue_config('tickets', 'ticker_max_lag', '1 ms'), pgque.set_queue_config('tickets', 'ticker_max_count', '1')`)
	var stopLoops []func()
	for _, sql := range []string{"select pgque.ticker()", "select pgque.send('tickets', 't', '{}'::jsonb)"} {
		for range 3 {
			conn := s.db.Connect(t)
			stopLoops = append(stopLoops, background(t, func(ctx context.Context) {
				for ctx.Err() == nil {
					_, _ = conn.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol)
				}
			}))
		}
	}
	p.until("ticks out of order", found("come out of order")+` && `+found("stop every ticker that is not pgque-vendor's"))
	p.shoot("trap-two-tickers")
	for _, stop := range stopLoops {
		stop()
	}
	stopTicker = s.tick(t)
	s.db.Exec(t, `update pgque.tick set tick_time = tick_time - interval '50 seconds'`) // of the minute that it takes
	p.until("mended", well+` && `+found("came out of order"))

	t.Log("a batch is never acked")
	stopConsumer()
	s.send(t, "tickets", 5)
	s.db.Exec(t, `do $$ begin for i in 1..100 loop
		exit when pgque.next_batch('tickets', 'mailer') is not null; perform pg_sleep(0.1); end loop; end $$`)
	s.db.Exec(t, `update pgque.subscription set sub_active = now() - interval '20 minutes'`)
	p.until("open batch", found("batch open for"))
	stopConsumer = s.consume(t, "tickets", "mailer", done)
	p.until("mended", well)
	stopConsumer()

	t.Log("the database goes away")
	s.db.Exec(t, `alter schema pgque rename to away`)
	p.until("no PgQue", `document.querySelector('main').innerText.includes('PgQue 0.2.0 or newer is not installed')`)
	p.shoot("trap-no-pgque")
	s.db.Exec(t, `alter schema away rename to pgque`)
	p.until("mended", well)
	stopTicker()
}
