package conformance

import (
	"strings"
	"testing"
)

var shapeFacts = []fact{
	// The catalog readers of bootstrap and doctor: version() is only a label,
	// and a login without rights reads it from the catalog.
	{"version", func(t *testing.T, r *release) {
		s := r.open(t)
		s.want(r.Version, `select pgque.version()`)
		body := s.as("").one(`select prosrc from pg_proc where oid = to_regprocedure('pgque.version()')`)
		if !strings.Contains(body, r.Version) {
			t.Errorf("the body of version() is %q, without %q", body, r.Version)
		}
	}},

	// Columns that our Go code reads or joins on, with their types.
	{"columns", func(t *testing.T, r *release) {
		s := r.open(t)
		s.queue("q")
		for table, columns := range map[string]string{
			"queue": "queue_id integer, queue_name text, queue_ntables integer, queue_cur_table integer, queue_rotation_period interval, " +
				"queue_switch_step1 bigint, queue_switch_step2 bigint, queue_switch_time timestamp with time zone, " +
				"queue_external_ticker boolean, queue_ticker_paused boolean, queue_ticker_max_count integer, queue_ticker_max_lag interval, " +
				"queue_ticker_idle_period interval, queue_data_pfx text, queue_event_seq text, queue_tick_seq text, " +
				"queue_max_retries integer, queue_disable_insert boolean",
			"tick":     "tick_queue integer, tick_id bigint, tick_time timestamp with time zone, tick_snapshot pg_snapshot, tick_event_seq bigint",
			"consumer": "co_id integer, co_name text",
			"subscription": "sub_id integer, sub_queue integer, sub_consumer integer, sub_last_tick bigint, " +
				"sub_active timestamp with time zone, sub_batch bigint, sub_next_tick bigint",
			"retry_queue": "ev_retry_after timestamp with time zone, ev_queue integer, ev_id bigint, ev_time timestamp with time zone, " +
				"ev_owner integer, ev_retry integer, ev_type text, ev_data text, ev_extra1 text, ev_extra2 text, ev_extra3 text, ev_extra4 text",
			"dead_letter": "dl_id bigint, dl_queue_id integer, dl_consumer_id integer, dl_time timestamp with time zone, dl_reason text, " +
				"ev_id bigint, ev_time timestamp with time zone, ev_txid xid8, ev_retry integer, ev_type text, ev_data text, " +
				"ev_extra1 text, ev_extra2 text, ev_extra3 text, ev_extra4 text",
			"config": "singleton boolean, ticker_job_id bigint, maint_job_id bigint, installed_at timestamp with time zone",
			"event_1_0": "ev_id bigint, ev_time timestamp with time zone, ev_txid xid8, ev_owner integer, ev_retry integer, " +
				"ev_type text, ev_data text, ev_extra1 text, ev_extra2 text, ev_extra3 text, ev_extra4 text",
		} {
			for column := range strings.SplitSeq(columns, ", ") {
				name, kind, _ := strings.Cut(column, " ")
				got, _ := s.try(`select format_type(atttypid, atttypmod) from pg_attribute
					where attrelid = to_regclass('pgque.' || $1) and attname = $2`, table, name)
				if len(got) != 1 || got[0] != kind {
					t.Errorf("pgque.%s.%s is %q, want %q", table, name, got, kind)
				}
			}
		}
	}},

	// nack takes a composite, receive returns it: the order of its fields is
	// part of the interface.
	{"message", func(t *testing.T, r *release) {
		r.open(t).want("msg_id bigint,batch_id bigint,type text,payload text,retry_count integer,"+
			"created_at timestamp with time zone,extra1 text,extra2 text,extra3 text,extra4 text",
			`select string_agg(attname || ' ' || format_type(atttypid, atttypmod), ',' order by attnum)
			 from pg_attribute where attrelid = 'pgque.message'::regclass and attnum > 0`)
	}},

	// Every function that our code calls, with its result.
	{"functions", func(t *testing.T, r *release) {
		s := r.open(t)
		for signature, result := range map[string]string{
			"create_queue(text)":                                     "integer",
			"drop_queue(text)":                                       "integer",
			"drop_queue(text,boolean)":                               "integer",
			"set_queue_config(text,text,text)":                       "integer",
			"subscribe(text,text)":                                   "integer",
			"unsubscribe(text,text)":                                 "integer",
			"register_consumer(text,text)":                           "integer",
			"register_consumer_at(text,text,bigint)":                 "integer",
			"unregister_consumer(text,text)":                         "integer",
			"send(text,text)":                                        "bigint",
			"send(text,jsonb)":                                       "bigint",
			"send(text,text,text)":                                   "bigint",
			"send(text,text,jsonb)":                                  "bigint",
			"send_batch(text,text,text[])":                           "bigint[]",
			"send_batch(text,text,jsonb[])":                          "bigint[]",
			"insert_event(text,text,text)":                           "bigint",
			"insert_event(text,text,text,text,text,text,text)":       "bigint",
			"receive(text,text,integer)":                             "SETOF pgque.message",
			"ack(bigint)":                                            "integer",
			"nack(bigint,pgque.message,interval,text)":               "integer",
			"next_batch(text,text)":                                  "bigint",
			"next_batch_info(text,text)":                             "record",
			"next_batch_custom(text,text,interval,integer,interval)": "record",
			"get_batch_events(bigint)":                               "SETOF record",
			"get_batch_cursor(bigint,text,integer)":                  "SETOF record",
			"get_batch_info(bigint)":                                 "record",
			"finish_batch(bigint)":                                   "integer",
			"event_retry(bigint,bigint,integer)":                     "integer",
			"event_retry(bigint,bigint,timestamptz)":                 "integer",
			"event_retry_raw(text,text,timestamptz,bigint,timestamptz,integer,text,text,text,text,text,text)": "bigint",
			"event_dead(bigint,bigint,text,timestamptz,xid8,integer,text,text,text,text,text,text)":           "integer",
			"batch_retry(bigint,integer)":            "integer",
			"ticker()":                               "bigint",
			"ticker(text)":                           "bigint",
			"ticker(text,bigint,timestamptz,bigint)": "bigint",
			"force_tick(text)":                       "bigint",
			"maint()":                                "integer",
			"maint_retry_events()":                   "integer",
			"maint_rotate_tables_step1(text)":        "integer",
			"maint_rotate_tables_step2()":            "integer",
			"maint_operations()":                     "SETOF record",
			"current_event_table(text)":              "text",
			"seq_getval(text)":                       "bigint",
			"get_queue_info()":                       "SETOF record",
			"get_queue_info(text)":                   "SETOF record",
			"get_consumer_info()":                    "SETOF record",
			"get_consumer_info(text)":                "SETOF record",
			"get_consumer_info(text,text)":           "SETOF record",
			"dlq_inspect(text,integer)":              "SETOF pgque.dead_letter",
			"dlq_replay(bigint)":                     "bigint",
			"dlq_purge(text,interval)":               "integer",
			"status()":                               "TABLE(component text, status text, detail text)",
			"version()":                              "text",
			"uninstall()":                            "void",
		} {
			got, err := s.try(`select pg_get_function_result(to_regprocedure('pgque.' || $1))`, signature)
			if err != nil || len(got) != 1 || got[0] != result {
				t.Errorf("pgque.%s returns %q, %v, want %q", signature, got, err, result)
			}
		}
		newer := map[bool]string{true: "-", false: "bigint[]"}[r.isOld()]
		s.want(newer, `select pg_get_function_result(to_regprocedure('pgque.send_batch(text,text[])'))`)
		replayed := map[bool]string{true: "integer", false: "record"}[r.isOld()]
		s.want(replayed, `select pg_get_function_result(to_regprocedure('pgque.dlq_replay_all(text)'))`)
	}},

	// Names by which the library tells a race that it may retry from a fault.
	{"constraints", func(t *testing.T, r *release) {
		s := r.open(t)
		for _, name := range []string{"queue_name_uq", "consumer_name_uq", "subscription_pkey", "rq_pkey"} {
			s.want("1", `select count(*) from pg_constraint where conname = $1 and connamespace = 'pgque'::regnamespace`, name)
		}
		want := map[bool]string{true: "0", false: "1"}[r.isOld()]
		s.want(want, `select count(*) from pg_class where relname = 'dl_queue_consumer_ev_idx'`)
	}},

	// Superuser-owned functions put pgque first: bootstrap's reason for an
	// owner of its own.
	{"security definer", func(t *testing.T, r *release) {
		s := r.open(t)
		for _, signature := range []string{"ticker()", "create_queue(text)", "send(text,text,text)", "receive(text,text,integer)",
			"ack(bigint)", "maint()", "event_retry_raw(text,text,timestamptz,bigint,timestamptz,integer,text,text,text,text,text,text)"} {
			s.want("t|{\"search_path=pgque, pg_catalog\"}",
				`select prosecdef, proconfig from pg_proc where oid = to_regprocedure('pgque.' || $1)`, signature)
		}
		s.want("f", `select prosecdef from pg_proc where oid = to_regprocedure('pgque.maint_retry_events()')`)
	}},
}
