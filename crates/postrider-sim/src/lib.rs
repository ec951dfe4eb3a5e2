//! Postrider's simulator: the real engines on simulated time, stores, brokers, network, scheduler.

pub mod clock;
pub mod dice;
pub mod exec;
pub mod incident;
pub mod outcome;
pub mod scenario;
