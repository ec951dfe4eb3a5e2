-- Each state by its own reading of the index outbox_waiting_state.
select s.state, c.count
from unnest('{retrying,parked,held,disabled,dead,discarded}'::text[]) as s (state)
cross join lateral (
    select count(*) from {outbox_waiting} w where w.destination = $1 and w.state = s.state) c
where c.count > 0;
