//! The inbox behind a pooler that hands each transaction to another session: the same contract.

use std::sync::Arc;

use postrider_core::InboxStore;
use postrider_postgres::Pooler;
use postrider_testkit::services;
use postrider_testkit::suite::{InboxHarness, TransactionalProbe};

use super::{EFFECTS, Probe};
use crate::pool::{self, Kind};
use crate::pooled::direct;
use crate::support::Fresh;

/// Store and handlers go through the pooler; whoever makes and empties the tables goes past it.
struct Behind(Arc<Fresh>);

impl InboxHarness for Behind {
    fn unavailable() -> Option<String> {
        services::url("pgbouncer").err()
    }

    async fn start() -> Behind {
        let pooler = services::url("pgbouncer").expect("a pooler: asked before");
        let url = direct(&pooler).await;
        let mut fresh =
            Fresh::lent(Kind { url, partitions: 1, pooled: true, beside: EFFECTS }).await;
        (fresh.store_url, fresh.pooler) = (pool::named(&pooler, &fresh.names), Pooler::Transaction);
        Behind(Arc::new(fresh))
    }

    fn inbox(&self) -> Arc<dyn InboxStore> {
        Arc::new(self.0.store())
    }

    fn transactional(&self) -> Option<Arc<dyn TransactionalProbe>> {
        Some(Arc::new(Probe(Arc::clone(&self.0))))
    }
}

postrider_testkit::inbox_suite!(Behind);
