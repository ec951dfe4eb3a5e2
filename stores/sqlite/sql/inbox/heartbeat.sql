-- expires_at is 0 or less where the claim was let go.
update inbox set expires_at = ?5
where source = ?1 and event_id = ?2 and handler = ?3 and token = ?4
    and status = 'claimed' and expires_at > 0;
