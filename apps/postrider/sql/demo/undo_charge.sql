delete from charges where number = (select min(number) from charges);
