vacuum {outbox_lease};
