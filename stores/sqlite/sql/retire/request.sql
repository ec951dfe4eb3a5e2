-- The request that was finished longest ago, before a moment.
select id from outbox_request where finished_at < ?1 order by finished_at limit 1;
