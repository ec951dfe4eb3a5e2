//! The negative control: breaks one promise on purpose after the play, so that the ledger can be seen
//! to notice.

use clap::ValueEnum;
use postrider_core::{Broker as _, Event, EventId, Format, Outgoing};
use postrider_local::LocalBroker;

use crate::demo::act::Files;
use crate::demo::plan::Step;
use crate::demo::shop::trouble;
use crate::failure::Failure;

/// Which promise is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sabotage {
    /// One event's messages vanish from the broker.
    Loss,
    /// An event arrives that nobody committed.
    Ghost,
    /// An order's first event arrives after its second.
    Disorder,
    /// A charge is made twice.
    Double,
    /// A charge that was owed is not made.
    Missing,
}

impl Sabotage {
    /// Does it.
    ///
    /// # Errors
    /// What the broker or a database says.
    pub(crate) async fn commit(self, files: &Files, queue: &LocalBroker) -> Result<(), Failure> {
        match self {
            Sabotage::Loss => run(&files.queue, include_str!("../../sql/demo/lose_message.sql")),
            Sabotage::Disorder => {
                run(&files.queue, include_str!("../../sql/demo/move_message.sql"))
            }
            Sabotage::Double => {
                run(&files.billing, include_str!("../../sql/demo/double_charge.sql"))
            }
            Sabotage::Missing => {
                run(&files.billing, include_str!("../../sql/demo/undo_charge.sql"))
            }
            Sabotage::Ghost => {
                let event = Event::new(EventId::mint(), "order", "ghost", "order.placed");
                let ghost = Outgoing {
                    event: event.into(),
                    topic: Step::Placed.event_type().into(),
                    format: Format::default(),
                    layout: None,
                    marks: postrider_core::Marks::default(),
                    attempt: 1,
                };
                queue.publish(&[ghost]).await?;
                Ok(())
            }
        }
    }
}

fn run(path: &std::path::Path, sql: &str) -> Result<(), Failure> {
    let connection = postrider_sqlite::connect(path)?;
    match connection.execute(sql, ()).map_err(trouble)? {
        0 => Err(Failure::plain("the sabotage found nothing to break")),
        _ => Ok(()),
    }
}
