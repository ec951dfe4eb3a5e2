//! Tables of an application's own, in the three layouts that are met most.

mod comparing;
mod contract;
mod lives;
mod mapping;
mod marks;
mod relay;
mod rows;
mod table;
