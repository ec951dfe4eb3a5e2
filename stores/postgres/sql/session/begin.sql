begin isolation level read committed;
