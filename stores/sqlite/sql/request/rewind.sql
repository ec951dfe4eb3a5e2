-- The beginning moves with the cursor, so that what is sent again counts as pending.
update outbox_cursor
set position = ?3, origin = min(origin, ?3), replay_through = max(replay_through, position),
    saved_at = ?4
where destination = ?1 and partition = ?2;
