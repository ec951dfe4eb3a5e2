//! The evidence of webhooks: the shop's own tables and the partner's own record, as a history in which
//! every endpoint is a destination. No relay is asked.

use std::collections::{BTreeMap, BTreeSet};

use postrider_core::EventId;
use postrider_core::waiting::WaitingState;
use postrider_e2e::PARTNERS;
use postrider_history::{History, Verdict, check};

use crate::evidence::{assert_orders_match, ids};
use crate::process::Ended;
use crate::stage::texts;
use crate::webhook::town::Town;

/// What was seen while it happened; the rest is read at the end.
#[derive(Default)]
pub(crate) struct Witness {
    history: History,
    rolled_back: BTreeSet<EventId>,
}

/// An order that was committed: its event, its key, and the endpoint that is to be told.
struct Placed {
    id: EventId,
    key: String,
    endpoint: String,
}

impl Witness {
    /// Looks at what the store claims to be published now, and at what the partner has recorded. To be
    /// called while no relay is at work, so that it is one moment.
    pub(crate) fn look(&mut self, town: &Town) {
        let endpoints: BTreeMap<EventId, String> =
            placed(town).into_iter().map(|order| (order.id, order.endpoint)).collect();
        for record in town.records() {
            self.history.ack(&record.endpoint, record.id);
        }
        let published = format!(
            "select id from outbox_status where destination = '{PARTNERS}' and status = 'published'"
        );
        for id in ids(&texts(&town.stage.shop(), &published)) {
            self.history.published(&endpoints[&id], id);
        }
    }

    /// Takes a producer's word for what it rolled back.
    pub(crate) fn hear(&mut self, producer: &Ended) {
        self.rolled_back.extend(ids(&producer.all("rolled-back")));
    }

    /// Everything at the end, judged.
    pub(crate) fn judge(mut self, town: &Town) -> (History, Verdict) {
        self.look(town);
        assert_orders_match(&town.stage);
        let mut history = self.history;
        self.rolled_back.iter().for_each(|id| history.roll_back(*id));
        let orders = placed(town);
        for order in &orders {
            history.commit_for(order.id, &order.key, &[&order.endpoint]);
        }
        for record in town.records() {
            let order = orders.iter().find(|order| order.id == record.id);
            assert!(order.is_none_or(|order| order.key == record.key), "{record:?}");
            history.deliver_as(&record.endpoint, record.id, record.late);
        }
        for order in orders {
            if let Some((state, holds_key)) = waiting(town, order.id) {
                history.wait(&order.endpoint, order.id, state.into(), holds_key);
            }
        }
        let verdict = check(&history);
        (history, verdict)
    }
}

/// What was committed, in commit order.
fn placed(town: &Town) -> Vec<Placed> {
    let shop = town.stage.shop();
    let mut statement = shop
        .prepare(
            "select o.id, coalesce(own.key, o.aggregate_type || '/' || o.aggregate_id), o.tenant
             from outbox o left join orders own on own.event_id = o.id order by o.seq",
        )
        .expect("a statement");
    let rows = statement
        .query_map((), |row| Ok((row.get::<_, String>(0)?, row.get(1)?, row.get(2)?)))
        .expect("rows");
    rows.map(|row| {
        let (id, key, endpoint) = row.expect("a row");
        Placed { id: id.parse().expect("an id"), key, endpoint }
    })
    .collect()
}

/// How an event stands in `waiting`.
fn waiting(town: &Town, id: EventId) -> Option<(WaitingState, bool)> {
    let statement =
        "select state, holds_key from outbox_waiting where destination = ?1 and id = ?2";
    let read = |row: &rusqlite::Row<'_>| Ok((row.get::<_, String>(0)?, row.get(1)?));
    let shop = town.stage.shop();
    match shop.query_row(statement, (PARTNERS, id.to_string()), read) {
        Ok((state, holds_key)) => Some((state.parse().expect("a state"), holds_key)),
        Err(rusqlite::Error::QueryReturnedNoRows) => None,
        Err(error) => panic!("{error}"),
    }
}
