delete from textbook where seq in (
    select seq from textbook order by seq limit $1 for update skip locked)
returning seq, id, aggregate_type, aggregate_id, event_type, payload, created_at;
