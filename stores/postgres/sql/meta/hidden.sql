-- The first of Postrider's tables of which policies of row security may hide rows from this user: all but those where one
-- that allows says `true`, and none that restricts says anything else.
select name
from unnest(array[
    {text:outbox_meta}, {text:outbox}, {text:outbox_scheduled}, {text:outbox_destination}, {text:outbox_cursor},
    {text:outbox_lease}, {text:outbox_renewal}, {text:outbox_relay}, {text:outbox_life}, {text:outbox_flush},
    {text:outbox_waiting}, {text:outbox_range}, {text:outbox_endpoint}, {text:outbox_settled},
    {text:outbox_request}, {text:outbox_request_row}, {text:outbox_audit}, {text:outbox_own_passed}, {text:outbox_own_number}, {text:inbox},
    {text:inbox_result}, {text:inbox_step}, {text:inbox_horizon}, {text:inbox_tombstone}]) as name
where case when to_regclass(name) is not null then row_security_active(name) end and not coalesce((
    select bool_or(p.polpermissive) and bool_and(p.polpermissive or p.qual = 'true')
    from (
        select polpermissive, pg_get_expr(polqual, polrelid) as qual from pg_policy
        where polrelid = to_regclass(name) and polcmd in ('*', 'r') and exists (
            select from unnest(polroles) as role where role = 0 or pg_has_role(role, 'usage'))
    ) p
    where not p.polpermissive or p.qual = 'true'), false)
order by name limit 1;
