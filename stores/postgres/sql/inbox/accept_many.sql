-- The markers of a group, in the order in which they are given: the same for every group, so that two of them
-- wait for each other in one direction only. It answers those that are here for the first time; of the same id
-- twice the first. Whatever is in the way of the others, accept says.
insert into {inbox} (source, event_id, handler, event_type, status, payload_hash, processed_at)
select e.source, e.event_id::uuid, $5::text, e.event_type, 'processed', decode(e.hash, 'hex'), clock_timestamp()
from unnest($1::text[], $2::text[], $3::text[], $4::text[]) as e (source, event_id, event_type, hash)
on conflict do nothing
returning source, event_id::text as event_id;
