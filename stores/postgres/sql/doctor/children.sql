-- How many numbers there are tables for beyond the present one, how many rows no table was made for, and
-- whether the outbox lies in several tables at all.
select
    exists (select from {outbox_tables}),
    (select max(t.upper) from {outbox_tables} t),
    {outbox_given}(),
    (select t.name from {outbox_tables} t where t.lower is null),
    (select coalesce(sum(pg_relation_size(t.id::oid)), 0)::bigint
        from {outbox_tables} t where t.lower is null);
