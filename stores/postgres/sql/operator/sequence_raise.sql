-- Only ever up.
select setval({text:outbox_seq}, greatest($1, (select last_value from {outbox_seq})));
