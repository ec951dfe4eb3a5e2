select topic from outbox_endpoint where destination = ?1 order by topic limit ?2;
