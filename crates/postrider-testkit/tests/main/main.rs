//! The memory store and broker pass every contract suite, and broken ones do not.

mod harness;

use harness::{ManyPartitions, OnePartition};

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
