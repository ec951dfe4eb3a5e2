-- They enter the outbox as they are, and settle as erased.
update {outbox_scheduled}
set payload = null, payload_bytes = null, headers = '{}', erased_at = clock_timestamp()
where seq = any ($1::bigint[]) and erased_at is null;
