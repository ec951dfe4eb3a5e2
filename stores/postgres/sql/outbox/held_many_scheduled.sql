, (select {outbox_hold_keys}(array(select coalesce(k.key, k.aggregate_type || '/' || k.aggregate_id)
    from e as k where k.due_at is null))) as held
