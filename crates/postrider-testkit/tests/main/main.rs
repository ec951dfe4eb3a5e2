//! The memory store and broker pass every contract suite, and broken ones do not.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod broken_broker;
mod broken_inbox;
mod broken_leases;
mod broken_ranges;
mod broken_relays;
mod broken_requests;
mod broken_rows;
mod broken_store;
mod faults;
mod harness;
mod model;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

use harness::{Inbox, ManyPartitions, OnePartition, PlainBroker, PrefixBroker};

/// Insists that a case of a suite fails: a suite that cannot fail proves nothing.
fn fails(case: impl Future<Output = ()>) {
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        postrider_testkit::suite::run("negative control", case);
    }));
    assert!(outcome.is_err(), "the case passed on a broken backend");
}

/// Insists that a case of a suite passes where nothing is wrong for it.
fn passes(case: impl Future<Output = ()>) {
    postrider_testkit::suite::run("positive control", case);
}

mod one_partition {
    use super::OnePartition;
    postrider_testkit::store_suite!(OnePartition);
    postrider_testkit::source_suite!(OnePartition);
}

mod many_partitions {
    use super::ManyPartitions;
    postrider_testkit::store_suite!(ManyPartitions);
    postrider_testkit::source_suite!(ManyPartitions);
}

mod inbox {
    use super::Inbox;
    postrider_testkit::inbox_suite!(Inbox);
}

mod plain_broker {
    use super::PlainBroker;
    postrider_testkit::broker_suite!(PlainBroker);
}

mod prefix_broker {
    use super::PrefixBroker;
    postrider_testkit::broker_suite!(PrefixBroker);
}
