-- A standby refuses it, and so does a user who lacks the privilege. It also flushes what was committed before.
update {outbox_flush} set count = count + 1;
