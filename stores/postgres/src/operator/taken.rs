//! Which destinations' routes take an event now.

use postrider_core::{Destination, DestinationId, Event, Result};

use crate::session::Session;
use crate::sql::{Sql, sql};
use crate::typed::params;

const DEFINITIONS: Sql = sql!("operator/definitions");

/// Whether a destination's routes take an event.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Taken {
    Delivered,
    Dropped,
    No,
}

/// The routes of a store.
pub(super) struct Routes(Vec<Destination>);

impl Routes {
    pub(super) async fn read(session: &Session, operation: &'static str) -> Result<Routes> {
        let rows = session.rows(operation, &DEFINITIONS, params![]).await?;
        let definition = |row: &tokio_postgres::Row| {
            Destination::from_definition(row.get(1))
                .map_err(|e| e.context("destination", row.get::<_, String>(0)))
        };
        Ok(Routes(rows.iter().map(definition).collect::<Result<_>>()?))
    }

    /// What a destination does with an event. `unrouted` takes what no other does.
    pub(super) fn at(&self, destination: &DestinationId, event: &Event) -> Taken {
        let by = |definition: &Destination| match definition.route(event) {
            None => Taken::No,
            Some(route) if route.drop => Taken::Dropped,
            Some(_) => Taken::Delivered,
        };
        let Some(definition) = self.0.iter().find(|known| known.id == *destination) else {
            return Taken::No;
        };
        if definition.is_unrouted() && self.0.iter().all(|other| by(other) == Taken::No) {
            return Taken::Delivered;
        }
        by(definition)
    }
}
