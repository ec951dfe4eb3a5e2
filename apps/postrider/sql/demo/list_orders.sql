select id, placed, paid, shipped from orders order by id;
