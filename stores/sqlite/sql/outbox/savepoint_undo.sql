rollback to postrider_enqueue;
release postrider_enqueue;
