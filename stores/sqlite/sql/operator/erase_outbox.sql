update outbox
set payload = null, payload_bytes = null, headers = '{}',
    erased_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
where seq = ?1 and erased_at is null;
