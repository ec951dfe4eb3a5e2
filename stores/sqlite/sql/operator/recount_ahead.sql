-- How many events there are of a stretch.
select count(*) from outbox where seq between ?1 and ?2;
