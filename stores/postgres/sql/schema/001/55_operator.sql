-- Whether the settled log counts a row: a cursor has passed it, and it is not from before the destination
-- began.
create function {outbox_covers}(c {outbox_cursor}, xid bigint, seq bigint) returns boolean
language sql stable parallel safe
return {outbox_passed}(c, xid, seq) and not {outbox_predates}(c, xid, seq);

-- Gives a destination another id, with everything that is its own. `changed` if the definition is not the one that
-- the caller had read; `left` if a removed destination of the new id has rows, which would become this one's: what
-- was removed would be delivered. Nobody adds to those while the lock of the definitions is held. Every lease is locked, in the order of the partitions: no settlement is under
-- way meanwhile, and none waits for longer than this call.
create function {outbox_rename}(
    old_id text, new_id text, old_definition text, new_definition text, who text, why text) returns text
language plpgsql set lock_timeout = '10s'
as $body$
begin
    perform {outbox_read_committed}();
    perform pg_advisory_xact_lock(
        hashtextextended('postrider definitions ' || {text:outbox_destination}, 0));
    if exists (select from {outbox_waiting} w where w.destination = new_id)
        or exists (select from {outbox_settled} s where s.destination = new_id)
    then
        return 'left';
    end if;
    perform from {outbox_lease} l order by l.partition for update;
    update {outbox_destination} d set id = new_id, definition = new_definition
    where d.id = old_id and d.definition = old_definition;
    if not found then
        return 'changed';
    end if;
    update {outbox_cursor} c set destination = new_id where c.destination = old_id;
    update {outbox_waiting} w set destination = new_id where w.destination = old_id;
    update {outbox_range} r set destination = new_id where r.destination = old_id;
    update {outbox_settled} s set destination = new_id where s.destination = old_id;
    update {outbox_endpoint} e set destination = new_id where e.destination = old_id;
    update {outbox_request} q set destination = new_id where q.destination = old_id;
    update {outbox_request_row} r set destination = new_id where r.destination = old_id;
    update {outbox_meta} m set value = (m.value::bigint + 1)::text where m.key = 'definitions_version';
    insert into {outbox_audit} (who, why, what, subject)
    values (who, why, 'destinations rename', old_id || ' to ' || new_id);
    return 'renamed';
end
$body$;
