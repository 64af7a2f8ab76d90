package browsertest

import (
	"context"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stega/pgque-vendor/events"
)

// Each trap of an event system that can be seen is on the page within ten seconds
// after it was set up, and gone within ten after its fix.
func TestTraps(t *testing.T) {
	const soon = 10 * time.Second
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
	p.within(soon, "well at first", well)

	t.Log("the ticker does not run")
	stopTicker()
	s.send(t, "tickets", 3)
	p.within(soon, "no ticker", found("no ticker runs")+` && `+found("pgque-vendor ticker"))
	p.shoot("trap-no-ticker")
	stopTicker = s.tick(t)
	p.within(soon, "mended", well)

	t.Log("step 2 is forgotten")
	stopTicker() // which would not forget it
	s.db.Exec(t, `update pgque.queue set queue_switch_step2 = null, queue_switch_time = now() - interval '3 minutes'`)
	p.within(soon, "step 2", found("second step")+` && `+found("pgque.maint_rotate_tables_step2()"))
	s.db.Exec(t, value[string](p, `document.querySelector('.findings .critical code').innerText`))
	p.within(soon, "mended", well)

	t.Log("a second ticker without the lock")
	s.db.Exec(t, `insert into pgque.tick (tick_queue, tick_id, tick_snapshot, tick_event_seq)
		select tick_queue, max(tick_id) + 1, '1:2:', max(tick_event_seq) from pgque.tick group by tick_queue`)
	p.within(soon, "ticks out of order", found("out of order"))
	s.db.Exec(t, `delete from pgque.tick where tick_snapshot::text = '1:2:'`)
	stopTicker = s.tick(t)
	p.within(soon, "mended", well)

	t.Log("a batch is never acked")
	stopConsumer()
	s.send(t, "tickets", 5)
	s.db.Exec(t, `do $$ begin for i in 1..100 loop
		exit when pgque.next_batch('tickets', 'mailer') is not null; perform pg_sleep(0.1); end loop; end $$`)
	s.db.Exec(t, `update pgque.subscription set sub_active = now() - interval '20 minutes'`)
	p.within(soon, "open batch", found("batch open for"))
	stopConsumer = s.consume(t, "tickets", "mailer", done)
	p.within(soon, "mended", well)
	stopConsumer()

	t.Log("the database goes away")
	s.db.Exec(t, `alter schema pgque rename to away`)
	p.within(soon, "no PgQue", `document.querySelector('main').innerText.includes('PgQue 0.2.0 or newer is not installed')`)
	p.shoot("trap-no-pgque")
	s.db.Exec(t, `alter schema away rename to pgque`)
	p.within(soon, "mended", well)
	stopTicker()
}
