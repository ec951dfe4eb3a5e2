//! When a verdict of a group may be heard, with a check of it that is seen to fail.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use futures_util::future::join_all;
use postrider_core::inbox::{Receiver, Verdict};
use postrider_core::{BoxFuture, Delivery, Event, EventId, HandlerName, Result};
use postrider_postgres::{Inbox, Names};
use tokio_postgres::Client;

use super::groups::{effects, events, grouped, once};
use super::receiver::{act, delivery};
use super::{handler, with_effects};
use crate::support::Fresh;

/// R074: who hears `Done` finds marker and effect committed at that moment, seen from elsewhere. The events of which
/// that is not so.
async fn unfounded(
    fresh: &Fresh,
    receiver: &dyn Receiver,
    events: &[Arc<Event>],
) -> BTreeSet<u128> {
    let (unfounded, client) = (Mutex::new(BTreeSet::new()), fresh.connect().await);
    let deliveries: Vec<Delivery> = events.iter().map(delivery).collect();
    let all = events.iter().zip(&deliveries).map(|(event, delivery)| async {
        let Ok(Verdict::Done) = receiver.receive(event, delivery).await else { return };
        let found = fresh.sql(
            "select count(*) from {inbox} i join {schema}.effects e on e.event = i.event_id::text
            where e.event = $1",
        );
        let row = client.query_one(&found, &[&event.id.to_string()]).await.expect("a count");
        if row.get::<_, i64>(0) != 1 {
            unfounded.lock().unwrap().insert(event.id.as_u128());
        }
    });
    join_all(all).await;
    unfounded.into_inner().unwrap()
}

/// Says `Done` before it commits, which it then does not do.
struct Hasty {
    name: HandlerName,
    names: Names,
    client: tokio::sync::Mutex<Client>,
}

impl Receiver for Hasty {
    fn handler(&self) -> &HandlerName {
        &self.name
    }

    fn receive<'a>(
        &'a self,
        event: &'a Arc<Event>,
        _: &'a Delivery,
    ) -> BoxFuture<'a, Result<Verdict>> {
        Box::pin(async move {
            let mut client = self.client.lock().await;
            let tx = client.build_transaction().start().await.expect("begin");
            let _ = Inbox::named(&self.names).accept(&tx, event, &self.name).await?;
            act(&self.names, &tx, event).await.expect("the effect");
            // As good as done.
            Ok(Verdict::Done)
        })
    }
}

/// R074: none of a group is acknowledged before its commit; the check is seen to find one that is.
#[tokio::test]
async fn no_verdict_comes_before_the_commit() {
    let Some(fresh) = with_effects().await else { return };
    let (poisoned, calls) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicU32::new(0)));
    let (names, counted) = (fresh.names.clone(), Arc::clone(&calls));
    let receiver = grouped(&fresh, &fresh.url, move |tx, event| {
        let (names, poisoned) = (names.clone(), Arc::clone(&poisoned));
        counted.fetch_add(1, Ordering::Relaxed);
        Box::pin(async move {
            act(&names, tx, event).await?;
            // The first group is in vain when most of it is done.
            let last = event.id == EventId::from_u128(15);
            if last && poisoned.swap(false, Ordering::Relaxed) {
                return Err("not yet".into());
            }
            Ok(Verdict::Done)
        })
    });
    assert_eq!(unfounded(&fresh, &receiver, &events(0..16)).await, BTreeSet::new());
    assert_eq!(
        calls.load(Ordering::Relaxed),
        32,
        "all of it was done, rolled back, and done again"
    );
    assert_eq!(effects(&fresh).await, once(0..16));
    let client = tokio::sync::Mutex::new(fresh.connect().await);
    let hasty = Hasty { name: handler("billing"), names: fresh.names.clone(), client };
    assert_eq!(unfounded(&fresh, &hasty, &events(20..24)).await, (20..24).collect());
}
