select {inbox_complete}($1, $2, $3, $4, $5);
