-- A transaction that has a number, a row of its own, and an event that nobody sees until it commits.
begin;
insert into orders (customer, total) values (1, 1);
insert into {outbox} (aggregate_type, aggregate_id, event_type, payload)
values ('order', 'late', 'order.placed', '{"late":true}');
