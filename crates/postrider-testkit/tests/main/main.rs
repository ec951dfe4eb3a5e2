//! The memory store and broker pass every contract suite, and broken ones do not.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod broken_relays;
mod harness;
mod world;

use harness::{Inbox, ManyPartitions, OnePartition, PlainBroker, PrefixBroker};

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
