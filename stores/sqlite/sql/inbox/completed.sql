-- Whether this very claim was completed before: then saying it again changes nothing.
select 1 from inbox
where source = ?1 and event_id = ?2 and handler = ?3 and token = ?4 and status = 'processed';
