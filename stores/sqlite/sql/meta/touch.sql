-- A write that changes nothing: `begin immediate` alone is taken for a read by a file that is
-- read-only.
update outbox_meta set value = value where key = 'store';
