-- pgque-vendor stand-in: for tests and demos, not PgQue
--
-- Our own SQL with PgQue's documented interface: the functions, types, tables
-- and roles that pgque-vendor and its event library use, behaving as PgQue
-- does. The conformance suite holds it to that. Whoever wants a queue that is
-- looked after takes PgQue: https://github.com/NikolayS/PgQue
--
-- How it works. Producers append events to a table of the queue. The ticker
-- writes down now and then which transactions it can see: a tick. A batch is
-- what one tick sees and the tick before it did not. Each consumer keeps its
-- own place among the ticks. Events that failed wait in retry_queue for their
-- hour and are then appended again, for that consumer only. The events lie in
-- three tables that take turns, so that old ones go by TRUNCATE.
--
-- The file makes two releases: lines between ">>> TAG" and "<<<" belong to
-- that release only. Running it again, or over the older release, is safe.

create schema if not exists pgque;

----------------------------------------------------------------------------
-- Roles. They belong to the cluster, so they may be there already. What is
-- granted already is left alone: whoever may run this file need not be the
-- one who may grant.
do $$
declare
    r text;
begin
    foreach r in array array['pgque_reader', 'pgque_writer', 'pgque_admin'] loop
        if not exists (select from pg_catalog.pg_roles where rolname = r) then
            execute format('create role %I', r);
        end if;
    end loop;
    foreach r in array array['pgque_reader', 'pgque_writer'] loop
        if not exists (select from pg_catalog.pg_auth_members m
                       where m.roleid::regrole::text = r and m.member = 'pgque_admin'::regrole) then
            execute format('grant %I to pgque_admin', r);
        end if;
    end loop;
end
$$;
-- >>> v0.1.0
grant pgque_reader to pgque_writer;
-- <<<
-- >>> v0.2.0
do $$
begin
    -- The older release let every writer finish other people's batches.
    if exists (select from pg_catalog.pg_auth_members
               where roleid = 'pgque_reader'::regrole and member = 'pgque_writer'::regrole) then
        revoke pgque_reader from pgque_writer;
    end if;
end
$$;
-- <<<

----------------------------------------------------------------------------
-- Tables.

create table if not exists pgque.queue (
    queue_id                 serial      primary key,
    queue_name               text        not null constraint queue_name_uq unique,
    queue_ntables            integer     not null default 3,
    queue_cur_table          integer     not null default 0,
    queue_rotation_period    interval    not null default '2 hours',
    queue_switch_step1       bigint      not null default pg_current_xact_id()::text::bigint,
    queue_switch_step2       bigint               default pg_current_xact_id()::text::bigint,
    queue_switch_time        timestamptz not null default now(),
    queue_external_ticker    boolean     not null default false,
    queue_disable_insert     boolean     not null default false,
    queue_ticker_paused      boolean     not null default false,
    queue_ticker_max_count   integer     not null default 500,
    queue_ticker_max_lag     interval    not null default '3 seconds',
    queue_ticker_idle_period interval    not null default '1 minute',
    queue_data_pfx           text        not null,
    queue_event_seq          text        not null,
    queue_tick_seq           text        not null,
    queue_extra_maint        text[],
    queue_max_retries        integer                   -- NULL means 5
);

create table if not exists pgque.tick (
    tick_queue     integer     not null constraint tick_queue_fkey references pgque.queue,
    tick_id        bigint      not null,
    tick_time      timestamptz not null default now(),
    tick_snapshot  pg_snapshot not null default pg_current_snapshot(),
    tick_event_seq bigint      not null,
    primary key (tick_queue, tick_id)
);

create table if not exists pgque.consumer (
    co_id   serial primary key,
    co_name text   not null constraint consumer_name_uq unique
);

create sequence if not exists pgque.batch_id_seq;

create table if not exists pgque.subscription (
    sub_id        serial      not null,
    sub_queue     integer     not null constraint sub_queue_fkey references pgque.queue,
    sub_consumer  integer     not null constraint sub_consumer_fkey references pgque.consumer,
    sub_last_tick bigint,
    sub_active    timestamptz not null default now(),
    sub_batch     bigint      constraint subscription_batch_idx unique,
    sub_next_tick bigint,
    primary key (sub_queue, sub_consumer)
);

-- The parent of each queue's parent: it only lends its columns.
create table if not exists pgque.event_template (
    ev_id     bigint      not null,
    ev_time   timestamptz not null,
    ev_txid   xid8        not null default pg_current_xact_id(),
    ev_owner  integer,                   -- the one subscription it is for; NULL: for all
    ev_retry  integer,                   -- how often it was sent back; NULL: never
    ev_type   text,
    ev_data   text,
    ev_extra1 text,
    ev_extra2 text,
    ev_extra3 text,
    ev_extra4 text
);

create table if not exists pgque.retry_queue (
    ev_retry_after timestamptz not null,
    ev_queue       integer     not null constraint rq_queue_id_fkey references pgque.queue,
    ev_id          bigint      not null,
    ev_time        timestamptz not null,
    ev_txid        xid8,
    ev_owner       integer     not null,
    ev_retry       integer,
    ev_type        text,
    ev_data        text,
    ev_extra1      text,
    ev_extra2      text,
    ev_extra3      text,
    ev_extra4      text,
    constraint rq_pkey primary key (ev_owner, ev_id)
);
create index if not exists rq_retry_idx on pgque.retry_queue (ev_retry_after);

create table if not exists pgque.config (
    singleton     boolean     primary key default true check (singleton),
    ticker_job_id bigint,
    maint_job_id  bigint,
    installed_at  timestamptz not null default clock_timestamp()
);

create table if not exists pgque.dead_letter (
    dl_id          bigserial   primary key,
    dl_queue_id    integer     not null references pgque.queue on delete cascade,
    dl_consumer_id integer     not null references pgque.consumer on delete cascade,
    dl_time        timestamptz not null default now(),
    dl_reason      text,
    ev_id          bigint      not null,
    ev_time        timestamptz not null,
    ev_txid        xid8,
    ev_retry       integer,
    ev_type        text,
    ev_data        text,
    ev_extra1      text,
    ev_extra2      text,
    ev_extra3      text,
    ev_extra4      text
);
create index if not exists dl_queue_time_idx on pgque.dead_letter (dl_queue_id, dl_time);

-- What the newer release adds. As in PgQue, a rerun takes its locks in this
-- order, which is the opposite of the consumers' own.
-- >>> v0.2.0
alter table pgque.retry_queue alter column ev_txid drop not null;
alter table pgque.config add column if not exists scheduler text
    constraint config_scheduler_check check (scheduler in ('pg_cron', 'pg_timetable'));
alter table pgque.config add column if not exists tick_period_ms integer not null default 100;
create unique index if not exists dl_queue_consumer_ev_idx on pgque.dead_letter (dl_queue_id, dl_consumer_id, ev_id);
alter table pgque.subscription add column if not exists sub_role text not null default 'normal';
-- <<<
insert into pgque.config default values on conflict do nothing;

----------------------------------------------------------------------------
-- Small helpers.

create or replace function pgque.version() returns text
language sql security definer set search_path = pgque, pg_catalog as $$
-- >>> v0.1.0
    select '0.1.0'::text;
-- <<<
-- >>> v0.2.0
    select '0.2.0'::text;
-- <<<
$$;

create or replace function pgque.seq_getval(i_seq_name text) returns bigint
language plpgsql as $$
declare
    v bigint;
begin
    execute format('select last_value from %s', i_seq_name::regclass) into v;
    return v;
end
$$;

create or replace function pgque.current_event_table(x_queue_name text) returns text
language plpgsql as $$
declare
    t text;
begin
    select queue_data_pfx || '_' || queue_cur_table into t from pgque.queue where queue_name = x_queue_name;
    if not found then
        raise exception 'queue not found: %', x_queue_name;
    end if;
    return t;
end
$$;

----------------------------------------------------------------------------
-- Ticks.

-- One tick of one queue, if one is due: enough events have come, or some have
-- and the last tick is old, or nothing happens at all and the pause has doubled.
create or replace function pgque.ticker(i_queue_name text) returns bigint
language plpgsql security definer set search_path = pgque, pg_catalog as $$
declare
    q      pgque.queue;
    latest pgque.tick;
    before timestamptz;
    seq    bigint;
    age    interval;
    due    boolean;
    id     bigint;
begin
    select * into q from pgque.queue where queue_name = i_queue_name;
    if not found then
        raise exception 'no such queue';
    elsif q.queue_external_ticker then
        raise exception 'queue % has an external tick source', i_queue_name;
    elsif q.queue_ticker_paused then
        raise exception 'queue % is paused', i_queue_name;
    end if;

    seq := pgque.seq_getval(q.queue_event_seq);
    select * into latest from pgque.tick where tick_queue = q.queue_id order by tick_id desc limit 1;
    if found then
        select tick_time into before from pgque.tick
        where tick_queue = q.queue_id and tick_id < latest.tick_id order by tick_id desc limit 1;
        -- A dump that was restored into another cluster has ticks from the
        -- future: every batch made from them would be wrong.
        if pg_snapshot_xmin(latest.tick_snapshot) > pg_snapshot_xmin(pg_current_snapshot())
            or pg_snapshot_xmax(latest.tick_snapshot) > pg_snapshot_xmax(pg_current_snapshot()) then
            raise exception 'Invalid PgQ state: old xmin=%, old xmax=%, cur xmin=%, cur xmax=%',
                pg_snapshot_xmin(latest.tick_snapshot), pg_snapshot_xmax(latest.tick_snapshot),
                pg_snapshot_xmin(pg_current_snapshot()), pg_snapshot_xmax(pg_current_snapshot());
        end if;
        age := now() - latest.tick_time;
        if seq < latest.tick_event_seq then
            raise warning 'Negative new_events on queue %: % after %', i_queue_name, seq, latest.tick_event_seq;
        end if;
        if seq > latest.tick_event_seq then
            due := seq - latest.tick_event_seq >= q.queue_ticker_max_count or age >= q.queue_ticker_max_lag;
        else
            due := before is null or 2 * age >= q.queue_ticker_max_lag
                and (age >= q.queue_ticker_idle_period or age >= 2 * (latest.tick_time - before));
        end if;
        if not due then
            return null;
        end if;
    end if;

    id := nextval(q.queue_tick_seq::regclass);
    insert into pgque.tick (tick_queue, tick_id, tick_event_seq) values (q.queue_id, id, seq);
    perform pg_notify('pgque_' || q.queue_name, id::text);
    return id;
end
$$;

-- All queues, in one transaction; returns how many ticked.
create or replace function pgque.ticker() returns bigint
language plpgsql security definer set search_path = pgque, pg_catalog as $$
declare
    q text;
    n bigint := 0;
begin
    for q in select queue_name from pgque.queue
             where not queue_external_ticker and not queue_ticker_paused order by queue_id loop
        if pgque.ticker(q) is not null then
            n := n + 1;
        end if;
    end loop;
    return n;
end
$$;

-- A tick that somebody else made, for a queue that is filled by replication.
create or replace function pgque.ticker(i_queue_name text, i_tick_id bigint, i_orig_timestamp timestamptz, i_event_seq bigint)
returns bigint
language plpgsql security definer set search_path = pgque, pg_catalog as $$
declare
    q pgque.queue;
begin
    select * into q from pgque.queue where queue_name = i_queue_name;
    if not found then
        raise exception 'no such queue';
    elsif not q.queue_external_ticker then
        raise exception 'queue % has no external tick source', i_queue_name;
    elsif q.queue_ticker_paused then
        raise exception 'queue % is paused', i_queue_name;
    end if;
    if exists (select from pgque.tick where tick_queue = q.queue_id and tick_event_seq > i_event_seq) then
        raise exception 'event sequence % is older than a tick of queue %', i_event_seq, i_queue_name;
    end if;
    perform setval(q.queue_tick_seq::regclass, i_tick_id), setval(q.queue_event_seq::regclass, i_event_seq);
    insert into pgque.tick (tick_queue, tick_id, tick_time, tick_event_seq)
    values (q.queue_id, i_tick_id, i_orig_timestamp, i_event_seq);
    perform pg_notify('pgque_' || q.queue_name, i_tick_id::text);
    return i_tick_id;
end
$$;

-- Lets the next ticker() tick whatever the thresholds are, by jumping over
-- many event ids. It does not tick itself; it returns the last tick.
create or replace function pgque.force_tick(i_queue_name text) returns bigint
language plpgsql security definer set search_path = pgque, pg_catalog as $$
declare
    q pgque.queue;
begin
    select * into q from pgque.queue where queue_name = i_queue_name;
    if not found then
        raise exception 'queue not found: %', i_queue_name;
    elsif q.queue_external_ticker then
        raise exception 'queue % has an external tick source', i_queue_name;
    elsif q.queue_ticker_paused then
        raise exception 'queue % is paused', i_queue_name;
    end if;
    perform setval(q.queue_event_seq::regclass,
                   nextval(q.queue_event_seq::regclass) + 2 * q.queue_ticker_max_count + 1000);
    return (select max(tick_id) from pgque.tick where tick_queue = q.queue_id);
end
$$;

-- >>> v0.2.0
create or replace function pgque.force_next_tick(i_queue_name text) returns bigint
language sql security definer set search_path = pgque, pg_catalog as $$
    select pgque.force_tick(i_queue_name);
$$;

-- About a second of ticks, for a scheduler that starts once a second.
create or replace procedure pgque.ticker_loop()
language plpgsql as $$
declare
    period integer := (select tick_period_ms from pgque.config);
begin
    for i in 1 .. 1000 / period loop
        perform pgque.ticker();
        commit;  -- each tick is for others to see before the next one
        perform pg_sleep(period / 1000.0);
    end loop;
end
$$;

create or replace function pgque.set_tick_period_ms(p_period_ms integer) returns integer
language plpgsql security definer set search_path = pgque, pg_catalog as $$
begin
    if p_period_ms is null or p_period_ms not between 1 and 1000 or 1000 % p_period_ms <> 0 then
        raise exception 'the tick period must divide 1000 ms, got %', p_period_ms;
    end if;
    update pgque.config set tick_period_ms = p_period_ms;
    return p_period_ms;
end
$$;
-- <<<

----------------------------------------------------------------------------
-- Queues.

create or replace function pgque.create_queue(i_queue_name text) returns integer
language plpgsql security definer set search_path = pgque, pg_catalog as $$
declare
    id  integer;
    pfx text;
begin
    if i_queue_name is null then
        raise exception 'Invalid NULL value';
    end if;
    -- The channel name "pgque_" → queue must fit into PostgreSQL's 63 bytes.
    if octet_length(i_queue_name) > 57 then
        raise exception 'queue name too long: % bytes (max 57)', octet_length(i_queue_name);
    end if;
    if exists (select from pgque.queue where queue_name = i_queue_name) then
        return 0;
    end if;

    id := nextval('pgque.queue_queue_id_seq');
    pfx := 'pgque.event_' || id;
    execute format('create sequence %s_id_seq', pfx);
    execute format('create sequence %s_tick_seq', pfx);
    execute format('create table %s () inherits (pgque.event_template)', pfx);
    for i in 0 .. 2 loop
        -- Emptied by TRUNCATE only: autovacuum would find nothing to do.
        execute format('create table %1$s_%2$s () inherits (%1$s)
                        with (autovacuum_enabled = off, toast.autovacuum_enabled = off)', pfx, i);
        execute format('alter table %s_%s alter ev_id set default nextval(%L)', pfx, i, pfx || '_id_seq');
        execute format('create index %s_txid_idx on %s_%s (ev_txid)', substr(pfx, 7) || '_' || i, pfx, i);
    end loop;
    insert into pgque.queue (queue_id, queue_name, queue_data_pfx, queue_event_seq, queue_tick_seq)
    values (id, i_queue_name, pfx, pfx || '_id_seq', pfx || '_tick_seq');
    perform pgque.grant_perms(i_queue_name);
    perform pgque.ticker(i_queue_name);  -- a consumer needs a tick to stand on
    return 1;
end
$$;

create or replace function pgque.grant_perms(x_queue_name text) returns integer
language plpgsql security definer set search_path = pgque, pg_catalog as $$
declare
    q pgque.queue;
begin
    select * into q from pgque.queue where queue_name = x_queue_name;
    execute format('grant select on sequence %s, %s to public', q.queue_event_seq, q.queue_tick_seq);
    execute format('grant usage on sequence %s to pgque_admin', q.queue_event_seq);
    execute format('grant select on %1$s, %1$s_0, %1$s_1, %1$s_2 to public, pgque_reader', q.queue_data_pfx);
    execute format('grant all on %1$s, %1$s_0, %1$s_1, %1$s_2 to pgque_admin', q.queue_data_pfx);
    return 1;
end
$$;

create or replace function pgque.drop_queue(x_queue_name text, x_force boolean) returns integer
language plpgsql security definer set search_path = pgque, pg_catalog as $$
declare
    q pgque.queue;
begin
    select * into q from pgque.queue where queue_name = x_queue_name for update;
    if not found then
        raise exception 'No such event queue';
    end if;
    if x_force then
        perform pgque.unregister_consumer(x_queue_name, co_name)
        from pgque.subscription join pgque.consumer on co_id = sub_consumer where sub_queue = q.queue_id;
    elsif exists (select from pgque.subscription where sub_queue = q.queue_id) then
        raise exception 'cannot drop queue, consumers still attached';
    end if;
    execute format('drop table %1$s_0, %1$s_1, %1$s_2, %1$s', q.queue_data_pfx);
    execute format('drop sequence %s, %s', q.queue_event_seq, q.queue_tick_seq);
    delete from pgque.retry_queue where ev_queue = q.queue_id;
    delete from pgque.tick where tick_queue = q.queue_id;
    delete from pgque.queue where queue_id = q.queue_id;
    return 1;
end
$$;

create or replace function pgque.drop_queue(x_queue_name text) returns integer
language sql as $$
    select pgque.drop_queue(x_queue_name, false);
$$;

create or replace function pgque.set_queue_config(x_queue_name text, x_param_name text, x_param_value text) returns integer
language plpgsql security definer set search_path = pgque, pg_catalog as $$
declare
    kind text;
begin
    if not exists (select from pgque.queue where queue_name = x_queue_name) then
        raise exception 'No such event queue';
    end if;
    kind := case x_param_name
        when 'rotation_period' then 'interval'
        when 'ticker_max_lag' then 'interval'
        when 'ticker_idle_period' then 'interval'
        when 'ticker_max_count' then 'integer'
        when 'max_retries' then 'integer'
        when 'ticker_paused' then 'boolean'
        when 'external_ticker' then 'boolean'
    end;
    if kind is null then
        raise exception 'cannot change parameter "%"', x_param_name;
    elsif x_param_name = 'max_retries' and x_param_value::integer < 0 then
        raise exception 'set_queue_config: max_retries must be >= 0, got %', x_param_value;
    end if;
    execute format('update pgque.queue set queue_%s = $2::%s where queue_name = $1', x_param_name, kind)
    using x_queue_name, x_param_value;
    return 1;
end
$$;

----------------------------------------------------------------------------
-- Producers.

create or replace function pgque.insert_event_raw(
    queue_name text, ev_id bigint, ev_time timestamptz, ev_owner integer, ev_retry integer,
    ev_type text, ev_data text, ev_extra1 text, ev_extra2 text, ev_extra3 text, ev_extra4 text) returns bigint
language plpgsql as $$
declare
    q  pgque.queue;
    id bigint;
begin
    select * into q from pgque.queue where queue.queue_name = insert_event_raw.queue_name;
    if not found then
        raise exception 'queue not found: %', insert_event_raw.queue_name;
    elsif q.queue_disable_insert then
        raise exception 'Insert into queue disallowed';
    end if;
    id := nextval(q.queue_event_seq::regclass); -- also for a retry, so that it is something new
    id := coalesce(ev_id, id);
    execute format('insert into %s_%s (ev_id, ev_time, ev_owner, ev_retry, ev_type, ev_data,
                                       ev_extra1, ev_extra2, ev_extra3, ev_extra4)
                    values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)', q.queue_data_pfx, q.queue_cur_table)
    using id, coalesce(ev_time, now()), ev_owner, ev_retry, ev_type, ev_data, ev_extra1, ev_extra2, ev_extra3, ev_extra4;
    return id;
end
$$;

create or replace function pgque.insert_event(
    queue_name text, ev_type text, ev_data text, ev_extra1 text, ev_extra2 text, ev_extra3 text, ev_extra4 text) returns bigint
language sql security definer set search_path = pgque, pg_catalog as $$
    select pgque.insert_event_raw(queue_name, null, null, null, null, ev_type, ev_data, ev_extra1, ev_extra2, ev_extra3, ev_extra4);
$$;

create or replace function pgque.insert_event(queue_name text, ev_type text, ev_data text) returns bigint
language sql as $$
    select pgque.insert_event(queue_name, ev_type, ev_data, null, null, null, null);
$$;

----------------------------------------------------------------------------
-- Consumers.

create or replace function pgque.register_consumer_at(x_queue_name text, x_consumer_name text, x_tick_pos bigint) returns integer
language plpgsql security definer set search_path = pgque, pg_catalog as $$
declare
    q  integer;
    co integer;
    at bigint := x_tick_pos;
begin
    select queue_id into q from pgque.queue where queue_name = x_queue_name;
    if not found then
        raise exception 'Event queue not created yet';
    end if;
    select co_id into co from pgque.consumer where co_name = x_consumer_name;
    if not found then
        -- Two at once collide here, on consumer_name_uq. They may try again.
        insert into pgque.consumer (co_name) values (x_consumer_name) returning co_id into co;
    end if;
    if exists (select from pgque.subscription where sub_queue = q and sub_consumer = co) then
        if at is not null then
            update pgque.subscription set sub_last_tick = at, sub_batch = null, sub_next_tick = null, sub_active = now()
            where sub_queue = q and sub_consumer = co;
        end if;
        return 0;
    end if;
    if at is null then
        select max(tick_id) into at from pgque.tick where tick_queue = q;
        if at is null then
            raise exception 'No ticks for this queue';
        end if;
    end if;
    insert into pgque.subscription (sub_queue, sub_consumer, sub_last_tick) values (q, co, at);
    return 1;
end
$$;

create or replace function pgque.register_consumer(x_queue_name text, x_consumer_id text) returns integer
language sql security definer set search_path = pgque, pg_catalog as $$
    select pgque.register_consumer_at(x_queue_name, x_consumer_id, null);
$$;

-- With its last subscription a consumer goes, and with it its dead letters.
create or replace function pgque.unregister_consumer(x_queue_name text, x_consumer_name text) returns integer
language plpgsql security definer set search_path = pgque, pg_catalog as $$
declare
    s pgque.subscription;
begin
    delete from pgque.subscription using pgque.queue, pgque.consumer
    where sub_queue = queue_id and queue_name = x_queue_name and sub_consumer = co_id and co_name = x_consumer_name
    returning subscription.* into s;
    if not found then
        return 0;
    end if;
    delete from pgque.retry_queue where ev_owner = s.sub_id;
    delete from pgque.consumer
    where co_id = s.sub_consumer and not exists (select from pgque.subscription where sub_consumer = co_id);
    return 1;
end
$$;

-- Opens the next batch, or returns the one that is open. There is no owner and
-- no time limit: whoever asks gets it. A tick ends the batch when the batch
-- then has min_count events or spans min_interval (neither given: the first
-- tick does), and is older than min_lag.
create or replace function pgque.next_batch_custom(
    i_queue_name text, i_consumer_name text, i_min_lag interval, i_min_count integer, i_min_interval interval,
    out batch_id bigint, out cur_tick_id bigint, out prev_tick_id bigint,
    out cur_tick_time timestamptz, out prev_tick_time timestamptz,
    out cur_tick_event_seq bigint, out prev_tick_event_seq bigint)
language plpgsql security definer set search_path = pgque, pg_catalog as $$
declare
    r    record;
    s    pgque.subscription;
    prev pgque.tick;
    cur  pgque.tick;
begin
    -- As in PgQue, a call that has to wait here while another session finishes
    -- the batch then looks for the new position's tick with its old eyes, and
    -- finds none. The next call works.
    select sub as sub, t as tick into r
    from pgque.subscription sub
    join pgque.queue on queue_id = sub_queue
    join pgque.consumer on co_id = sub_consumer
    left join pgque.tick t on tick_queue = sub_queue and tick_id = sub_last_tick
    where queue_name = i_queue_name and co_name = i_consumer_name
    for update of sub;
    if not found then
        raise exception 'Not subscriber to queue: %/%', i_queue_name, i_consumer_name;
    end if;
    s := r.sub;
    prev := r.tick;
    if prev.tick_id is null then
        raise exception 'PgQ corruption: Consumer % on queue % does not see tick %',
            i_consumer_name, i_queue_name, prev.tick_id;
    end if;

    if s.sub_batch is not null then
        select * into cur from pgque.tick where tick_queue = s.sub_queue and tick_id = s.sub_next_tick;
    else
        select * into cur from pgque.tick
        where tick_queue = s.sub_queue and tick_id > s.sub_last_tick
            and (i_min_lag is null or tick_time <= now() - i_min_lag)
            and ((i_min_count is null and i_min_interval is null)
                or tick_event_seq - prev.tick_event_seq >= i_min_count
                or tick_time - prev.tick_time >= i_min_interval)
        order by tick_id limit 1;
        if not found then
            return;
        end if;
        update pgque.subscription
        set sub_batch = nextval('pgque.batch_id_seq'), sub_next_tick = cur.tick_id, sub_active = now()
        where sub_id = s.sub_id
        returning sub_batch into s.sub_batch;
    end if;

    batch_id := s.sub_batch;
    cur_tick_id := cur.tick_id;
    prev_tick_id := prev.tick_id;
    cur_tick_time := cur.tick_time;
    prev_tick_time := prev.tick_time;
    cur_tick_event_seq := cur.tick_event_seq;
    prev_tick_event_seq := prev.tick_event_seq;
end
$$;

create or replace function pgque.next_batch_info(
    i_queue_name text, i_consumer_name text,
    out batch_id bigint, out cur_tick_id bigint, out prev_tick_id bigint,
    out cur_tick_time timestamptz, out prev_tick_time timestamptz,
    out cur_tick_event_seq bigint, out prev_tick_event_seq bigint)
language sql as $$
    select * from pgque.next_batch_custom(i_queue_name, i_consumer_name, null, null, null);
$$;

create or replace function pgque.next_batch(i_queue_name text, i_consumer_name text) returns bigint
language sql as $$
    select batch_id from pgque.next_batch_custom(i_queue_name, i_consumer_name, null, null, null);
$$;

create or replace function pgque.finish_batch(x_batch_id bigint) returns integer
language plpgsql security definer set search_path = pgque, pg_catalog as $$
begin
    update pgque.subscription
    set sub_last_tick = sub_next_tick, sub_batch = null, sub_next_tick = null, sub_active = now()
    where sub_batch = x_batch_id;
    if not found then
        raise warning 'finish_batch: batch % not found', x_batch_id;
        return 0;
    end if;
    return 1;
end
$$;

-- The query that reads a batch: the transactions that the batch's tick sees
-- and the tick before it did not. pgque_reader may not call it, nor therefore
-- get_batch_events; PgQue is like that.
create or replace function pgque.batch_event_sql(x_batch_id bigint) returns text
language plpgsql as $$
declare
    b record;
begin
    select queue_data_pfx, sub_id, prev.tick_snapshot as before, cur.tick_snapshot as upto into b
    from pgque.subscription
    join pgque.queue on queue_id = sub_queue
    join pgque.tick prev on prev.tick_queue = sub_queue and prev.tick_id = sub_last_tick
    join pgque.tick cur on cur.tick_queue = sub_queue and cur.tick_id = sub_next_tick
    where sub_batch = x_batch_id;
    if not found then
        raise exception 'batch not found';
    end if;
    -- The first two conditions are for the index; the next two are the rule.
    return format(
        'select ev_id, ev_time, ev_txid::text::bigint as ev_txid, ev_retry, ev_type, ev_data,
                ev_extra1, ev_extra2, ev_extra3, ev_extra4
         from %s
         where ev_txid >= %L::xid8 and ev_txid < %L::xid8
           and pg_visible_in_snapshot(ev_txid, %L) and not pg_visible_in_snapshot(ev_txid, %L)
           and (ev_owner is null or ev_owner = %s)
         order by ev_id',
        b.queue_data_pfx, pg_snapshot_xmin(b.before), pg_snapshot_xmax(b.upto), b.upto, b.before, b.sub_id);
end
$$;

create or replace function pgque.get_batch_events(
    x_batch_id bigint,
    out ev_id bigint, out ev_time timestamptz, out ev_txid bigint, out ev_retry integer, out ev_type text, out ev_data text,
    out ev_extra1 text, out ev_extra2 text, out ev_extra3 text, out ev_extra4 text) returns setof record
language plpgsql as $$
begin
    return query execute pgque.batch_event_sql(x_batch_id);
end
$$;

-- Leaves a cursor over the whole batch open in the caller's transaction, and
-- returns its first rows.
create or replace function pgque.get_batch_cursor(
    i_batch_id bigint, i_cursor_name text, i_quick_limit integer,
    out ev_id bigint, out ev_time timestamptz, out ev_txid bigint, out ev_retry integer, out ev_type text, out ev_data text,
    out ev_extra1 text, out ev_extra2 text, out ev_extra3 text, out ev_extra4 text) returns setof record
language plpgsql as $$
begin
    execute format('declare %I no scroll cursor for %s', i_cursor_name, pgque.batch_event_sql(i_batch_id));
    return query execute format('fetch %s from %I', i_quick_limit, i_cursor_name);
end
$$;

create or replace function pgque.get_batch_info(
    x_batch_id bigint,
    out queue_name text, out consumer_name text, out batch_start timestamptz, out batch_end timestamptz,
    out prev_tick_id bigint, out tick_id bigint, out lag interval, out seq_start bigint, out seq_end bigint)
language sql security definer set search_path = pgque, pg_catalog as $$
    select q.queue_name, c.co_name, prev.tick_time, cur.tick_time, s.sub_last_tick, s.sub_next_tick,
           now() - cur.tick_time, prev.tick_event_seq, cur.tick_event_seq
    from pgque.subscription s
    join pgque.queue q on q.queue_id = s.sub_queue
    join pgque.consumer c on c.co_id = s.sub_consumer
    left join pgque.tick prev on prev.tick_queue = s.sub_queue and prev.tick_id = s.sub_last_tick
    left join pgque.tick cur on cur.tick_queue = s.sub_queue and cur.tick_id = s.sub_next_tick
    where s.sub_batch = x_batch_id;
$$;

----------------------------------------------------------------------------
-- Failures.

create or replace function pgque.event_retry_raw(
    x_queue text, x_consumer text, x_retry_after timestamptz, x_ev_id bigint, x_ev_time timestamptz, x_ev_retry integer,
    x_ev_type text, x_ev_data text, x_ev_extra1 text, x_ev_extra2 text, x_ev_extra3 text, x_ev_extra4 text) returns bigint
language plpgsql security definer set search_path = pgque, pg_catalog as $$
declare
    s   record;
    id bigint;
begin
    select queue_id, queue_event_seq, sub_id into s
    from pgque.subscription
    join pgque.queue on queue_id = sub_queue
    join pgque.consumer on co_id = sub_consumer
    where queue_name = x_queue and co_name = x_consumer;
    if not found then
        raise exception 'consumer not registered';
    end if;
    id := coalesce(x_ev_id, nextval(s.queue_event_seq::regclass));
    insert into pgque.retry_queue (ev_retry_after, ev_queue, ev_id, ev_time, ev_owner, ev_retry, ev_type, ev_data,
                                   ev_extra1, ev_extra2, ev_extra3, ev_extra4)
    values (x_retry_after, s.queue_id, id, x_ev_time, s.sub_id, x_ev_retry, x_ev_type, x_ev_data,
            x_ev_extra1, x_ev_extra2, x_ev_extra3, x_ev_extra4);
    return id;
end
$$;

-- Books events of an open batch for later: one of them, or all. What is booked
-- already stays as it is: the first delay stands.
create or replace function pgque._retry(batch bigint, event bigint, at timestamptz) returns integer
language plpgsql as $$
declare
    s pgque.subscription;
    n integer;
begin
    select * into s from pgque.subscription where sub_batch = batch;
    if not found then
        return null;
    end if;
    insert into pgque.retry_queue (ev_retry_after, ev_queue, ev_id, ev_time, ev_owner, ev_retry, ev_type, ev_data,
                                   ev_extra1, ev_extra2, ev_extra3, ev_extra4)
    select at, s.sub_queue, e.ev_id, e.ev_time, s.sub_id, coalesce(e.ev_retry, 0) + 1, e.ev_type, e.ev_data,
           e.ev_extra1, e.ev_extra2, e.ev_extra3, e.ev_extra4
    from pgque.get_batch_events(batch) e
    where event is null or e.ev_id = event
    on conflict do nothing;
    get diagnostics n = row_count;
    return n;
end
$$;

create or replace function pgque.event_retry(x_batch_id bigint, x_event_id bigint, x_retry_time timestamptz) returns integer
language plpgsql security definer set search_path = pgque, pg_catalog as $$
declare
    n integer := pgque._retry(x_batch_id, coalesce(x_event_id, 0), x_retry_time);
begin
    if n is null or n = 0 and not exists (select from pgque.get_batch_events(x_batch_id) where ev_id = x_event_id) then
        raise exception 'event not found';
    end if;
    return n;
end
$$;

create or replace function pgque.event_retry(x_batch_id bigint, x_event_id bigint, x_retry_seconds integer) returns integer
language sql security definer set search_path = pgque, pg_catalog as $$
    select pgque.event_retry(x_batch_id, x_event_id, now() + make_interval(secs => x_retry_seconds));
$$;

create or replace function pgque.batch_retry(i_batch_id bigint, i_retry_seconds integer) returns integer
language plpgsql security definer set search_path = pgque, pg_catalog as $$
declare
    n integer := pgque._retry(i_batch_id, null, now() + make_interval(secs => i_retry_seconds));
begin
    if n is null then
        raise exception 'batch_retry: batch % not found', i_batch_id;
    end if;
    return n;
end
$$;

create or replace function pgque.event_dead(
    i_batch_id bigint, i_event_id bigint, i_reason text, i_ev_time timestamptz, i_ev_txid xid8, i_ev_retry integer,
    i_ev_type text, i_ev_data text, i_ev_extra1 text default null, i_ev_extra2 text default null,
    i_ev_extra3 text default null, i_ev_extra4 text default null) returns integer
language plpgsql security definer set search_path = pgque, pg_catalog as $$
declare
    s pgque.subscription;
begin
    select * into s from pgque.subscription where sub_batch = i_batch_id;
    if not found then
        raise exception 'batch not found: %', i_batch_id;
    end if;
    -- Where the unique index is (the newer release), the first one stands.
    insert into pgque.dead_letter (dl_queue_id, dl_consumer_id, dl_reason, ev_id, ev_time, ev_txid, ev_retry, ev_type, ev_data,
                                   ev_extra1, ev_extra2, ev_extra3, ev_extra4)
    values (s.sub_queue, s.sub_consumer, i_reason, i_event_id, i_ev_time, i_ev_txid, i_ev_retry, i_ev_type, i_ev_data,
            i_ev_extra1, i_ev_extra2, i_ev_extra3, i_ev_extra4)
    on conflict do nothing;
    return 1;
end
$$;

-- Appends at most ten events whose time has come, for all queues together, the
-- longest due first. Whoever calls it goes on until it returns 0.
create or replace function pgque.maint_retry_events() returns integer
language plpgsql as $$
declare
    r record;
    n integer := 0;
begin
    for r in
        select rq.*, queue_name
        from pgque.retry_queue rq join pgque.queue on queue_id = ev_queue
        where ev_retry_after <= now()
        order by ev_retry_after limit 10
        for update of rq
    loop
        perform pgque.insert_event_raw(r.queue_name, r.ev_id, r.ev_time, r.ev_owner, r.ev_retry, r.ev_type, r.ev_data,
                                       r.ev_extra1, r.ev_extra2, r.ev_extra3, r.ev_extra4);
        delete from pgque.retry_queue where ev_owner = r.ev_owner and ev_id = r.ev_id;
        n := n + 1;
    end loop;
    return n;
end
$$;

----------------------------------------------------------------------------
-- Rotation. Step 1 empties the oldest table and makes it the current one.
-- Transactions that began before may still write to the former one, so the
-- next turn waits until step 2 has noted, in a later transaction, when the
-- switch was there for all to see, and until every consumer is past that.

create or replace function pgque.maint_rotate_tables_step1(i_queue_name text) returns integer
language plpgsql as $$
declare
    q      pgque.queue;
    lowest xid8;
    turn   integer;
begin
    select * into q from pgque.queue where queue_name = i_queue_name for update;
    if not found or q.queue_switch_step2 is null or q.queue_switch_time + q.queue_rotation_period > now() then
        return 0;
    end if;
    select min(pg_snapshot_xmin(tick_snapshot)::text::bigint)::text::xid8 into lowest
    from pgque.subscription join pgque.tick on tick_queue = sub_queue and tick_id = sub_last_tick
    where sub_queue = q.queue_id;
    if lowest <= q.queue_switch_step2::text::xid8 then
        return 0;  -- a consumer still needs what is in the tables
    end if;

    turn := (q.queue_cur_table + 1) % q.queue_ntables;
    begin
        execute format('lock table %s_%s in access exclusive mode nowait', q.queue_data_pfx, turn);
    exception when lock_not_available then
        return 0;  -- somebody reads it; the next call will do
    end;
    execute format('truncate %s_%s', q.queue_data_pfx, turn);
    delete from pgque.tick
    where tick_queue = q.queue_id and pg_snapshot_xmin(tick_snapshot) < q.queue_switch_step2::text::xid8;
    update pgque.queue
    set queue_cur_table = turn, queue_switch_time = now(),
        queue_switch_step1 = pg_current_xact_id()::text::bigint, queue_switch_step2 = null
    where queue_id = q.queue_id;
    return 0;
end
$$;

create or replace function pgque.maint_rotate_tables_step2() returns integer
language plpgsql as $$
begin
    update pgque.queue set queue_switch_step2 = pg_current_xact_id()::text::bigint where queue_switch_step2 is null;
    return 0;
end
$$;

create or replace function pgque.maint_operations(out func_name text, out func_arg text) returns setof record
language sql as $$
    select 'pgque.maint_rotate_tables_step1', queue_name from pgque.queue
    where queue_switch_step2 is not null and queue_switch_time + queue_rotation_period < now()
    union all
    select 'pgque.maint_rotate_tables_step2', null::text where exists (
        select from pgque.queue where queue_switch_step2 is null or queue_switch_time + queue_rotation_period < now());
$$;

-- Step 2 is not in it, nor are the retries: they need transactions of their own.
create or replace function pgque.maint() returns integer
language plpgsql security definer set search_path = pgque, pg_catalog as $$
begin
    perform pgque.maint_rotate_tables_step1(queue_name) from pgque.queue order by queue_id;
    return 0;
end
$$;

----------------------------------------------------------------------------
-- Dead letters.

create or replace function pgque.dlq_inspect(i_queue_name text, i_limit_count integer default 100) returns setof pgque.dead_letter
language sql security definer set search_path = pgque, pg_catalog as $$
    select dl.* from pgque.dead_letter dl join pgque.queue on queue_id = dl_queue_id
    where queue_name = i_queue_name order by dl_time desc, dl_id desc limit i_limit_count;
$$;

-- A new event, for every consumer of the queue.
create or replace function pgque.dlq_replay(i_dead_letter_id bigint) returns bigint
language plpgsql security definer set search_path = pgque, pg_catalog as $$
declare
    d pgque.dead_letter;
begin
    delete from pgque.dead_letter where dl_id = i_dead_letter_id returning * into d;
    if not found then
        raise exception 'dead letter entry not found: %', i_dead_letter_id;
    end if;
    return pgque.insert_event((select queue_name from pgque.queue where queue_id = d.dl_queue_id),
                              d.ev_type, d.ev_data, d.ev_extra1, d.ev_extra2, d.ev_extra3, d.ev_extra4);
end
$$;

-- Its result changed between the releases, which CREATE OR REPLACE refuses.
drop function if exists pgque.dlq_replay_all(text);
-- >>> v0.1.0
create function pgque.dlq_replay_all(i_queue_name text) returns integer
language sql security definer set search_path = pgque, pg_catalog as $$
    select count(pgque.dlq_replay(dl_id))::integer
    from pgque.dead_letter join pgque.queue on queue_id = dl_queue_id where queue_name = i_queue_name;
$$;
-- <<<
-- >>> v0.2.0
create or replace function pgque.dlq_replay_all(i_queue_name text, out replayed bigint, out failed bigint, out first_error text)
language plpgsql security definer set search_path = pgque, pg_catalog as $$
declare
    id bigint;
begin
    replayed := 0;
    failed := 0;
    for id in select dl_id from pgque.dead_letter join pgque.queue on queue_id = dl_queue_id
              where queue_name = i_queue_name order by dl_id loop
        begin
            perform pgque.dlq_replay(id);
            replayed := replayed + 1;
        exception when others then
            failed := failed + 1;
            first_error := coalesce(first_error, sqlerrm);
        end;
    end loop;
end
$$;
-- <<<

create or replace function pgque.dlq_purge(i_queue_name text, i_older_than interval default '30 days') returns integer
language plpgsql security definer set search_path = pgque, pg_catalog as $$
declare
    n integer;
begin
    delete from pgque.dead_letter using pgque.queue
    where queue_id = dl_queue_id and queue_name = i_queue_name and dl_time < now() - i_older_than;
    get diagnostics n = row_count;
    return n;
end
$$;

----------------------------------------------------------------------------
-- Looking at it.

-- Dropped first, as in PgQue: a view on it blocks the next run of this file.
drop function if exists pgque.get_queue_info();
drop function if exists pgque.get_queue_info(text);

create or replace function pgque.get_queue_info(
    i_queue_name text,
    out queue_name text, out queue_ntables integer, out queue_cur_table integer, out queue_rotation_period interval,
    out queue_switch_time timestamptz, out queue_external_ticker boolean, out queue_ticker_paused boolean,
    out queue_ticker_max_count integer, out queue_ticker_max_lag interval, out queue_ticker_idle_period interval,
    out ticker_lag interval, out ev_per_sec double precision, out ev_new bigint, out last_tick_id bigint) returns setof record
language plpgsql as $$
begin
    return query
    select q.queue_name, q.queue_ntables, q.queue_cur_table, q.queue_rotation_period, q.queue_switch_time,
           q.queue_external_ticker, q.queue_ticker_paused, q.queue_ticker_max_count, q.queue_ticker_max_lag,
           q.queue_ticker_idle_period, now() - latest.tick_time,
           (latest.tick_event_seq - oldest.tick_event_seq)
               / nullif(extract(epoch from latest.tick_time - oldest.tick_time), 0)::double precision,
           pgque.seq_getval(q.queue_event_seq) - latest.tick_event_seq, latest.tick_id
    from pgque.queue q
    left join lateral (select * from pgque.tick where tick_queue = queue_id order by tick_id desc limit 1) latest on true
    left join lateral (select * from pgque.tick where tick_queue = queue_id and tick_time > now() - interval '20 minutes'
                       order by tick_id limit 1) oldest on true
    where i_queue_name is null or q.queue_name = i_queue_name
    order by q.queue_name;
end
$$;

create or replace function pgque.get_queue_info(
    out queue_name text, out queue_ntables integer, out queue_cur_table integer, out queue_rotation_period interval,
    out queue_switch_time timestamptz, out queue_external_ticker boolean, out queue_ticker_paused boolean,
    out queue_ticker_max_count integer, out queue_ticker_max_lag interval, out queue_ticker_idle_period interval,
    out ticker_lag interval, out ev_per_sec double precision, out ev_new bigint, out last_tick_id bigint) returns setof record
language sql as $$
    select * from pgque.get_queue_info(null);
$$;

create or replace function pgque.get_consumer_info(
    i_queue_name text, i_consumer_name text,
    out queue_name text, out consumer_name text, out lag interval, out last_seen interval, out last_tick bigint,
    out current_batch bigint, out next_tick bigint, out pending_events bigint) returns setof record
language plpgsql security definer set search_path = pgque, pg_catalog as $$
begin
    return query
    select q.queue_name, c.co_name, now() - t.tick_time, now() - s.sub_active, s.sub_last_tick, s.sub_batch, s.sub_next_tick,
           (select max(top.tick_event_seq) from pgque.tick top where top.tick_queue = s.sub_queue) - t.tick_event_seq
    from pgque.subscription s
    join pgque.queue q on q.queue_id = s.sub_queue
    join pgque.consumer c on c.co_id = s.sub_consumer
    left join pgque.tick t on t.tick_queue = s.sub_queue and t.tick_id = s.sub_last_tick
    where (i_queue_name is null or q.queue_name = i_queue_name) and (i_consumer_name is null or c.co_name = i_consumer_name)
    order by q.queue_name, c.co_name;
end
$$;

create or replace function pgque.get_consumer_info(
    i_queue_name text,
    out queue_name text, out consumer_name text, out lag interval, out last_seen interval, out last_tick bigint,
    out current_batch bigint, out next_tick bigint, out pending_events bigint) returns setof record
language sql security definer set search_path = pgque, pg_catalog as $$
    select * from pgque.get_consumer_info(i_queue_name, null);
$$;

create or replace function pgque.get_consumer_info(
    out queue_name text, out consumer_name text, out lag interval, out last_seen interval, out last_tick bigint,
    out current_batch bigint, out next_tick bigint, out pending_events bigint) returns setof record
language sql security definer set search_path = pgque, pg_catalog as $$
    select * from pgque.get_consumer_info(null, null);
$$;

create or replace function pgque.status() returns table (component text, status text, detail text)
language sql security definer set search_path = pgque, pg_catalog as $$
    select 'postgresql', 'info', pg_catalog.version()
    union all select 'pgque', 'info', pgque.version()
    union all select 'ticker', 'stopped', 'not scheduled'
    union all select 'maintenance', 'stopped', 'not scheduled'
    union all select 'queues', 'info', (select count(*) || ' queues configured' from pgque.queue)
    union all select 'consumers', 'info', (select count(*) || ' active subscriptions' from pgque.subscription);
$$;

create or replace function pgque.uninstall() returns void
language plpgsql security definer set search_path = pgque, pg_catalog as $$
begin
    drop schema pgque cascade;
end
$$;

----------------------------------------------------------------------------
-- The messages interface.

-- Before the functions that follow, as in PgQue: on the first run they reach
-- pgque_admin only through the other two roles, and on the next by name.
grant execute on all routines in schema pgque to pgque_admin;
revoke execute on function pgque.uninstall() from pgque_admin;

create or replace function pgque.send(queue_name text, payload text) returns bigint
language sql security definer set search_path = pgque, pg_catalog as $$
    select pgque.insert_event(queue_name, 'default', payload);
$$;

create or replace function pgque.send(queue_name text, payload jsonb) returns bigint
language sql security definer set search_path = pgque, pg_catalog as $$
    select pgque.insert_event(queue_name, 'default', payload::text);
$$;

create or replace function pgque.send(queue_name text, type_name text, payload text) returns bigint
language sql security definer set search_path = pgque, pg_catalog as $$
    select pgque.insert_event(queue_name, type_name, payload);
$$;

create or replace function pgque.send(queue_name text, type_name text, payload jsonb) returns bigint
language sql security definer set search_path = pgque, pg_catalog as $$
    select pgque.insert_event(queue_name, type_name, payload::text);
$$;

-- Many events of one type; the ids come back in the order of the payloads.
create or replace function pgque.send_batch(queue_name text, type_name text, payloads text[]) returns bigint[]
language plpgsql security definer set search_path = pgque, pg_catalog as $$
declare
    q   pgque.queue;
    ids bigint[];
begin
    if payloads is null then
        raise exception 'payloads must not be null';
    elsif cardinality(payloads) = 0 then
        return '{}';
    end if;
    select * into q from pgque.queue where queue.queue_name = send_batch.queue_name;
    if not found then
        raise exception 'queue not found: %', send_batch.queue_name;
    elsif q.queue_disable_insert then
        raise exception 'Insert into queue disallowed';
    end if;
    execute format('with added as (
                        insert into %s_%s (ev_time, ev_type, ev_data)
                        select now(), $1, p from unnest($2) with ordinality u (p, n) order by n
                        returning ev_id)
                    select array_agg(ev_id order by ev_id) from added', q.queue_data_pfx, q.queue_cur_table)
    into ids using type_name, payloads;
    return ids;
end
$$;

create or replace function pgque.send_batch(queue_name text, type_name text, payloads jsonb[]) returns bigint[]
language sql security definer set search_path = pgque, pg_catalog as $$
    select pgque.send_batch(queue_name, type_name, payloads::text[]);
$$;

-- >>> v0.2.0
create or replace function pgque.send_batch(queue_name text, payloads text[]) returns bigint[]
language sql security definer set search_path = pgque, pg_catalog as $$
    select pgque.send_batch(queue_name, 'default', payloads);
$$;

create or replace function pgque.send_batch(queue_name text, payloads jsonb[]) returns bigint[]
language sql security definer set search_path = pgque, pg_catalog as $$
    select pgque.send_batch(queue_name, 'default', payloads::text[]);
$$;
-- <<<

create or replace function pgque.subscribe(queue text, consumer text) returns integer
language sql security definer set search_path = pgque, pg_catalog as $$
    select pgque.register_consumer_at(queue, consumer, null);
$$;

create or replace function pgque.unsubscribe(queue text, consumer text) returns integer
language sql security definer set search_path = pgque, pg_catalog as $$
    select pgque.unregister_consumer(queue, consumer);
$$;

do $$
begin
    if to_regtype('pgque.message') is null then
        create type pgque.message as (
            msg_id bigint, batch_id bigint, type text, payload text, retry_count integer, created_at timestamptz,
            extra1 text, extra2 text, extra3 text, extra4 text);
    end if;
end
$$;

-- Opens a batch and returns its first events. An empty batch is closed at once
-- and looks like none.
create or replace function pgque.receive(i_queue text, i_consumer text, i_max_return integer default 100) returns setof pgque.message
language plpgsql security definer set search_path = pgque, pg_catalog as $$
declare
    batch bigint;
begin
    if i_max_return < 1 then
        raise exception 'max_return must be >= 1, got %', i_max_return;
    end if;
    batch := pgque.next_batch(i_queue, i_consumer);
    if batch is null then
        return;
    end if;
    return query
        select ev_id, batch, ev_type, ev_data, ev_retry, ev_time, ev_extra1, ev_extra2, ev_extra3, ev_extra4
        from pgque.get_batch_events(batch) order by ev_id limit i_max_return;
    if not found then
        perform pgque.finish_batch(batch);
    end if;
end
$$;

-- Finishes the whole batch, also what receive did not return.
create or replace function pgque.ack(i_batch_id bigint) returns integer
language sql security definer set search_path = pgque, pg_catalog as $$
    select pgque.finish_batch(i_batch_id);
$$;

-- Sends one event back for later, or to the dead letters when it has been
-- there often enough. Of the message only msg_id counts.
create or replace function pgque.nack(
    i_batch_id bigint, i_msg pgque.message, i_retry_after interval default '60 seconds', i_reason text default null) returns integer
language plpgsql security definer set search_path = pgque, pg_catalog as $$
declare
    most integer;
    e    record;
begin
    select coalesce(queue_max_retries, 5) into most
    from pgque.subscription join pgque.queue on queue_id = sub_queue where sub_batch = i_batch_id;
    if not found then
        raise exception 'batch not found: %', i_batch_id;
    end if;
    select * into e from pgque.get_batch_events(i_batch_id) where ev_id = i_msg.msg_id;
    if not found then
        raise exception 'msg_id % not found in batch %', i_msg.msg_id, i_batch_id;
    end if;
    if coalesce(e.ev_retry, 0) >= most then
        perform pgque.event_dead(i_batch_id, e.ev_id, coalesce(i_reason, 'max retries exceeded'), e.ev_time,
                                 e.ev_txid::text::xid8, e.ev_retry, e.ev_type, e.ev_data,
                                 e.ev_extra1, e.ev_extra2, e.ev_extra3, e.ev_extra4);
    else
        perform pgque.event_retry(i_batch_id, e.ev_id, round(extract(epoch from i_retry_after))::integer);
    end if;
    return 1;
end
$$;

----------------------------------------------------------------------------
-- Rights. The lookers' tables are for everybody, since PgQ's consumers are.

grant usage on schema pgque to public, pgque_reader;
grant usage, create on schema pgque to pgque_admin;
grant select on pgque.queue, pgque.consumer, pgque.tick, pgque.subscription, pgque.retry_queue, pgque.event_template to public;
grant select on all tables in schema pgque to pgque_reader;
grant all on all tables in schema pgque to pgque_admin;
grant usage, select, update on all sequences in schema pgque to pgque_admin;

-- >>> v0.2.0
-- Nothing for PUBLIC. PostgreSQL gives it EXECUTE on each new function. The
-- list is a temporary table as in PgQue, whose file needs TEMP on the database.
create temporary table pgque_standin_functions as
    select oid::regprocedure::text as signature from pg_catalog.pg_proc where pronamespace = 'pgque'::regnamespace;
do $$
declare
    f text;
begin
    for f in select signature from pg_temp.pgque_standin_functions loop
        execute format('revoke execute on routine %s from public', f);
    end loop;
end
$$;
drop table pg_temp.pgque_standin_functions;
-- <<<

grant execute on function
    pgque.subscribe(text, text), pgque.unsubscribe(text, text),
    pgque.register_consumer(text, text), pgque.register_consumer_at(text, text, bigint), pgque.unregister_consumer(text, text),
    pgque.next_batch(text, text), pgque.next_batch_info(text, text),
    pgque.next_batch_custom(text, text, interval, integer, interval),
    pgque.get_batch_events(bigint), pgque.get_batch_info(bigint), pgque.finish_batch(bigint),
    pgque.receive(text, text, integer), pgque.ack(bigint), pgque.nack(bigint, pgque.message, interval, text),
    pgque.event_retry(bigint, bigint, timestamptz), pgque.event_retry(bigint, bigint, integer),
    pgque.get_queue_info(), pgque.get_queue_info(text),
    pgque.get_consumer_info(), pgque.get_consumer_info(text), pgque.get_consumer_info(text, text),
    pgque.dlq_inspect(text, integer), pgque.version()
to pgque_reader;

grant execute on function
    pgque.send(text, text), pgque.send(text, jsonb), pgque.send(text, text, text), pgque.send(text, text, jsonb),
    pgque.send_batch(text, text, text[]), pgque.send_batch(text, text, jsonb[]),
    pgque.insert_event(text, text, text), pgque.insert_event(text, text, text, text, text, text, text),
    pgque.dlq_replay(bigint), pgque.dlq_replay_all(text)
to pgque_writer;
-- >>> v0.2.0
grant execute on function pgque.send_batch(text, text[]), pgque.send_batch(text, jsonb[]) to pgque_writer;
-- <<<
