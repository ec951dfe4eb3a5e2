-- Postrider's tables, version 1. {schema}, the outbox's and the inbox's names are put in place of the
-- placeholders. Reasons for each column stand in docs/reference/postgres.md. Times are of the
-- database's clock.

create schema if not exists {schema};

-- Facts about the store as a whole: schema (the version of these tables), store (a random id), source
-- (the default of outbox.source), partitions (P), hash (of a known string), cluster and database (where
-- this store was adopted), layout (partitioned or plain), table_rows (numbers in one table of a partitioned
-- outbox), definitions_version, history_start (every event from this number on is there).
create table {outbox_meta} (
    key text primary key,
    value text not null
);

-- The unit of ownership between relays. P is written into the function, so that nothing has to be read
-- to insert a row, and never changes.
create function {outbox_partition_of}(key text) returns smallint
language sql immutable strict parallel safe
return ((hashtextextended(key, 0) & 9223372036854775807) % $partitions$)::smallint;

-- A row's partition: no row is where no relay looks. A domain and not a CHECK, which PostgreSQL would read and
-- prepare anew for every statement; a domain's is kept by the session.
create domain {outbox_partition_number} as smallint
    constraint partition_is_one_of_the_outbox check (value between 0 and $partitions$ - 1);

-- Addition that wraps around at 64 bits, which bigint's own refuses.
create function {outbox_wrapping_add}(a bigint, b bigint) returns bigint
language sql immutable strict parallel safe
return (mod(a::numeric + b::numeric + 27670116110564327424, 18446744073709551616)
    - 9223372036854775808)::bigint;

-- Which cluster this is, as its files were made: a copy of the files is the same one, a restored dump and an
-- upgrade to another major version are not. Empty where the user may not ask.
create function {outbox_cluster}() returns text language plpgsql stable as $$
begin
    return (select system_identifier::text from pg_control_system());
exception when insufficient_privilege or undefined_function then
    return '';
end
$$;
