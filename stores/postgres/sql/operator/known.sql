-- Those of some destinations that are there.
select id from {outbox_destination} where id = any ($1::text[]);
