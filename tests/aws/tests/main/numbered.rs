//! Events whose numbers the application draws: the versions of its own items, in the same transactions.

use std::sync::Arc;

use aws_sdk_dynamodb::types::{AttributeValue, TransactWriteItem, Update};
use postrider_core::{Destination, DestinationId, EventId, NewEvent, Route};
use postrider_dynamodb::{DynamoStore, Outbox};
use postrider_relay::{Ending, Relay, Target};
use postrider_testkit::memory::{MemoryBroker, MemoryClock};
use postrider_testkit::services;

use crate::bank::Bank;

/// Accounts, and moves of each in a round.
const KEYS: u64 = 2;
const EACH: u64 = 3;

/// An account's next version, if it has the one before.
fn moved(bank: &Bank, account: &str, version: u64) -> TransactWriteItem {
    let number = |n: u64| AttributeValue::N(n.to_string());
    let update = Update::builder()
        .table_name(&bank.accounts)
        .key("pk", AttributeValue::S(account.to_owned()))
        .update_expression("SET version = :version")
        .condition_expression("version = :before OR (:before = :none AND attribute_not_exists(pk))")
        .expression_attribute_values(":version", number(version))
        .expression_attribute_values(":before", number(version - 1))
        .expression_attribute_values(":none", number(0));
    TransactWriteItem::builder().update(update.build().unwrap()).build()
}

/// Commits one move with its event, or neither.
async fn write(bank: &Bank, outbox: &Outbox, account: u64, version: u64) -> Option<EventId> {
    let account = account.to_string();
    let event = NewEvent::new("account", &*account, "account.moved").json(&version).unwrap();
    let own = outbox.stage_numbered(&event.key(), version, &event).unwrap();
    let send = bank.connection.tables().await.transact_write_items();
    let sent = send.transact_items(moved(bank, &account, version)).transact_items(own).send();
    sent.await.ok().map(|_| event.event().id)
}

/// R026, R050, INV-3: versions of the application's items are the numbers of their events: a relay delivers each key's
/// in their order, without a head item, and none of a version that somebody else had drawn; nor one of the next round.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn versions_of_the_applications_items_are_delivered_in_their_order() {
    let server = services::url("ddb").inspect_err(|reason| {
        println!("skipped: events with the application's numbers: {reason}");
        assert!(std::env::var_os("CI").is_none(), "{reason}");
    });
    let Ok(server) = server else { return };
    let bank = Bank::make(&server).await;
    let outbox = Outbox::open(&bank.connection).await.unwrap();
    let broker = MemoryBroker::new(MemoryClock::running());
    let mut committed: Vec<Vec<EventId>> = vec![Vec::new(); KEYS as usize];
    for round in 0..2 {
        for version in round * EACH + 1..=(round + 1) * EACH {
            for account in 0..KEYS {
                let id =
                    write(&bank, &outbox, account, version).await.expect("the version is next");
                committed[usize::try_from(account).unwrap()].push(id);
                let late = write(&bank, &outbox, account, version).await;
                assert_eq!(late, None, "the version is drawn, and its event is not written");
            }
        }
        let route = Route::all("accounts".parse().unwrap());
        let definition =
            Destination::new(DestinationId::new("all").unwrap(), "memory", vec![route]);
        let relay = Relay::builder(Arc::new(DynamoStore::new(bank.connection.clone())))
            .destination(definition, Arc::new(broker.clone()))
            .target(Target::Once);
        let report = relay.start().await.unwrap().stopped().await;
        assert_eq!(report.ending, Some(Ending::Done));
    }
    let published = broker.published();
    for (account, sent) in committed.iter().enumerate() {
        let of = published.iter().filter(|one| *one.event.aggregate_id == account.to_string());
        assert_eq!(&of.map(|one| one.event.id).collect::<Vec<_>>(), sent, "{account}");
    }
    assert_eq!(published.len() as u64, 2 * KEYS * EACH, "each once");
    bank.remove().await;
}
