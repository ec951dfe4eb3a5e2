//! The memory store passes every suite in each of its kinds, through lines, and does what it says of
//! each.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod forgets;
mod formats;
mod harness;
mod keyed_numbers;
mod line;
mod lines;
mod marks;
mod relay;
mod renames;
mod servers;
mod snapshots;
mod writers;

/// The kinds besides the change log, which passes in `tests/main`. Each with several partitions.
macro_rules! kinds {
    ($($name:ident = $kind:literal),+ $(,)?) => {
        $(
            mod $name {
                type Harness = crate::harness::Store<$kind, 4>;
                postrider_testkit::store_suite!(Harness);
                postrider_testkit::source_suite!(Harness);
            }
        )+
    };
}

kinds!(snapshot = 1, number = 2, row_state = 3, keyed = 4);

mod inbox {
    type Inbox = crate::harness::Inbox<1>;
    postrider_testkit::inbox_suite!(Inbox);
}
