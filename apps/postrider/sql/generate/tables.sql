-- Every table of the store, in the order in which they were made.
select name, sql from sqlite_schema where type = 'table' and name not like 'sqlite_%' order by rowid;
