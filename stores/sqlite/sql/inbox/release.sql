update inbox set expires_at = 0
where source = ?1 and event_id = ?2 and handler = ?3 and token = ?4 and status = 'claimed';
