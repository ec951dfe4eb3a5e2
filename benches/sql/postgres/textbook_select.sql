select seq, id, aggregate_type, aggregate_id, event_type, payload, created_at
from textbook where published_at is null order by seq limit $1 for update skip locked;
