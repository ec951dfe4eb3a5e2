-- Whether some request to send passed events of a partition again is not carried out there yet.
select 1 from outbox_request q
where q.finished_at is null and q.verb in ('requeue', 'rewind')
    and exists (
        select 1 from outbox_request_row r
        where r.partition = ?1 and r.request = q.id and r.outcome is null)
limit 1;
