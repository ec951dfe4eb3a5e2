//! A relay whose events have left the order, for what operators ask of it.

use postrider_core::source::{CarriedOut, CarryOutRequest, DueRequest, FetchedRow, OutboxSource};
use postrider_core::waiting::{
    Attempted, DisabledEndpoint, NewWaiting, Passed, Placement, Reason, Settlement, SettlementPart,
    WaitingChange,
};
use postrider_core::{DestinationId, Lease, NewEvent, PartitionId};
use postrider_sqlite::SqliteStore;

use crate::support::{Fresh, fetch, id, number, pass};

/// A relay whose destination `a` has passed some events of the keys `order/1`, `order/2`, ….
pub(crate) struct Play {
    pub(crate) fresh: Fresh,
    pub(crate) store: SqliteStore,
    pub(crate) lease: Lease,
    pub(crate) rows: Vec<FetchedRow>,
}

impl Play {
    /// Events of these keys, numbered from 1, all passed as waiting with these placements, or as
    /// acknowledged.
    pub(crate) async fn of(events: &[(&str, Option<Placement>)]) -> Play {
        let fresh = Fresh::new();
        let (store, lease) = fresh.relay().await;
        let of = |(key, _): &(&str, _)| NewEvent::new("order", *key, "t").json(&1).expect("JSON");
        fresh.commit(&events.iter().map(of).collect::<Vec<_>>());
        let rows = fetch(&store, &lease, 0).await.rows;
        let mut settlement = pass(&lease, 0, &rows, Passed::Acked);
        for (index, (row, (_, placement))) in rows.iter().zip(events).enumerate() {
            if let Some(placement) = placement {
                settlement.parts[0].passed[index].1 = Passed::Waiting;
                settlement.parts[0].waiting.push(enter(row, placement.clone()));
            }
            if let Some(Placement::Disabled { endpoint, .. }) = placement {
                let (topic, detail) = (endpoint.clone(), "410 Gone".to_owned());
                settlement.parts[0].disabled.push(DisabledEndpoint { topic, detail });
            }
        }
        store.settle(&settlement).await.expect("settle");
        Play { fresh, store, lease, rows }
    }

    /// Writes a request down as an operator's program does, and returns its number.
    pub(crate) fn ask(&self, verb: &str, seqs: &[i64]) -> i64 {
        self.ask_of(verb, seqs, None, None)
    }

    pub(crate) fn ask_of(
        &self,
        verb: &str,
        seqs: &[i64],
        topic: Option<&str>,
        target: Option<i64>,
    ) -> i64 {
        let connection = self.fresh.connect();
        connection
            .execute(
                "insert into outbox_request (verb, destination, topic, target, who, created_at, total)
                values (?1, 'a', ?2, ?3, 'anna', 0, ?4)",
                (verb, topic, target, i64::try_from(seqs.len()).expect("few")),
            )
            .expect("a request");
        let request = connection.last_insert_rowid();
        for seq in seqs {
            connection
                .execute(
                    "insert into outbox_request_row values (?1, 0, 'a', ?2, null)",
                    [request, *seq],
                )
                .expect("a row");
        }
        request
    }

    pub(crate) async fn carry_out(&self, rows_max: u32) -> CarriedOut {
        let request = CarryOutRequest { leases: vec![self.lease.clone()], rows_max };
        self.store.carry_out(&request).await.expect("carry out")
    }

    pub(crate) async fn due(&self) -> Vec<u64> {
        let request = DueRequest {
            lease: self.lease.clone(),
            destination: id("a"),
            except: Vec::new(),
            rows_max: 100,
            bytes_max: u64::MAX,
        };
        let due = self.store.due(&request).await.expect("due");
        due.rows.iter().map(|row| row.row.seq).collect()
    }

    pub(crate) async fn change(&self, changes: Vec<WaitingChange>) {
        let mut part = SettlementPart::new(id("a"));
        part.changes = changes;
        let settlement = Settlement { lease: self.lease.clone(), parts: vec![part] };
        self.store.settle(&settlement).await.expect("settle");
    }

    /// The numbers and states of what waits.
    pub(crate) fn states(&self) -> String {
        let statement = "select coalesce(group_concat(seq || ' ' || state, ', '), '') from
            (select seq, state from outbox_waiting where destination = 'a' order by seq)";
        self.text(statement)
    }

    /// (done, skipped, finished, relay) of a request.
    pub(crate) fn request(&self, request: i64) -> (u32, u32, bool) {
        let statement = "select done, skipped, finished_at is not null and relay is not null
            from outbox_request where id = ?1";
        let row = self.fresh.connect().query_row(statement, [request], |row| row.try_into());
        row.expect("the request")
    }

    pub(crate) fn text(&self, statement: &str) -> String {
        self.fresh.connect().query_row(statement, (), |row| row.get(0)).expect("a text")
    }

    pub(crate) fn number(&self, statement: &str) -> i64 {
        number(&self.fresh.connect(), statement)
    }
}

pub(crate) fn enter(row: &FetchedRow, placement: Placement) -> NewWaiting {
    NewWaiting { row: row.row, key_hash: row.key_hash, event: None, placement }
}

pub(crate) fn attempted(attempts: u32, reason: Reason) -> Attempted {
    Attempted { attempts, reason, detail: "503 come back later".to_owned() }
}

pub(crate) fn dead(holds_key: bool) -> Option<Placement> {
    Some(Placement::Dead { attempted: attempted(7, Reason::GaveUp), holds_key })
}

pub(crate) fn behind() -> Option<Placement> {
    Some(Placement::Behind(Reason::Behind))
}

pub(crate) fn disabled(topic: &str) -> Option<Placement> {
    let attempted = attempted(0, Reason::Disabled);
    Some(Placement::Disabled { endpoint: topic.into(), attempted })
}

pub(crate) fn here() -> (PartitionId, DestinationId) {
    (PartitionId(0), id("a"))
}
