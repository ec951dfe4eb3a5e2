-- The first source of inbox rows behind a name.
select min(source) from inbox where source > ?1;
