 > (select m.value::bigint from {outbox_meta} m where m.key = 'own_compared_since')
