select name, type, "notnull", dflt_value, pk, hidden from pragma_table_xinfo(?1) order by cid;
