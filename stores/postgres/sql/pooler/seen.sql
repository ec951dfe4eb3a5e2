select coalesce(current_setting('postrider.examined', true), ''), pg_backend_pid();
