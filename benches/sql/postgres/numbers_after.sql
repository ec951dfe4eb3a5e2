-- The numbers go on after $1.
select setval('{outbox_seq}', $1);
