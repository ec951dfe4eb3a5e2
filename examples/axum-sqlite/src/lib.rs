//! An axum service on SQLite: the order and its event commit together, or neither does.

mod shop;

pub use shop::{Shop, router};
