-- What the server has given, and how far the cursors are.
select
    (select coalesce(nullif({outbox_given}(), 0), last_value - (not is_called)::integer)
        from {outbox_seq}) as sequence_given,
    coalesce(c.seq, 0) as cursor_seq,
    pg_snapshot_xmax(pg_current_snapshot())::text::bigint as server_xmax,
    coalesce(c.xmax, 0) as cursor_xmax
from (
    select max(greatest(floor, position, target_floor)) as seq,
        max(greatest(base_xmax, target_xmax)) as xmax
    from {outbox_cursor}
) as c;
