//! The machine in a small world of virtual time: order, isolation, failures, leases, drains.

mod attack;
mod bounds;
mod careful;
mod delivery;
mod failure;
mod isolation;
mod ownership;
mod raced;
mod random;
mod shell;
mod wild;
mod world;
