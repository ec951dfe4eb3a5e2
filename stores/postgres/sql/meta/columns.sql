-- The first column that a table lost since it was made: somebody dropped or renamed it. A table that this user cannot see is
-- left to whoever reads it.
select e.place, e.name
from (
    select place, unnest(string_to_array(names, ' ')) as name
    from (values
        ({text:outbox_meta}, 'key value'),
        ({text:outbox},
            'xid seq partition id source aggregate_type aggregate_id key event_type event_version payload '
            || 'payload_bytes content_type encoding headers tenant format occurred_at created_at erased_at vouched'),
        ({text:outbox_scheduled},
            'seq partition id source aggregate_type aggregate_id key event_type event_version payload '
            || 'payload_bytes content_type encoding headers tenant format occurred_at created_at erased_at vouched '
            || 'due_at'),
        ({text:outbox_destination}, 'id kind definition version state'),
        ({text:outbox_cursor},
            'destination partition base position base_xmax floor pending_xids pending_floors target_xmin '
            || 'target_xmax target_xip target_floor ground origin origin_through replay_through saved_at'),
        ({text:outbox_lease},
            'partition owner token free_since host boot lock_path takeovers cursors paused'),
        ({text:outbox_renewal}, 'partition expires_at renewed_at life settled aging aging_since aged'),
        ({text:outbox_relay}, 'owner expires_at current hindrances'),
        ({text:outbox_life}, 'only_row token'),
        ({text:outbox_flush}, 'only_row count'),
        ({text:outbox_waiting},
            'destination partition seq key key_hash state holds_key late next_at attempts reason detail endpoint '
            || 'moved_at id source aggregate_type aggregate_id event_key event_type event_version payload '
            || 'payload_bytes content_type encoding headers tenant format occurred_at created_at erased_at'),
        ({text:outbox_range},
            'destination partition key_hash key version base position base_xmax floor pending_xids pending_floors '
            || 'target_xmin target_xmax target_xip target_floor ground opened_at'),
        ({text:outbox_endpoint}, 'destination topic detail disabled_at'),
        ({text:outbox_settled},
            'destination partition bucket count id_sum acked other_route dropped waiting erased floor relay '
            || 'saved_at'),
        ({text:outbox_request},
            'id verb destination topic target who why created_at total done skipped relay finished_at'),
        ({text:outbox_request_row}, 'request partition destination seq outcome'),
        ({text:outbox_audit}, 'number at who why what subject'),
        ({text:outbox_own_passed}, 'destination seq id waits'),
        ({text:outbox_own_number}, 'id seq at'),
        ({text:inbox},
            'source event_id handler event_type status payload_hash token received_at expires_at processed_at '
            || 'attempts failed'),
        ({text:inbox_result}, 'source event_id handler result completed_at'),
        ({text:inbox_step}, 'source event_id handler step result completed_at'),
        ({text:inbox_horizon}, 'handler horizon recorded_at'),
        ({text:inbox_tombstone},
            'number source event_id handler event_type was token attempts received_at processed_at forgotten_at '
            || 'who why')
    ) made (place, names)
) e
where to_regclass(e.place) is not null and not exists (
    select from pg_attribute a
    where a.attrelid = to_regclass(e.place) and a.attname = e.name and not a.attisdropped)
order by e.place, e.name limit 1;
