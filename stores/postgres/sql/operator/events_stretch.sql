-- A stretch of the outbox, newest first. The size of a payload is read without the payload.
select seq, xid, partition, id, event_type, aggregate_type,
    coalesce(key, aggregate_type || '/' || aggregate_id), tenant, created_at,
    coalesce(octet_length(payload), octet_length(payload_bytes), 0)::bigint, erased_at is not null
from {outbox}
where partition = any ($1) and seq between $2 and $3
    and ($4 is null or coalesce(key, aggregate_type || '/' || aggregate_id) = $4)
    and ($5 is null or tenant = $5)
    and ($6 is null or created_at >= $6)
    and ($7 is null or created_at < $7)
order by seq desc;
