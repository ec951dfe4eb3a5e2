//! The evidence: what the shop's own tables, the broker's log, and the handlers' own records say, as
//! a history for the checker. No relay and no consumer is asked.

use std::collections::BTreeSet;

use postrider_core::waiting::WaitingState;
use postrider_core::{EventId, Invariant};
use postrider_e2e::{DESTINATION, PLACED};
use postrider_history::{History, Verdict, check};

use crate::process::Ended;
use crate::stage::{Stage, number, texts};

/// The shop's source, which its store derives from the file's name.
const SOURCE: &str = "/shop";

/// What was seen while it happened; the rest is read at the end.
#[derive(Default)]
pub(crate) struct Witness {
    history: History,
    rolled_back: BTreeSet<EventId>,
}

impl Witness {
    /// Looks at what the store claims to be published now, and at what the broker has. To be called
    /// while no relay is at work, so that it is one moment.
    pub(crate) async fn look(&mut self, stage: &Stage) {
        let log = stage.log().await;
        let published = ids(&texts(
            &stage.shop(),
            "select id from outbox_status where destination = 'queue' and status = 'published'",
        ));
        log.iter().for_each(|message| self.history.ack(DESTINATION, message.event.id));
        published.into_iter().for_each(|id| self.history.published(DESTINATION, id));
    }

    /// Takes a producer's word for what it rolled back.
    pub(crate) fn hear(&mut self, producer: &Ended) {
        self.rolled_back.extend(ids(&producer.all("rolled-back")));
    }

    /// Everything at the end, judged. The shop's own tables must know the same events as the outbox.
    pub(crate) async fn judge(mut self, stage: &Stage) -> (History, Verdict) {
        self.look(stage).await;
        let mut history = self.history;
        self.rolled_back.iter().for_each(|id| history.roll_back(*id));
        for (id, key) in committed(stage) {
            history.commit_as(id, &key, |commit| {
                SOURCE.clone_into(&mut commit.source);
                commit.destinations = Some([DESTINATION.to_owned()].into());
            });
        }
        assert_orders_match(stage);
        let shop = stage.shop();
        let mut waiting = shop
            .prepare("select id, state, holds_key from outbox_waiting where destination = 'queue'")
            .expect("a statement");
        let rows = waiting
            .query_map((), |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
            .expect("what waits");
        for row in rows {
            let (id, state, holds_key): (String, String, bool) = row.expect("a row");
            let state: WaitingState = state.parse().expect("a state");
            history.wait(DESTINATION, id.parse().expect("an id"), state.into(), holds_key);
        }
        for message in stage.log().await {
            history.deliver_as(DESTINATION, message.event.id, message.late);
        }
        for (handler, acted) in effects(stage) {
            acted.into_iter().for_each(|id| history.effect(SOURCE, id, handler));
        }
        let verdict = check(&history);
        (history, verdict)
    }
}

/// Fails unless the shop's own tables know the same events as its outbox.
pub(crate) fn assert_orders_match(stage: &Stage) {
    let unmatched = "select count(*) from
        (select event_id from orders union all select shipped_id from shipments) own
        full join outbox on outbox.id = own.event_id
        where own.event_id is null or outbox.id is null";
    assert_eq!(number(&stage.shop(), unmatched), 0, "an order without its event, or the reverse");
}

/// What was committed, in commit order, by the shop's own tables where it has a row there.
fn committed(stage: &Stage) -> Vec<(EventId, String)> {
    let shop = stage.shop();
    let mut statement = shop
        .prepare(
            "select o.id, coalesce(own.key, o.aggregate_type || '/' || o.aggregate_id)
             from outbox o left join orders own on own.event_id = o.id order by o.seq",
        )
        .expect("a statement");
    let rows = statement.query_map((), |row| Ok((row.get(0)?, row.get(1)?))).expect("rows");
    rows.map(|row| {
        let (id, key): (String, String) = row.expect("a row");
        (id.parse().expect("an id"), key)
    })
    .collect()
}

/// Every handler's effects, by its own records.
pub(crate) fn effects(stage: &Stage) -> [(&'static str, Vec<EventId>); 3] {
    let mails = std::fs::read_to_string(&stage.files.sent).unwrap_or_default();
    let mails: Vec<String> =
        mails.lines().filter_map(|line| line.split('\t').nth(1)).map(str::to_owned).collect();
    [
        ("billing", ids(&texts(&stage.billing(), "select event_id from charges"))),
        ("mail", ids(&mails)),
        ("shipping", ids(&texts(&stage.shop(), "select event_id from shipments"))),
    ]
}

/// The ids of the orders that were committed.
pub(crate) fn placed(stage: &Stage) -> BTreeSet<EventId> {
    ids(&texts(&stage.shop(), "select event_id from orders")).into_iter().collect()
}

/// The ids of the orders whose events the broker has.
pub(crate) async fn received(stage: &Stage) -> BTreeSet<EventId> {
    let log = stage.log().await;
    let orders = log.iter().filter(|message| *message.event.event_type == *PLACED);
    orders.map(|message| message.event.id).collect()
}

pub(crate) fn ids(texts: &[String]) -> Vec<EventId> {
    texts.iter().map(|text| text.parse().expect("an id")).collect()
}

/// Fails unless everything holds, and each of the invariants was judged on something.
pub(crate) fn assert_holds(verdict: &Verdict, judged: &[Invariant]) {
    assert!(verdict.holds(), "{verdict}");
    for invariant in judged {
        assert!(verdict.judged(*invariant) > 0, "{invariant} was judged on nothing");
    }
}

/// What every run of a relay is judged on.
pub(crate) const OF_A_RELAY: [Invariant; 4] =
    [Invariant::NoLoss, Invariant::NoGhost, Invariant::KeyOrder, Invariant::Truth];
