select 1 from outbox_lease where partition = ?1 and owner = ?2 and token = ?3;
