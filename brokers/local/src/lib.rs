//! Postrider's local broker: durable queues in one SQLite file, for demos, tests, and single machines.
