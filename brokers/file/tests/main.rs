//! The file broker.
