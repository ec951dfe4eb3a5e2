update customers set balance = balance + $2 where id = $1;
