//! The memory store follows the models; stores with a flaw each are caught by the rule they break.

use postrider_testkit::suite::model::{Effort, Mixed};

use crate::harness::{Inbox, ManyPartitions, OnePartition};

mod one_partition {
    use super::{Effort, OnePartition};
    postrider_testkit::lease_model!(OnePartition, Effort::of(160, 60));
}

mod many_partitions {
    use super::{Effort, ManyPartitions};
    postrider_testkit::lease_model!(ManyPartitions, Effort::of(64, 60));
}

postrider_testkit::inbox_model!(Inbox, Effort::of(160, 80), Mixed::No);
