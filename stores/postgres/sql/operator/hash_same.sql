-- Whether this server sends keys where the one sent them that made the tables.
select hashtextextended('postrider', 0)::text
    is not distinct from (select value from {outbox_meta} where key = 'hash');
