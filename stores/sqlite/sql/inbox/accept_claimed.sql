-- A claim whose lease ended counts as none; its token grows, so that its worker is refused. ?4: the payload's hash, since
-- a claim may be of any.
update inbox
set status = 'processed', token = token + 1, attempts = attempts + 1, expires_at = null,
    payload_hash = ?4, processed_at = cast(round((julianday('now') - 2440587.5) * 86400000) as integer)
where source = ?1 and event_id = ?2 and handler = ?3 and status = 'claimed'
    and expires_at <= cast(round((julianday('now') - 2440587.5) * 86400000) as integer);
