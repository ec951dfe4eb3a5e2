update outbox_lease set paused = ?2 where partition = ?1 and paused <> ?2;
