select base, position, replay_through, (select token from {outbox_life}) as token
from {outbox_cursor} where destination = $1 and partition = $2;
