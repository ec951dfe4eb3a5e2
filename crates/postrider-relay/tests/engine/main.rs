//! The machine in a small world of virtual time: order, isolation, failures, leases, drains.

mod absent;
mod again;
mod attack;
mod bounds;
mod careful;
mod checked;
mod clocks;
mod crowd;
mod delivery;
mod disabled;
mod failure;
mod held;
mod holding;
mod hot;
mod isolation;
mod notices;
mod observed;
mod outdated;
mod ownership;
mod parts;
mod pausing;
#[cfg(postrider_sim)]
mod planted;
mod probing;
mod raced;
mod random;
mod ranges;
mod ranges_read;
mod replay;
mod report;
mod requests;
mod retention;
mod shell;
mod sparing;
mod wild;
mod world;
