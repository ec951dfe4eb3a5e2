-- Whether anything is left of a destination of this name that was removed.
select not exists (select from {outbox_destination} d where d.id = $1)
    and (exists (select from {outbox_waiting} w where w.destination = $1)
        or exists (select from {outbox_settled} s where s.destination = $1));
