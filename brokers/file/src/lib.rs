//! Postrider's NDJSON destinations: standard output and append-only files.
