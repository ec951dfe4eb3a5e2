-- An own table's identity is unique.
create unique index textbook_identity on textbook (id);
