-- Results that say something, of the event and of its steps.
select (select count(*) from inbox where source = ?1 and event_id = ?2 and length(result) > 0)
    + (select count(*) from inbox_step where source = ?1 and event_id = ?2 and length(result) > 0);
