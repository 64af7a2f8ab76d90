package events

import (
	"context"
	"fmt"
)

// capabilities are what the login may call.
type capabilities struct {
	login        string
	settleAtOnce bool // get_batch_events and the query behind it, event_retry_raw, event_dead, the crash guard's deletes
	openCursor   bool // a DO in plpgsql
}

func (r *run) capabilities(ctx context.Context) (capabilities, error) {
	ctx, cancel := withTimeout(ctx, callTimeout)
	defer cancel()
	var can capabilities
	var consume, old, deletes, utf8 bool
	err := r.pool.QueryRow(ctx, `
		with may as (
			select name, pg_catalog.has_function_privilege(pg_catalog.to_regprocedure(signature), 'execute') as ok
			from (values
				('consume', 'pgque.subscribe(text,text)'), ('consume', 'pgque.next_batch_info(text,text)'),
				('consume', 'pgque.receive(text,text,integer)'), ('consume', 'pgque.ack(bigint)'),
				('consume', 'pgque.nack(bigint,pgque.message,interval,text)'),
				('settle', 'pgque.get_batch_events(bigint)'), ('settle', 'pgque.batch_event_sql(bigint)'),
				('settle', 'pgque.event_retry_raw(text,text,timestamptz,bigint,timestamptz,integer,text,text,text,text,text,text)'),
				('settle', 'pgque.event_dead(bigint,bigint,text,timestamptz,xid8,integer,text,text,text,text,text,text)')
			) as f(name, signature)
		)
		select current_user,
			(select coalesce(bool_and(coalesce(ok, false)), false) from may where name = 'consume'),
			(select coalesce(bool_and(coalesce(ok, false)), false) from may where name = 'settle'),
			pg_catalog.has_language_privilege('plpgsql', 'usage'),
			pg_catalog.has_table_privilege('pgque.retry_queue', 'delete') and pg_catalog.has_table_privilege('pgque.dead_letter', 'delete'),
			exists (select from pg_catalog.pg_proc where oid = pg_catalog.to_regprocedure('pgque.version()') and prosrc like '%1.0.0-dev%')
				or pg_catalog.to_regprocedure('pgque.receive(text,text,integer)') is null,
			`+inUTF8, exec).
		Scan(&can.login, &consume, &can.settleAtOnce, &can.openCursor, &deletes, &old, &utf8)
	can.settleAtOnce = can.settleAtOnce && deletes
	switch {
	case err != nil:
		return can, wrap(err, "look what the login may do")
	case !utf8:
		return can, errNotUTF8
	case old:
		return can, ErrNotInstalled
	case !consume:
		return can, fmt.Errorf("login %q lacks pgque_reader (grant pgque_reader to %q, or pgque_admin): %w", can.login, can.login, ErrPermission)
	}
	return can, nil
}
