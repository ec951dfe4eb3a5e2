select key, value from {outbox_meta};
