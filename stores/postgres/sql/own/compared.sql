-- Whether these tables have served a comparison: what it published is noted in them as passed.
select exists (select from {outbox_meta} m where m.key = 'own_compared_since');
