select seq, id from outbox where seq between ?1 and ?2 order by seq;
