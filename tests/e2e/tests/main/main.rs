//! Postrider with real processes, real files, and SIGKILL, judged by the history checker.
//!
//! Every test has a folder and processes of its own. A child is killed by its own id, at a point that
//! it says it has reached, and in any case when the test that started it ends, however that ends.

mod clocks;
mod control;
mod evidence;
mod handlers;
mod ownership;
mod points;
mod process;
mod producers;
mod round_trip;
mod small;
mod stage;
mod store_faults;
mod store_space;
mod webhook;
