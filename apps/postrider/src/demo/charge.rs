//! The handler `charge`: its effect is a row in its own database, written with the inbox's marker in
//! one transaction.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use postrider_core::HandlerName;
use postrider_core::inbox::Verdict;
use postrider_inbox::{Consumer, ConsumerHandle, Stats};
use postrider_local::{LocalBroker, SubscribeOptions};
use postrider_sqlite::Transactional;

use crate::demo::plan::Step;
use crate::demo::shop::trouble;
use crate::failure::Failure;

/// The handler's name, also that of its group.
pub(crate) const NAME: &str = "charge";

/// The running handler.
#[derive(Debug)]
pub(crate) struct Charge {
    consumer: ConsumerHandle,
}

impl Charge {
    /// Makes the billing database and begins to receive.
    ///
    /// # Errors
    /// What the database or the broker says.
    pub(crate) async fn start(broker: &LocalBroker, billing: &Path) -> Result<Charge, Failure> {
        postrider_sqlite::init(billing)?;
        let connection = postrider_sqlite::connect(billing)?;
        connection.execute_batch(include_str!("../../sql/demo/charges.sql")).map_err(trouble)?;
        let receiver = Transactional::new(billing, HandlerName::new(NAME)?, |tx, event| {
            tx.prepare_cached(include_str!("../../sql/demo/charge.sql"))?
                .execute((event.id.to_string(), &*event.aggregate_id))?;
            Ok(Verdict::Done)
        })?;
        let topic = Step::Paid.event_type();
        let subscription = broker.subscribe(NAME, topic, SubscribeOptions::default()).await?;
        let consumer =
            Consumer::builder(Arc::new(subscription)).receiver(Arc::new(receiver)).start()?;
        Ok(Charge { consumer })
    }

    /// Stops gracefully, and says what the engine counted.
    pub(crate) async fn finish(self) -> Stats {
        self.consumer.drain(Duration::from_secs(5));
        self.consumer.stopped().await;
        self.consumer.stats()
    }
}
