select pg_backend_pid(), current_setting('application_name');
