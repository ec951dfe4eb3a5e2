select name from sqlite_schema where type = 'trigger' and tbl_name = ?1 order by rowid;
