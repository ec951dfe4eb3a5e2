-- As many versions of each cursor as the saves of an hour make, found as a save finds its row, and of each lease as its renewals
-- make. Nothing is moved.
do $$
declare
    v_row record;
begin
    -- Of the session: each save is a transaction of its own.
    perform set_config('synchronous_commit', 'off', false);
    for i in 1..$saves loop
        for v_row in select destination, partition from {outbox_cursor} loop
            update {outbox_cursor} c set position = c.position
            where c.destination = v_row.destination and c.partition = v_row.partition;
        end loop;
        commit;
    end loop;
    for i in 1..$renewals loop
        update {outbox_renewal} n set renewed_at = n.renewed_at;
        commit;
    end loop;
end
$$;
