//! Postrider's simulator: the real engines on simulated time, stores, brokers, network, scheduler.

pub mod app;
pub mod broker;
pub mod clock;
pub mod dice;
pub mod exec;
pub mod incident;
pub mod judge;
pub mod line;
pub mod mailbox;
pub mod outcome;
pub mod relay;
pub mod scenario;
pub mod shared;
pub mod story;
pub mod weather;
pub mod world;
pub mod attempt;
pub mod coverage;
pub mod fixture;
pub mod many;
pub mod planted;
pub mod shrink;
pub mod table;
pub mod total;
