//! The memory store passes every suite in each of its kinds, through lines, and does what it says of
//! each.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod harness;
mod line;

macro_rules! kinds {
    ($($name:ident = $kind:literal),+ $(,)?) => {
        $(
            mod $name {
                mod one {
                    type Harness = crate::harness::Store<$kind, 1>;
                    postrider_testkit::store_suite!(Harness);
                    postrider_testkit::source_suite!(Harness);
                }
                mod many {
                    type Harness = crate::harness::Store<$kind, 8>;
                    postrider_testkit::store_suite!(Harness);
                    postrider_testkit::source_suite!(Harness);
                }
                type Inbox = crate::harness::Inbox<$kind>;
                postrider_testkit::inbox_suite!(Inbox);
            }
        )+
    };
}

kinds!(change_log = 0, snapshot = 1, number = 2, row_state = 3, keyed = 4);
