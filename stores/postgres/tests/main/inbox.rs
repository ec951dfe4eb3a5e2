//! The inbox: the contract's suite and model, markers in the handler's transaction at every isolation
//! level, and what concurrent workers do to one row.

mod again;
mod dropped;
mod groups;
mod groups_broken;
mod groups_meeting;
mod groups_told;
mod isolation;
mod pooled;
mod prepared;
mod receiver;
#[path = "inbox/receiver.rs"]
#[expect(clippy::duplicate_mod, reason = "what a handler may rely on is the same in groups")]
mod receiver_in_groups;
mod retention;
mod row;

use std::sync::Arc;
use std::time::Duration;

use postrider_core::inbox::Accepted;
use postrider_core::{
    BoxFuture, Claim, ClaimLease, ClaimRequest, Error, ErrorKind, Event, EventId, HandlerName,
    InboxStore, Result,
};
use postrider_postgres::{Inbox, PostgresStore};
use postrider_testkit::suite::model::{Effort, Mixed};
use postrider_testkit::suite::{InboxHarness, Then, TransactionalProbe};
use tokio_postgres::Client;

use crate::pool::Kind;
use crate::support::{CURRENT, Fresh, USUAL, connect, server};

fn handler(name: &str) -> HandlerName {
    HandlerName::new(name).expect("a name")
}

fn incoming(number: u128) -> Arc<Event> {
    let mut event = Event::new(EventId::from_u128(number), "order", "42", "order.placed");
    event.source = Arc::from("/shop");
    Arc::new(event)
}

const EFFECTS: &str = "create table {schema}.effects (event text)";

async fn with_effects() -> Option<Fresh> {
    Fresh::beside(1, EFFECTS).await
}

/// The same, borrowed.
async fn lent(which: u8) -> Fresh {
    let url = server(which).expect("a server: asked before");
    Fresh::lent(Kind { url, partitions: 1, pooled: false, beside: EFFECTS }).await
}

async fn claim(store: &PostgresStore, event: &Event, lease: Duration) -> Claim {
    let request = ClaimRequest::new(event, &handler("billing"), lease).expect("a request");
    store.claim(&request).await.expect("claim")
}

async fn claimed(store: &PostgresStore, event: &Event, lease: Duration) -> ClaimLease {
    match claim(store, event, lease).await {
        Claim::Claimed(lease) => lease,
        other => panic!("expected a claim, got {other:?}"),
    }
}

/// A connection, its transaction, and accept, as an application writes them.
async fn accept_once(fresh: &Fresh, event: &Event, name: &str) -> Result<Accepted> {
    let mut client = fresh.connect().await;
    let tx = client.transaction().await.expect("begin");
    let accepted = Inbox::named(&fresh.names).accept(&tx, event, &handler(name)).await?;
    tx.commit().await.expect("commit");
    Ok(accepted)
}

/// The store as it is, on the database's own clock.
struct Real<const SERVER: u8>(Arc<Fresh>);

impl<const SERVER: u8> InboxHarness for Real<SERVER> {
    fn unavailable() -> Option<String> {
        server(SERVER).err()
    }

    async fn start() -> Self {
        Real(Arc::new(lent(SERVER).await))
    }

    fn inbox(&self) -> Arc<dyn InboxStore> {
        Arc::new(self.0.store())
    }

    fn purges_claims(&self) -> bool {
        true
    }

    fn transactional(&self) -> Option<Arc<dyn TransactionalProbe>> {
        Some(Arc::new(Probe(Arc::clone(&self.0))))
    }
}

/// A store whose time passes when it is told to: every moment in the tables goes back by the span. Hours,
/// so that the milliseconds that a call takes decide nothing.
struct Shifted<const SERVER: u8>(Arc<Fresh>);

impl<const SERVER: u8> InboxHarness for Shifted<SERVER> {
    fn unavailable() -> Option<String> {
        server(SERVER).err()
    }

    async fn start() -> Self {
        Shifted(Arc::new(lent(SERVER).await))
    }

    fn inbox(&self) -> Arc<dyn InboxStore> {
        Arc::new(self.0.store())
    }

    fn pass(&self, span: Duration) -> BoxFuture<'_, ()> {
        Box::pin(async move { self.0.age(span).await })
    }

    fn unit(&self) -> Duration {
        Duration::from_secs(3_600)
    }

    fn purges_claims(&self) -> bool {
        true
    }

    fn transactional(&self) -> Option<Arc<dyn TransactionalProbe>> {
        Some(Arc::new(Probe(Arc::clone(&self.0))))
    }
}

impl Fresh {
    /// Makes everything in the inbox older.
    async fn age(&self, span: Duration) {
        let shift = format!(
            "update {{inbox}} set
                -- What was let go stands before 1970, mirrored.
                expires_at = expires_at + case when expires_at < 'epoch' then 1 else -1 end * interval '{0} s',
                received_at = received_at - interval '{0} s',
                processed_at = processed_at - interval '{0} s';
            update {{inbox_result}} set completed_at = completed_at - interval '{0} s';
            update {{inbox_step}} set completed_at = completed_at - interval '{0} s'",
            span.as_secs()
        );
        self.run(&shift).await;
    }
}

/// A handler of the application, which accepts and writes its effect in one transaction.
struct Probe(Arc<Fresh>);

async fn act(
    fresh: &Fresh,
    client: &mut Client,
    event: &Event,
    name: &HandlerName,
    then: Then,
) -> Result<Accepted> {
    let tx = client
        .transaction()
        .await
        .map_err(|e| Error::new(ErrorKind::Unavailable, "begin").source(e))?;
    let accepted = Inbox::named(&fresh.names).accept(&tx, event, name).await?;
    if accepted == Accepted::FirstTime {
        // One that is prepared may be somebody else's behind a pooler.
        let effect = format!("insert into {{schema}}.effects values ('{}')", event.id);
        tx.batch_execute(&fresh.sql(&effect)).await.expect("the effect");
    }
    match then {
        Then::Commit => tx.commit().await.expect("commit"),
        Then::Fail => tx.rollback().await.expect("roll back"),
        Then::Abandon => drop(tx),
    }
    Ok(accepted)
}

impl TransactionalProbe for Probe {
    fn accept<'a>(
        &'a self,
        event: &'a Event,
        handler: &'a HandlerName,
        then: Then,
    ) -> BoxFuture<'a, Result<Accepted>> {
        Box::pin(async move {
            let mut client = connect(&self.0.store_url).await;
            let answer = act(&self.0, &mut client, event, handler, then).await;
            // What was dropped is rolled back before anybody looks.
            _ = client.simple_query("select 1").await;
            answer
        })
    }

    fn effects(&self) -> BoxFuture<'_, u64> {
        Box::pin(async {
            self.0.number("select count(*) from {schema}.effects").await.cast_unsigned()
        })
    }
}

mod suite {
    use super::*;

    postrider_testkit::inbox_suite!(Real<USUAL>);

    mod current {
        use super::*;

        postrider_testkit::inbox_suite!(Real<CURRENT>);
    }
}

mod model {
    use super::*;

    postrider_testkit::inbox_model!(Shifted<USUAL>, Effort::of(8, 50), Mixed::Yes);

    mod current {
        use super::*;

        postrider_testkit::inbox_model!(Shifted<CURRENT>, Effort::of(4, 50), Mixed::Yes);
    }
}
