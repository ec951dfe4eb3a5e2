vacuum {outbox_renewal};
