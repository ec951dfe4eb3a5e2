-- The table of Debezium's outbox event router, with its columns by their default names, and what its connector reads it by.
create table outboxevent (
  id uuid primary key,
  aggregatetype text not null,
  aggregateid text not null,
  type text not null,
  payload text not null
);
create publication peer for table outboxevent;
