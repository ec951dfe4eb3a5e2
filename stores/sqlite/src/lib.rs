//! Postrider's SQLite store: outbox, relay source, and inbox in the application's own database file.
