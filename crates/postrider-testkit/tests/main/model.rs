//! The memory store follows the models, in each of its kinds. Stores that break a rule each are
//! caught in `broken_leases` and `broken_rows`.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::{BoxFuture, NewEvent, OutboxSource, Result};
use postrider_testkit::memory::{Kind, MemoryClock, MemoryStore};
use postrider_testkit::suite::StoreHarness;
use postrider_testkit::suite::model::{Effort, Mixed};

use crate::harness::{Inbox, ManyPartitions, OnePartition, Store};

mod one_partition {
    use super::{Effort, OnePartition};
    postrider_testkit::lease_model!(OnePartition, Effort::of(160, 60));
}

mod many_partitions {
    use super::{Effort, ManyPartitions};
    postrider_testkit::lease_model!(ManyPartitions, Effort::of(64, 60));
}

/// A store of one of the kinds besides the change log, which is what the others are.
struct OfKind<const KIND: usize>(Store<3>);

impl<const KIND: usize> StoreHarness for OfKind<KIND> {
    async fn start() -> OfKind<KIND> {
        OfKind(Store(MemoryStore::of(Kind::ALL[KIND], 3, MemoryClock::new())))
    }

    fn source(&self) -> Arc<dyn OutboxSource> {
        self.0.source()
    }

    fn commit(&self, events: Vec<NewEvent>) -> BoxFuture<'_, Result<()>> {
        self.0.commit(events)
    }

    fn roll_back(&self, events: Vec<NewEvent>) -> BoxFuture<'_, Result<()>> {
        self.0.roll_back(events)
    }

    fn pass(&self, span: Duration) -> BoxFuture<'_, ()> {
        self.0.pass(span)
    }

    fn unit(&self) -> Duration {
        self.0.unit()
    }
}

/// One module of a kind.
macro_rules! kinds {
    ($($name:ident = $kind:literal),+ $(,)?) => {
        $(
            mod $name {
                type Harness = super::OfKind<$kind>;
                postrider_testkit::lease_model!(Harness, super::Effort::of(32, 40));
            }
        )+
    };
}

kinds!(snapshot = 1, number = 2, row_state = 3, keyed = 4);

postrider_testkit::inbox_model!(Inbox, Effort::of(160, 80), Mixed::No);
