-- Nothing is granted to a program that the tables do not serve any more. The last column says whom they serve.
select a.what, a.place, a.holder, a.number, a.micros, a.at_host, a.at_boot, a.at_path, a.takeover_count, s.oldest
from (select (select m.value::bigint from {outbox_meta} m where m.key = 'serves') as oldest) s,
    {outbox_acquire}($1, $2, case when s.oldest > $12::bigint then 0 else $3 end, $4, $5, $6, $7, $8, $9, $10, $11) a;
