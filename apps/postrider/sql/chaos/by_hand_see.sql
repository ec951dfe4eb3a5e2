insert into by_hand_seen (event_id) values (?1) on conflict do nothing;
