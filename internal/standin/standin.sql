-- pgque-vendor stand-in: for tests and demos, not PgQue
create schema if not exists pgque;
create or replace function pgque.version() returns text language sql as $$ select '0.2.0'::text $$;
