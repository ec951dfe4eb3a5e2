-- What the store's promises rest on. $1: P, as outbox_meta has it.
select
    hashtextextended('postrider', 0)::text
        = (select value from {outbox_meta} where key = 'hash') as same_hash,
    (select bool_and({outbox_partition_of}(n::text)
            = (hashtextextended(n::text, 0) & 9223372036854775807) % $1::bigint)
        from generate_series(1, 100) as n) as same_function,
    (select seqcache from pg_sequence where seqrelid = {text:outbox_seq}::regclass) as sequence_cache,
    (select last_value - case when is_called then 0 else 1 end from {outbox_seq}) as sequence_given,
    coalesce(c.seq, 0) as cursor_seq,
    pg_snapshot_xmax(pg_current_snapshot())::text::bigint as server_xmax,
    coalesce(c.xmax, 0) as cursor_xmax
from (
    select max(greatest(floor, position, target_floor)) as seq,
        max(greatest(base_xmax, target_xmax)) as xmax
    from {outbox_cursor}
) as c;
