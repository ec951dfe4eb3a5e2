update outbox_request
set done = done + ?2, skipped = skipped + ?3, relay = ?4,
    finished_at = case when done + skipped + ?2 + ?3 >= total then ?5 end
where id = ?1;
