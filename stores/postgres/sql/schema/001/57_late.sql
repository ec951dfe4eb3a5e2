-- Rows that are found by the number of their transaction, and not where a cursor reads.

-- What some transactions wrote between two numbers, by partition, in the order of the numbers. If that is more
-- than `most`, one row without a place. Only the index on xid tells quickly, whatever the planner believes of
-- a table that fills: each entry of another index is made dear.
create function {outbox_late}(
    p_partitions smallint[], p_xids bigint[], p_after bigint, p_through bigint, p_most bigint)
returns table (place smallint, xids bigint[], seqs bigint[])
language plpgsql stable strict
set enable_seqscan = off set enable_indexscan = off set enable_indexonlyscan = off
set cpu_index_tuple_cost = 100000 as $$
begin
    return query
    with found as materialized (
        select o.partition, o.xid, o.seq
        from unnest(p_xids) late (xid)
        cross join lateral (
            select o.partition, o.xid, o.seq from {outbox} o
            where o.xid = late.xid and o.seq > p_after and o.seq <= p_through
                and o.partition + 0 = any (p_partitions)
            offset 0) o
        limit p_most + 1
    ), counted as materialized (
        select count(*) <= p_most as is_all from found
    )
    select null::smallint, null::bigint[], null::bigint[] from counted c where not c.is_all
    union all
    select f.partition, array_agg(f.xid order by f.seq), array_agg(f.seq order by f.seq)
    from found f, counted c where c.is_all
    group by f.partition;
end
$$;
