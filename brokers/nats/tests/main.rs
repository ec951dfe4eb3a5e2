//! NATS JetStream, against real servers of the tests' own.

mod publishing;
mod server;
mod suite;
mod trouble;
