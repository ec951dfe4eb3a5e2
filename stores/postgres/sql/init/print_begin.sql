-- Postrider's tables in a fresh database, in one transaction: all of it, or nothing.
begin;
