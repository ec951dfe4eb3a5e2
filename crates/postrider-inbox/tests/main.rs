//! What the consumer engine promises, tested against the memory store and broker in virtual time.

mod bench;
mod consumer;
mod leased;
mod machine;
mod world;
