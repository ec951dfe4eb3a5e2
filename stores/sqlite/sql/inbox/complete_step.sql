-- The first result stays: the step was done once.
insert into inbox_step (source, event_id, handler, step, result, completed_at)
values (?1, ?2, ?3, ?4, ?5, ?6)
on conflict (source, event_id, handler, step) do nothing;
