-- Fails where a handler has ended the transaction, or a statement in it has failed.
move 0 in postrider_group;
