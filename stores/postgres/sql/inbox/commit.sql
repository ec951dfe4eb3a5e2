-- The first fails where COMMIT would not do what it says and would say nothing: in a transaction that an error has
-- ended, whose COMMIT is a ROLLBACK, and where a handler has ended it and begun none. Of all that fails there it costs the
-- server least, a third of an empty query. Both are one round trip.
savepoint postrider_stands;
commit;
