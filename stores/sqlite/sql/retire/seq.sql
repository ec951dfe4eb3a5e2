select seq from outbox where id = ?1;
