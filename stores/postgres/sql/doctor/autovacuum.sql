select current_setting('autovacuum'), current_setting('track_counts');
