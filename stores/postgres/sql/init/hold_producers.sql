-- Nobody enqueues while it is decided whether somebody has.
lock table {outbox}, {outbox_scheduled} in share mode;
