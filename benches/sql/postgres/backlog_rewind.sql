-- As if nothing had been delivered.
delete from {outbox_destination};
truncate {outbox_cursor}, {outbox_settled}, {outbox_waiting}, {outbox_range}, {outbox_endpoint},
    {outbox_relay};
update {outbox_lease} set owner = null, free_since = 'epoch', takeovers = 0;
update {outbox_renewal} set expires_at = 'epoch';
update {outbox_meta} set value = '0' where key = 'definitions_version';
