-- As many versions of each cursor as an hour of saves makes, one a second, found as a save finds its row. Nothing is
-- moved.
do $$
declare
    v_row record;
begin
    -- Of the session: each second is a transaction of its own.
    perform set_config('synchronous_commit', 'off', false);
    for i in 1..3600 loop
        for v_row in select destination, partition from {outbox_cursor} loop
            update {outbox_cursor} c set position = c.position
            where c.destination = v_row.destination and c.partition = v_row.partition;
        end loop;
        commit;
    end loop;
end
$$;
