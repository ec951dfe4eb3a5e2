-- Copies of a key's events, in any state.
select distinct seq from outbox_waiting where key = ?1 order by seq;
