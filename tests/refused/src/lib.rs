//! Programs that must not compile, and programs that must.
//!
//! A case is a file of a folder. Each is given to the compiler by itself, with the libraries of the test
//! that asks: cargo has built those, so that a case costs a second and not a build of everything below it.
//! What the compiler says of a case that it refuses stands beside it in a file `NAME.txt`, every word of
//! it: another error than the one that is meant is a fault too.

mod compiler;
mod said;

pub use compiler::Compiler;
