-- Makes the login of the application. The PostgreSQL image runs this once, when
-- it makes a new data folder; for an older one, run CREATE ROLE by hand. psql
-- cuts the line end off what the command prints, and gets "" when it fails.
\set password `cat /run/secrets/events_app_password`
SELECT :'password' = '' AS missing \gset
\if :missing
DO $$ BEGIN RAISE EXCEPTION 'the secret events_app_password is empty or cannot be read'; END $$;
\endif
CREATE ROLE app LOGIN PASSWORD :'password';
