-- A handler may let its own commit not wait for the disk; not its neighbours'.
select set_config('synchronous_commit', reset_val, true) from pg_catalog.pg_settings
where current_setting('synchronous_commit') in ('off', 'local', 'remote_write') and name = 'synchronous_commit';
-- Fails like the look for the seal, where COMMIT would be a silent ROLLBACK or a mere warning.
close postrider_group;
commit;
