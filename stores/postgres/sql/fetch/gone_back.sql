-- Events that the cursors would pass unread: see outbox_gone_back.
select place, events, first from {outbox_gone_back}($1, $2, $3);
