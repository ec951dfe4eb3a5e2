insert into outbox_audit (at, who, why, what, subject) values (?1, ?2, ?3, ?4, ?5);
