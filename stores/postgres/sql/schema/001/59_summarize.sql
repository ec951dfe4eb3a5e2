-- Sums up ranges of the index by transaction that autovacuum has not come to: who looks for rows by their
-- transaction reads those without a sum whole. From the newest full range of the two newest tables with rows
-- downwards, until 64 in a row have their sums, or a second is over; what is left comes next, or by autovacuum.
-- The last range is left out: who writes to one that has a sum keeps it. Autovacuum and this wait for each
-- other, this one no longer than 200 ms. The tables' owner does it, whoever asks. Returns how many.
create function {outbox_summarize}() returns integer
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '200ms' as $$
declare
    v_until timestamptz := clock_timestamp() + interval '1 second';
    v_table oid;
    v_index record;
    v_block bigint;
    v_known integer;
    v_made integer := 0;
begin
    for v_table in
        select x.id from (
            select t.id::oid as id, t.lower from {outbox_tables} t
            union all
            select {text:outbox}::regclass::oid, 0 where not exists (select from {outbox_tables})) x
        where pg_relation_size(x.id) > 0
        order by x.lower desc nulls last limit 2
    loop
        for v_index in
            select i.indexrelid::regclass as name, coalesce((
                select o.option_value::bigint from pg_options_to_table(c.reloptions) o
                where o.option_name = 'pages_per_range'), 128) as pages
            from pg_index i
            join pg_class c on c.oid = i.indexrelid
            join pg_am a on a.oid = c.relam
            where i.indrelid = v_table and a.amname = 'brin' and i.indisvalid
        loop
            v_known := 0;
            v_block := pg_relation_size(v_table) / current_setting('block_size')::bigint
                / v_index.pages * v_index.pages - v_index.pages;
            while v_block >= 0 and v_known < 64 and clock_timestamp() < v_until loop
                if brin_summarize_range(v_index.name, v_block) > 0 then
                    v_made := v_made + 1;
                    v_known := 0;
                else
                    v_known := v_known + 1;
                end if;
                v_block := v_block - v_index.pages;
            end loop;
        end loop;
    end loop;
    return v_made;
end
$$;
