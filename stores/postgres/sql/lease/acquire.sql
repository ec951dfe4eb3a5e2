select what, place, holder, number, micros, at_host, at_boot, at_path, takeover_count
from {outbox_acquire}($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11);
