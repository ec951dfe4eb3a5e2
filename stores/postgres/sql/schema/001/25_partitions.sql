-- Only where the outbox is partitioned. What no table was made for stands here: rows are never refused.
create table {outbox_default} partition of {outbox} default;
alter table {outbox_default} replica identity full;

select {outbox_ahead}();
