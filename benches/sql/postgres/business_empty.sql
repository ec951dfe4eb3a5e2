-- As if nobody had consumed anything yet.
truncate orders, {inbox};
update customers set balance = 0;
