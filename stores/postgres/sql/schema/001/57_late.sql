-- Rows that are found by the number of their transaction, or by their time, and not where a cursor reads.

-- What some transactions wrote between two numbers, by partition, in the order of the numbers. If that is more
-- than `most`, one row without a place. Only the index on xid tells quickly, whatever the planner believes of
-- a table that fills: each entry of another index is made dear. Transactions of about one moment are looked for
-- together, since ranges that are not summed up yet are read whole each time.
create function {outbox_late}(
    p_partitions smallint[], p_xids bigint[], p_after bigint, p_through bigint, p_most bigint)
returns table (place smallint, xids bigint[], seqs bigint[])
language plpgsql stable strict
set enable_seqscan = off set enable_indexscan = off set enable_indexonlyscan = off
set cpu_index_tuple_cost = 100000 as $$
begin
    return query
    with stepped as (
        select x.xid, x.xid - lag(x.xid) over (order by x.xid) as step from unnest(p_xids) x (xid)
    ), placed as (
        select s.xid, count(*) filter (where s.step > 1000) over (order by s.xid) as run
        from stepped s
    ), runs as (
        select min(p.xid) as least, max(p.xid) as greatest from placed p group by p.run
    ), found as materialized (
        select o.partition, o.xid, o.seq
        from runs
        cross join lateral (
            select o.partition, o.xid, o.seq from {outbox} o
            where o.xid >= runs.least and o.xid <= runs.greatest
                and o.seq > p_after and o.seq <= p_through
                and o.partition + 0 = any (p_partitions) and o.xid + 0 = any (p_xids)
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

-- Whether a row was written by the transaction that it names, or by a subtransaction of it: what was restored,
-- copied, or changed since was not, and its number may be another server's.
create function {outbox_is_own}(p_xmin xid, p_xid bigint) returns boolean
language sql immutable parallel safe
return mod(p_xmin::text::bigint - mod(p_xid, 4294967296) + 4294967296, 4294967296) < 10000;

-- Events at or below the floor of a cursor, by a transaction that was unknown at its base. There are none
-- (see docs/internals/snapshot-cursor.md), unless the sequence was set back and gave numbers that had been
-- passed: then the cursor would never come to them, and nothing else tells once the sequence has been
-- carried past the floor again. By partition: how many, and the first. Cursors that are near each
-- other are looked for together. One whose base sees nothing compares no transactions.
create function {outbox_gone_back}(p_partitions smallint[], p_xmaxs bigint[], p_floors bigint[])
returns table (place smallint, events bigint, first bigint)
language plpgsql stable
set enable_seqscan = off set enable_indexscan = off set enable_indexonlyscan = off
set cpu_index_tuple_cost = 100000 as $$
declare
    v_top bigint := (select max(f) from unnest(p_floors) f);
    v_near record;
begin
    for v_near in
        select min(a.xmax) as xmax, max(a.floor) as floor, array_agg(a.partition) as partitions,
            array_agg(a.xmax) as xmaxs, array_agg(a.floor) as floors
        from unnest(p_partitions, p_xmaxs, p_floors) with ordinality a (partition, xmax, floor, n)
        where a.xmax > 0 and a.floor > 0
        group by case when a.floor < v_top - 1000000 then a.n end
    loop
        return query
        select o.partition::smallint, count(*), min(o.seq)
        from {outbox} o
        where o.xid >= v_near.xmax and o.seq <= v_near.floor
            and {outbox_is_own}(o.xmin, o.xid)
            and exists (
                select from unnest(v_near.partitions, v_near.xmaxs, v_near.floors)
                    a (partition, xmax, floor)
                where a.partition = o.partition and o.xid >= a.xmax and o.seq <= a.floor)
        group by o.partition;
    end loop;
end
$$;

-- Between two numbers, the first event that was created at or after a moment. Numbers do not ascend with these
-- times: an event that was scheduled has an old one. So it is looked for piece by piece; where everything is
-- older, the index says so without a look at any event.
create function {outbox_first_since}(p_from bigint, p_through bigint, p_moment timestamptz)
returns bigint language plpgsql stable
set enable_seqscan = off set enable_indexscan = off set enable_indexonlyscan = off
set cpu_index_tuple_cost = 100000 as $$
declare
    v_piece bigint := 100000;
    v_from bigint := p_from;
    v_found bigint;
begin
    while v_from <= p_through loop
        select min(o.seq) into v_found from {outbox} o
        where o.created_at >= p_moment and o.seq >= v_from
            and o.seq < least(v_from + v_piece, p_through + 1);
        if v_found is not null then
            return v_found;
        end if;
        v_from := v_from + v_piece;
    end loop;
    return null;
end
$$;
