 from (select {outbox_hold_keys}(array[coalesce($5::text, $3::text || '/' || $4::text)])) as held
