-- As accept, for values that have the types of the function's parameters: a cast is worked out anew each time.
select {inbox_accept}($1, $2, $3, $4, $5) as answer;
