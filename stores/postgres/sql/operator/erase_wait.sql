-- Waits for what is just written under the lease of a key's partition: it may copy an event as it was before
-- the erasure. Whatever is written later copies what is left of it.
select l.partition from {outbox_lease} l
where l.partition = {outbox_partition_of}($1) for no key update;
