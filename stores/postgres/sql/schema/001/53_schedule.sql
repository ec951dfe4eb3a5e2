-- Moves scheduled events that are due into the outbox, in the order (due_at, seq): each goes and comes in one
-- statement. What somebody is just cancelling is left to him; a key that somebody has changed decides anew.
create function {outbox_admit}(
    p_partition smallint, p_owner text, p_token bigint, p_rows_max integer)
returns table (moved integer, next_micros bigint)
language plpgsql set lock_timeout = '1s' as $$
declare
    v_now timestamptz;
begin
    perform {outbox_fence}(p_partition, p_owner, p_token);
    v_now := clock_timestamp();
    with due as (
        select s.seq from {outbox_scheduled} s
        where s.partition = p_partition and s.due_at <= v_now
        order by s.due_at, s.seq limit p_rows_max
        for update skip locked
    ), gone as (
        delete from {outbox_scheduled} s using due where s.seq = due.seq
        returning s.*
    ), entered as (
        insert into {outbox} (vouched, partition,
            id, source, aggregate_type, aggregate_id, key, event_type, event_version, payload,
            payload_bytes, content_type, encoding, headers, tenant, format, occurred_at,
            created_at, erased_at)
        select g.vouched,
            {outbox_partition_of}(coalesce(g.key, g.aggregate_type || '/' || g.aggregate_id)),
            g.id, g.source, g.aggregate_type, g.aggregate_id, g.key, g.event_type, g.event_version,
            g.payload, g.payload_bytes, g.content_type, g.encoding, g.headers, g.tenant, g.format,
            g.occurred_at, g.created_at, g.erased_at
        from gone g
        order by g.due_at, g.seq
        returning 1
    )
    select count(*) into moved from entered;
    select (extract(epoch from min(s.due_at) - v_now) * 1000000)::bigint into next_micros
    from {outbox_scheduled} s where s.partition = p_partition;
    return next;
end
$$;
