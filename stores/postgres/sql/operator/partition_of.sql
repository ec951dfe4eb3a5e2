select {outbox_partition_of}($1);
