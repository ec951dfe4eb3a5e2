select id, verb, who, why, total, done, skipped, finished_at is not null, relay
from {outbox_request} where id = $1;
