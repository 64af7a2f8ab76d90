-- ASCII only: the database may not be UTF-8, and then the query must still get there.
-- Everything that bootstrap has to know of a database, as one document. It
-- reads catalogs only: no transaction id, no lock beyond AccessShare, and any
-- login that may connect may run it. search_path is '' (the transaction's
-- first statement), which also fixes how types and signatures are spelt.
--
-- In a new session most of its time is not the reading but the planning, with
-- no catalog in any cache yet. So each catalog is named as few times as can be,
-- names of roles come from functions instead of joins with pg_roles, and a
-- condition that is a subquery is an IN, which is planned once, not an EXISTS,
-- which is planned in two ways.
--
-- $1 the role that is to own a new install, '' for the login
-- $2 the roles to look at
-- $3 the grants wanted: [{"to": role or "" for the login, "role": group, "calls": [signature, ...]}, ...]
with roles as materialized (
    select oid, rolname, rolsuper, rolcanlogin, rolinherit, rolcreaterole, rolcreatedb, rolbypassrls
    from pg_roles
), me as materialized (
    select oid, rolname, rolsuper, rolcreaterole,
           -- whose code the login may run: its own and superusers'
           array (select oid from roles where rolsuper or rolname = current_user) as trusted
    from roles
    where rolname = current_user
), schema as materialized (
    select oid, nspowner from pg_namespace where nspname = 'pgque'
), functions as materialized (
    select oid, proname, prokind, proowner, prosecdef, provolatile, proconfig, prosrc
    from pg_proc
    where pronamespace = (select oid from schema) and prokind in ('f', 'p')
), objects as materialized (
    select oid, relname as name, relkind::text as kind, relowner as owner
    from pg_class
    where relnamespace = (select oid from schema) and relkind in ('r', 'p', 'v', 'm', 'f', 'S', 'c')
    union all
    select oid, typname, 't' || typtype::text, typowner
    from pg_type
    where typnamespace = (select oid from schema) and typtype in ('d', 'e', 'r')
)
select json_build_object(
    'server_version_num', current_setting('server_version_num')::int,
    'server_version', current_setting('server_version'),
    'in_recovery', pg_is_in_recovery(),
    'database', db.datname,
    'database_owner', pg_get_userbyid(db.datdba),
    'encoding', pg_encoding_to_char(db.encoding),
    'template', db.datistemplate,
    'user', me.rolname,
    'superuser', me.rolsuper,
    'create_role', me.rolcreaterole,
    'session_user', session_user,
    'grant_create', has_database_privilege(me.oid, db.oid, 'CREATE WITH GRANT OPTION'),
    'grant_temp', has_database_privilege(me.oid, db.oid, 'TEMP WITH GRANT OPTION'),
    'public_temp', has_database_privilege('public', db.oid, 'TEMP'),
    'schema', (
        select json_build_object(
            'owner', pg_get_userbyid(s.nspowner),
            'comment', (select description from pg_description where objoid = s.oid and classoid = 'pg_namespace'::regclass),
            'extension', (
                select (select extname from pg_extension where oid = d.refobjid)
                from pg_depend as d
                where d.refclassid = 'pg_extension'::regclass
                  and (d.classid = 'pg_namespace'::regclass and d.objid = s.oid and d.deptype in ('e', 'n')
                       or d.classid = 'pg_proc'::regclass and d.deptype = 'e' and d.objid in (select oid from functions))
                limit 1)
        )
        from schema as s),
    'functions', array (
        select json_build_object(
            'name', f.proname,
            'args', pg_get_function_identity_arguments(f.oid),
            'result', pg_get_function_result(f.oid),
            'procedure', f.prokind = 'p',
            'definer', f.prosecdef,
            'volatility', f.provolatile,
            'config', array_to_string(f.proconfig, E'\n'),
            'body', encode(sha256(convert_to(f.prosrc, 'UTF8')), 'hex'),
            'owner', pg_get_userbyid(f.proowner),
            'trusted', f.proowner = any (me.trusted),
            'public', has_function_privilege('public', f.oid, 'EXECUTE'),
            'version', case when f.proname = 'version' and f.prokind = 'f' then f.prosrc end
        )
        from functions as f),
    'relations', (select count(*) from objects where kind not like 't%'),
    'tables', array (select name from objects where name in ('subscription', 'retry_queue', 'config', 'dead_letter')),
    'strays', array (
        select json_build_object('name', x.name, 'kind', x.kind, 'owner', pg_get_userbyid(x.owner))
        from objects as x
        where x.owner <> (select nspowner from schema)
          -- a sequence of a column follows its table
          and (x.kind <> 'S' or x.oid not in (
              select objid
              from pg_depend
              where classid = 'pg_class'::regclass and objsubid = 0 and refclassid = 'pg_class'::regclass and deptype in ('a', 'i')))
        order by x.name),
    -- Code that runs when somebody else works with PgQue, all of which a member of
    -- pgque_admin can make or bring about: on its tables, and under the name of
    -- something built in, since its functions look into schema pgque first. PgQue
    -- has none of it but functions, which are found by findBuiltin.
    'dependents', array (
        select json_build_object('type', h.type, 'identity', h.identity)
        from (
            select i.type, i.identity
            from pg_depend as d
            join pg_proc as p on p.oid = d.refobjid
            cross join pg_identify_object(d.classid, d.objid, d.objsubid) as i
            where d.refclassid = 'pg_proc'::regclass
              and d.objid >= 16384 -- below are the server's own views
              and d.classid in ('pg_trigger'::regclass, 'pg_rewrite'::regclass, 'pg_policy'::regclass, 'pg_attrdef'::regclass, 'pg_constraint'::regclass, 'pg_class'::regclass)
              and p.proowner <> all (me.trusted)
              and i.identity ~ '(^| )pgque[.]' and i.identity not like '"\_RETURN" on %' -- a view
            union all
            select 'operator', oid::regoperator::text
            from pg_operator
            where oprnamespace = (select oid from schema) and oprowner <> all (me.trusted)
            union all
            select case when kind = 'v' then 'view' when kind in ('r', 'p') then 'table' when kind in ('c', 'te', 'tr') then 'type' else 'object' end,
                   format('pgque.%I', name)
            from objects
            where owner <> all (me.trusted)
              -- every relation with rows is a type too
              and name in (select typname from pg_type where typnamespace = 'pg_catalog'::regnamespace)
        ) as h),
    'roles', (
        select json_object_agg(r.rolname, json_build_object(
            'superuser', r.rolsuper,
            'login', r.rolcanlogin,
            'inherit', r.rolinherit,
            'create_role', r.rolcreaterole,
            'create_db', r.rolcreatedb,
            'bypass_rls', r.rolbypassrls,
            'can_set', pg_has_role(me.oid, r.oid, case when current_setting('server_version_num')::int >= 160000 then 'SET' else 'MEMBER' end),
            'can_grant', me.rolsuper
                or pg_has_role(me.oid, r.oid, 'MEMBER WITH ADMIN OPTION')
                or current_setting('server_version_num')::int < 160000 and me.rolcreaterole and not r.rolsuper,
            'database_create', has_database_privilege(r.oid, db.oid, 'CREATE'),
            'database_temp', has_database_privilege(r.oid, db.oid, 'TEMP')
        ))
        from roles as r
        where r.rolname = any ($2 || array[$1, me.rolname, 'pgque_reader', 'pgque_writer', 'pgque_admin'])
           or r.oid = (select nspowner from schema)),
    'members', array (
        select json_build_object('role', pg_get_userbyid(roleid), 'member', pg_get_userbyid(member), 'grantor', pg_get_userbyid(grantor))
        from pg_auth_members
        where roleid in (to_regrole('pgque_reader'), to_regrole('pgque_writer'))
          and member in (to_regrole('pgque_reader'), to_regrole('pgque_writer'), to_regrole('pgque_admin'))),
    'grants', array (
        select json_build_object(
            'to', w.to_role,
            'role', w.role,
            'member', coalesce(pg_has_role(w.to_oid, w.role_oid, 'MEMBER'), false),
            'usage', coalesce(pg_has_role(w.to_oid, w.role_oid, 'USAGE'), false),
            'cycle', coalesce(pg_has_role(w.role_oid, w.to_oid, 'MEMBER'), false),
            'schema_usage', coalesce(has_schema_privilege(w.to_oid, (select oid from schema), 'USAGE'), false),
            'denied', c.denied,
            'calls', c.calls
        )
        from json_array_elements($3::json) with ordinality as g
        cross join lateral (
            select coalesce(nullif(g.value ->> 'to', ''), me.rolname) as to_role, g.value ->> 'role' as role
        ) as n
        cross join lateral (
            select n.*, to_regrole(quote_ident(n.to_role))::oid as to_oid, to_regrole(quote_ident(n.role))::oid as role_oid
        ) as w
        cross join lateral (
            select count(*) as calls, json_agg(f.value) filter (where not has_function_privilege(w.to_oid, to_regprocedure(f.value), 'EXECUTE')) as denied
            from json_array_elements_text(g.value -> 'calls') as f
            where to_regprocedure(f.value) is not null
        ) as c
        order by g.ordinality)
)::text
from me
join pg_database as db on db.datname = current_database()
