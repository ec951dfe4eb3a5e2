-- When it was let go stands below zero: retention goes by it. To say it again changes nothing. ?5: how many fewer the
-- tries are at most. ?6: it came to an end, so none before it counts as cut off.
update inbox set
    attempts = case when expires_at > 0 then max(0, attempts - ?5) else attempts end,
    failed = case when expires_at > 0 then max(0, min(attempts - ?5, iif(?6, attempts, failed))) else failed end,
    expires_at = case when expires_at > 0
        then -cast(round((julianday('now') - 2440587.5) * 86400000) as integer) else expires_at end
where source = ?1 and event_id = ?2 and handler = ?3 and token = ?4 and status = 'claimed';
