-- Behind which number the first of a destination's ranges begins; null where it has none.
select min(position) from outbox_range where destination = ?1 and partition = ?2;
