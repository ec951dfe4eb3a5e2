select nr, what, took, freed, enabled from {outbox_carry_out}($1, $2, $3, $4::text::jsonb, $5);
