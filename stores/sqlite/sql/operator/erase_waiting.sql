update outbox_waiting
set payload = null, payload_bytes = null, headers = '{}',
    erased_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
where destination = ?1 and seq = ?2 and erased_at is null;
