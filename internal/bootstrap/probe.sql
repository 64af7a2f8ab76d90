-- ASCII only: the database may not be UTF-8, and then the query must still get there.
-- Everything that bootstrap has to know of a database, as one document. It
-- reads catalogs only: no transaction id, no lock beyond AccessShare, and any
-- login that may connect may run it. search_path is '' (the transaction's
-- first statement), which also fixes how types and signatures are spelt.
--
-- $1 the role that is to own a new install
-- $2 the roles to look at
-- $3 the grants wanted: [{"to": role, "role": group, "calls": [signature, ...]}, ...]
with server as (
    select current_setting('server_version_num')::int as num
), schema as (
    select oid, nspname, nspowner, nspacl from pg_namespace where nspname = 'pgque'
), functions as (
    select p.oid, p.proname, p.prokind, p.proowner, p.prosecdef, p.provolatile, p.proconfig, p.proacl, p.prosrc
    from pg_proc as p
    join schema as s on p.pronamespace = s.oid
    where p.prokind in ('f', 'p')
), relations as (
    select c.oid, c.relname as name, c.relkind::text as kind, c.relowner as owner
    from pg_class as c
    join schema as s on c.relnamespace = s.oid
    where c.relkind in ('r', 'p', 'v', 'm', 'f', 'S', 'c')
      -- a sequence of a column follows its table
      and not exists (
          select from pg_depend as d
          where d.classid = 'pg_class'::regclass and d.objid = c.oid and d.objsubid = 0
            and d.refclassid = 'pg_class'::regclass and d.deptype in ('a', 'i') and c.relkind = 'S'
      )
), types as (
    select t.typname as name, 't' || t.typtype::text as kind, t.typowner as owner
    from pg_type as t
    join schema as s on t.typnamespace = s.oid
    where t.typtype in ('d', 'e', 'r')
), members as (
    select g.rolname as role, m.rolname as member, by.rolname as grantor
    from pg_auth_members as a
    join pg_roles as g on g.oid = a.roleid
    join pg_roles as m on m.oid = a.member
    left join pg_roles as by on by.oid = a.grantor
    where g.rolname in ('pgque_reader', 'pgque_writer') and m.rolname in ('pgque_reader', 'pgque_writer', 'pgque_admin')
), wanted as (
    select w.ordinality, w.value ->> 'to' as to_role, w.value ->> 'role' as group_role, r.oid as to_oid, g.oid as group_oid,
           w.value -> 'calls' as calls
    from jsonb_array_elements($3::jsonb) with ordinality as w
    left join pg_roles as r on r.rolname = w.value ->> 'to'
    left join pg_roles as g on g.rolname = w.value ->> 'role'
)
select jsonb_build_object(
    'server_version_num', server.num,
    'server_version', current_setting('server_version'),
    'in_recovery', pg_is_in_recovery(),
    'database', db.datname,
    'database_owner', db_owner.rolname,
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
        select jsonb_build_object(
            'owner', o.rolname,
            'owner_superuser', o.rolsuper,
            'comment', coalesce(obj_description(s.oid, 'pg_namespace'), ''),
            'extension', coalesce((
                select e.extname
                from pg_depend as d
                join pg_extension as e on e.oid = d.refobjid
                where d.refclassid = 'pg_extension'::regclass
                  and (d.classid = 'pg_namespace'::regclass and d.objid = s.oid and d.deptype in ('e', 'n')
                       or d.classid = 'pg_proc'::regclass and d.deptype = 'e' and d.objid in (select oid from functions))
                limit 1), '')
        )
        from schema as s
        join pg_roles as o on o.oid = s.nspowner),
    'functions', coalesce((
        select jsonb_agg(jsonb_build_object(
            'name', f.proname,
            'args', pg_get_function_identity_arguments(f.oid),
            'result', coalesce(pg_get_function_result(f.oid), ''),
            'procedure', f.prokind = 'p',
            'definer', f.prosecdef,
            'volatility', f.provolatile,
            'config', coalesce(array_to_string(f.proconfig, E'\n'), ''),
            'body', encode(sha256(convert_to(f.prosrc, 'UTF8')), 'hex'),
            'owner', o.rolname,
            'shadow', not o.rolsuper and o.oid <> me.oid and exists (
                select from pg_proc as b where b.pronamespace = 'pg_catalog'::regnamespace and b.proname = f.proname),
            'public', exists (
                select from aclexplode(coalesce(f.proacl, acldefault('f', f.proowner))) as a
                where a.grantee = 0 and a.privilege_type = 'EXECUTE')
        ))
        from functions as f
        join pg_roles as o on o.oid = f.proowner), '[]'),
    'relations', (select count(*) from relations),
    'tables', coalesce((select jsonb_agg(name) from relations where name in ('subscription', 'retry_queue', 'config', 'dead_letter')), '[]'),
    'strays', coalesce((
        select jsonb_agg(jsonb_build_object('name', x.name, 'kind', x.kind, 'owner', o.rolname) order by x.name)
        from (select name, kind, owner from relations union all select name, kind, owner from types) as x
        join schema as s on x.owner <> s.nspowner
        join pg_roles as o on o.oid = x.owner), '[]'),
    -- Code that runs when somebody else works with PgQue, all of which a member of
    -- pgque_admin can make or bring about: on its tables, and under the name of
    -- something built in, since its functions look into schema pgque first. PgQue
    -- has none of it but functions, which are sorted out later.
    'hooks', coalesce((
        select jsonb_agg(distinct jsonb_build_object('name', h.type || ' ' || h.identity, 'drop',
            case when h.type in ('trigger', 'rule', 'policy', 'index', 'table', 'view', 'type', 'operator') then 'DROP ' || upper(h.type) || ' ' || h.identity || ';'
                 else '-- remove the ' || h.type || ' ' || h.identity end))
        from (
            select i.type, i.identity, p.proowner as owner
            from pg_proc as p
            join pg_depend as d on d.refclassid = 'pg_proc'::regclass and d.refobjid = p.oid
                and d.classid in ('pg_trigger'::regclass, 'pg_rewrite'::regclass, 'pg_policy'::regclass, 'pg_attrdef'::regclass, 'pg_constraint'::regclass, 'pg_class'::regclass)
            cross join pg_identify_object(d.classid, d.objid, d.objsubid) as i
            where i.identity ~ '(^| )pgque[.]' and i.identity not like '"\_RETURN" on %' -- a view
            union all
            select 'operator', o.oid::regoperator::text, o.oprowner
            from pg_operator as o
            where o.oprnamespace = (select oid from schema)
            union all
            select case when x.kind = 'v' then 'view' when x.kind in ('r', 'p') then 'table' when x.kind in ('c', 'te', 'tr') then 'type' else 'object' end,
                   format('pgque.%I', x.name), x.owner
            from (select name, kind, owner from relations union all select name, kind, owner from types) as x
            where exists (select from pg_class where relnamespace = 'pg_catalog'::regnamespace and relname = x.name)
               or exists (select from pg_type where typnamespace = 'pg_catalog'::regnamespace and typname = x.name)
        ) as h
        join pg_roles as o on o.oid = h.owner
        where not o.rolsuper and o.oid <> me.oid), '[]'),
    'version_body', coalesce((select prosrc from functions where proname = 'version' and prokind = 'f' limit 1), ''),
    'roles', coalesce((
        select jsonb_object_agg(r.rolname, jsonb_build_object(
            'superuser', r.rolsuper,
            'login', r.rolcanlogin,
            'inherit', r.rolinherit,
            'create_role', r.rolcreaterole,
            'create_db', r.rolcreatedb,
            'bypass_rls', r.rolbypassrls,
            'can_set', case when server.num >= 160000 then pg_has_role(me.oid, r.oid, 'SET') else pg_has_role(me.oid, r.oid, 'MEMBER') end,
            'can_grant', me.rolsuper
                or pg_has_role(me.oid, r.oid, 'MEMBER WITH ADMIN OPTION')
                or server.num < 160000 and me.rolcreaterole and not r.rolsuper,
            'database_create', has_database_privilege(r.oid, db.oid, 'CREATE'),
            'database_temp', has_database_privilege(r.oid, db.oid, 'TEMP')
        ))
        from pg_roles as r
        where r.rolname = any ($2 || array[$1, me.rolname, 'pgque_reader', 'pgque_writer', 'pgque_admin'])
           or r.oid = (select nspowner from schema)), '{}'),
    'members', coalesce((select jsonb_agg(jsonb_build_object('role', role, 'member', member, 'grantor', coalesce(grantor, ''))) from members), '[]'),
    'grants', coalesce((
        select jsonb_agg(jsonb_build_object(
            'to', w.to_role,
            'role', w.group_role,
            'member', coalesce(pg_has_role(w.to_oid, w.group_oid, 'MEMBER'), false),
            'usage', coalesce(pg_has_role(w.to_oid, w.group_oid, 'USAGE'), false),
            'cycle', coalesce(pg_has_role(w.group_oid, w.to_oid, 'MEMBER'), false),
            'schema_usage', coalesce(has_schema_privilege(w.to_oid, (select oid from schema), 'USAGE'), false),
            'denied', coalesce((
                select jsonb_agg(c.value)
                from jsonb_array_elements_text(w.calls) as c
                where to_regprocedure(c.value) is not null
                  and not has_function_privilege(w.to_oid, to_regprocedure(c.value), 'EXECUTE')), '[]'),
            'calls', (
                select count(*)
                from jsonb_array_elements_text(w.calls) as c
                where to_regprocedure(c.value) is not null)
        ) order by w.ordinality)
        from wanted as w), '[]')
)::text
from server
join pg_database as db on db.datname = current_database()
join pg_roles as db_owner on db_owner.oid = db.datdba
join pg_roles as me on me.rolname = current_user
