, (select {outbox_hold_keys}(array(select coalesce(k.key, k.aggregate_type || '/' || k.aggregate_id)
    from unnest($3::text[], $4::text[], $5::text[]) as k(aggregate_type, aggregate_id, key)))) as held
