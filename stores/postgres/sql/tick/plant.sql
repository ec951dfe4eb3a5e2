-- A token of this life of the server, where there is none. One that stands is never overwritten.
insert into {outbox_life} (token) values (gen_random_uuid()) on conflict do nothing;
