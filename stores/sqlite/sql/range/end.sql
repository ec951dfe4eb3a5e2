-- The cursor stands before all that these ranges stood for.
delete from outbox_range where destination = ?1 and partition = ?2;
