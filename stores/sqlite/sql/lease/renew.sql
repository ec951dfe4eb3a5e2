update outbox_lease set expires_at = ?4
where partition = ?1 and owner = ?2 and token = ?3;
