-- A program that the tables do not serve any more keeps nothing.
select r.place, r.number, r.relays, r.current_relays
from (select (select m.value::bigint from {outbox_meta} m where m.key = 'serves') as oldest) s,
    {outbox_renew}($1, $2, $3, case when s.oldest > $6::bigint then '{}'::smallint[] else $4 end, $5) r;
