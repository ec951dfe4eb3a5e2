-- What the store's promises rest on. $1: P, as outbox_meta has it.
select
    hashtextextended('postrider', 0)::text
        = (select value from {outbox_meta} where key = 'hash') as same_hash,
    (select bool_and({outbox_partition_of}(n::text)
            = (hashtextextended(n::text, 0) & 9223372036854775807) % $1::bigint)
        from generate_series(1, 100) as n) as same_function,
    (select seqcache from pg_sequence where seqrelid = {text:outbox_seq}::regclass)
        as sequence_cache;
