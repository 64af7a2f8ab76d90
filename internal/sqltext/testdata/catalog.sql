-- Definitions in as many forms as PostgreSQL takes. catalog.json is what its
-- version 15 has in the catalog afterwards, by the query at the end of this file.
create schema own; create type own.pair as (a int, b text); create type own."Odd Name" as enum ('x');
create function own.t1(int, int4, int2, int8, bool, float4, float8, float, float(10), real, decimal(10,2), dec, numeric) returns int language sql as 'select 1';
create function own.t2(varchar(10), character varying, char(3), character, bpchar, nchar, national character varying(3), "char", varbit, bit varying(3), bit(4)) returns varchar(5) language sql as 'select ''it''''s''::varchar';
create function own.t3(timestamp, timestamptz, timestamp(3) with time zone, timestamp without time zone, time, timetz, time with time zone, interval, interval day to second(3), date) returns timestamptz language sql as $$ select now() $$;
create function own.t4(a int[], b int[][], c text array, d int array[3], e varchar(10)[], f timestamp with time zone[], g own.pair[], h own."Odd Name") returns int[] language sql as $x$ select array[1] /* $$ */ $x$;
create function own.t5(in a int, out b int, inout c text default 'x,y)', variadic d text[] default '{}') language plpgsql as $$ begin end $$;
create function own.t6(a in int, b out int) as E'begin\n\tb := 1; /* \x41\u00e9\101\q */\r\nend' language plpgsql;
create function own.t8(x int) returns table("A b" int, c text, d timestamptz) language sql stable strict parallel safe cost 10 rows 5 as $$ select 1,'',now() $$;
create function own.t9() returns setof own.pair language sql immutable security definer set search_path = '' set statement_timeout = '5s' set work_mem to 1000 set datestyle to iso, dmy as $$ select 1,'' $$;
create function own.t10() returns setof own."Odd Name" language sql set search_path to pg_catalog, "$user", 'Own', own set enable_seqscan = off set extra_float_digits = -1 as $$ select 'x'::own."Odd Name" $$;
create function own.t11() returns int begin atomic; select 1; select case when true then 2 else 3 end; end;
create function own.t12(a int) returns int return a + 1;
create procedure own.p1(inout a int, b text = 'q;') language plpgsql as $$ begin a := 1; commit; end $$;
create or replace function own."T13"(double precision, double precision) returns double precision language sql called on null input volatile not leakproof as 'select 1.0::float8';
create function own.t14(double double precision, "time" time, "interval" interval, name name, "values" int, type text) returns void language sql as '';
create function own.t15(pg_catalog.int4, pg_catalog.text, pg_catalog.timestamptz, pg_catalog."char", own.pair) returns void language plpgsql as 'begin end';
drop function own.t15(int, text, timestamptz, "char", own.pair);
create function own.t15(refcursor, regclass, oid, jsonb, uuid, xid8, internal) returns internal language internal as 'int4in';
drop function own.t15; drop procedure if exists own.nope(int), own.nope2;
create function own.t16() returns text language 'sql' as $$ select 'ü; → ' $$; create function own.t17() returns text language SQL as U&'select ''\00fc''';
create function own.t18("Q" int, "select" int default 1 + 2, z int default (least(1, 2))) returns table(x numeric(10,2), "limit" int) language sql as '
select 1.0, 2'
' -- continued';
do $do$ begin if true then create function own.t19(a int) returns int language sql as $$ select 1 $$; end if; create procedure own.p2() language sql as ''; end $do$;

-- psql -At with search_path = '':
-- select jsonb_pretty(jsonb_agg(jsonb_build_object(
--     'Kind', case prokind when 'p' then 'procedure' else 'function' end,
--     'Name', quote_ident(nspname) || '.' || quote_ident(proname),
--     'Args', oidvectortypes(proargtypes), 'Result', coalesce(pg_get_function_result(p.oid), ''),
--     'Body', prosrc, 'Language', lanname, 'Definer', prosecdef, 'Settings', proconfig, 'Strict', proisstrict,
--     'Volatility', case provolatile when 'v' then 'volatile' when 's' then 'stable' else 'immutable' end)
--     order by proname, oidvectortypes(proargtypes)))
-- from pg_proc p join pg_namespace n on n.oid = pronamespace join pg_language l on l.oid = prolang
-- where nspname = 'own'
