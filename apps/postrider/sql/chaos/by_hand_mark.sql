update by_hand_outbox set sent = 1 where number = ?1;
