select count(*), coalesce(sum(current), 0) from outbox_relay;
