release postrider_enqueue;
