update inbox set status = 'processed', expires_at = null, processed_at = ?5, result = ?6
where source = ?1 and event_id = ?2 and handler = ?3 and token = ?4
    and status = 'claimed' and expires_at > 0;
