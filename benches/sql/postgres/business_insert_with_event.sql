-- The business write and its event as one statement, by the table's contract for any language.
with placed as (insert into orders (customer, total) values ($1, $2))
insert into {outbox} (aggregate_type, aggregate_id, event_type, payload)
values ('order', $3, 'order.placed', $4);
