insert into {outbox_audit} (who, why, what, subject) values ($1, $2, $3, $4);
