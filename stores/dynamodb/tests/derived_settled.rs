//! What a business item says of its publication: whoever is to delete it may wait for that.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use postrider_core::waiting::WaitingChange;
use postrider_core::{OutboxSource as _, Payload};
use postrider_dynamodb::{Connection, Settings, Stamp};
use serde_json::{Value, json};

use crate::derived_waiting::{Scene, retry};
use crate::fresh::{self, Fresh};
use crate::proxy::{self, Then};
use crate::relay::Relay;
use crate::shop::{SK, Shop, deriving, text};

/// A connection through a proxy of a rule.
pub(crate) async fn behind(fresh: &Fresh, rule: proxy::Rule) -> Connection {
    let own = proxy::start(&fresh::url().unwrap(), rule, Box::new(|_, _, _| ())).await;
    let mut settings = Settings::at(own, fresh.settings.names.clone());
    settings.call_time_max = fresh.settings.call_time_max;
    Connection::new(settings).unwrap()
}

/// Deletes an order under a condition; whether it is gone.
async fn delete_if(fresh: &Fresh, id: &str, condition: &str) -> bool {
    let client = fresh.connection.tables().await;
    let delete = client
        .delete_item()
        .table_name(&fresh.settings.names.outbox)
        .key("pk", text(format!("order/{id}")))
        .key("sk", text(SK))
        .condition_expression(condition);
    match Box::pin(delete.send()).await {
        Ok(_) => true,
        Err(error) => {
            let error = error.into_service_error();
            assert!(error.is_conditional_check_failed_exception(), "{error:?}");
            false
        }
    }
}

/// R027, R047: an item that is deleted under the condition of the recipe takes no event with it: not while its newest
/// version is pending, nor while it is on its way, nor while it waits for another try; once that is published it goes.
/// By the key of the index alone, the control, it goes while its event waits, which is lost.
#[tokio::test]
async fn a_deletion_that_waits_for_the_publication_takes_no_event_with_it() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let shop = Shop::open(&fresh).await;
    assert!(delete_if(&fresh, "never", Stamp::SETTLED).await, "no item, no event");
    shop.put("1", 1).await;
    shop.put("2", 1).await;
    assert!(!delete_if(&fresh, "1", Stamp::SETTLED).await, "it is pending");
    let relay = Relay::start(deriving(&fresh.connection)).await;
    let (settlement, rows) = relay.read_rows().await;
    assert_eq!(rows.len(), 2);
    assert!(!delete_if(&fresh, "1", Stamp::SETTLED).await, "it is on its way");
    shop.put("2", 2).await;
    relay.store.settle(&settlement).await.unwrap();
    assert!(delete_if(&fresh, "1", Stamp::SETTLED).await, "it is published");
    assert!(!delete_if(&fresh, "2", Stamp::SETTLED).await, "an older version of it is published");
    for (condition, lost) in [(Stamp::SETTLED, 0), ("attribute_not_exists(pr_shard)", 1)] {
        let Some(fresh) = Fresh::new(1).await else { return };
        let (scene, first) = Scene::failed(&fresh, retry()).await;
        scene.settle().await;
        assert_eq!(delete_if(&fresh, "1", condition).await, lost == 1, "it waits");
        let due = scene.due().await;
        assert_eq!(due.rows[0].event.id, first);
        assert_eq!(due.rows[0].event.payload == Payload::Erased, lost == 1);
        let row = due.rows[0].row;
        scene
            .change(match lost {
                0 => WaitingChange::Delivered(row),
                _ => WaitingChange::Erased(row),
            })
            .await;
        assert_eq!((scene.relay.store.tallied().gone, scene.waiting().await), (lost, 0));
        assert!(delete_if(&fresh, "1", condition).await, "it is published, or gone");
    }
}

/// R027: what waited and was published is said of the version that was, not of a newer one: that is pending.
#[tokio::test]
async fn the_word_of_an_older_version_says_nothing_of_the_newest() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let (mut scene, _) = Scene::failed(&fresh, retry()).await;
    scene.settle().await;
    let due = scene.due().await;
    let second = scene.shop.put("1", 2).await;
    let before = scene.shop.items().await;
    scene.change(WaitingChange::Delivered(due.rows[0].row)).await;
    assert_eq!(scene.shop.items().await, before);
    let came: Vec<_> = scene.relay.drain().await.iter().map(|row| row.row.id).collect();
    assert_eq!(came, [second]);
    assert!(delete_if(&fresh, "1", Stamp::SETTLED).await);
}

/// R027: a relay ends between the item's word and the end of its row: the next one has nothing to send, lets the row
/// go, and counts no event as lost.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_published_is_not_sent_again_because_its_row_is_left() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let fails = Arc::new(AtomicBool::new(false));
    let failing = Arc::clone(&fails);
    let rule = move |operation: &str, _: &mut Value| {
        if operation == "TransactWriteItems" && failing.load(Ordering::SeqCst) {
            let kind = "AccessDeniedException";
            return Then::Answer(400, json!({"__type": kind, "message": "no"}));
        }
        Then::Forward
    };
    let connection = behind(&fresh, Box::new(rule)).await;
    let (scene, first) = Scene::failed_by(&fresh, &connection, retry()).await;
    scene.settle().await;
    let due = scene.due().await;
    assert_ne!(due.rows[0].event.payload, Payload::Erased);
    fails.store(true, Ordering::SeqCst);
    scene.try_change(WaitingChange::Delivered(due.rows[0].row)).await.unwrap_err();
    fails.store(false, Ordering::SeqCst);
    assert!(!scene.shop.items().await[0].contains_key("pr_at"), "the word is said");
    assert_eq!(scene.waiting().await, 1, "and the row is there");
    let due = scene.due().await;
    assert_eq!((due.rows[0].event.id, &due.rows[0].event.payload), (first, &Payload::Erased));
    scene.change(WaitingChange::Erased(due.rows[0].row)).await;
    let tally = scene.relay.store.tallied();
    assert_eq!((scene.waiting().await, tally.gone), (0, 0));
}
