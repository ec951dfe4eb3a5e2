//! What a removal that was cut off has left: it is nobody's, and does not become another destination's.

use postrider_core::operate::{Level, Operator};
use postrider_core::source::{DefinitionChange, OutboxSource};
use postrider_core::{ErrorKind, Timestamp};

use super::{Act, Play, everything, note, of_type};
use crate::support::id;

/// Rows of a destination that is not there, as a crash after its removal leaves them, with a key of each.
async fn left_of(play: &Play, destination: &str, rows: u32) {
    let text = format!(
        "insert into {{outbox_waiting}} (destination, partition, seq, key, key_hash, state, holds_key,
            next_at, reason, moved_at, payload)
        select '{destination}', 0, 100 + seq, 'order/' || seq, 0, 'retrying', true, now(), 'failed', now(), '1'
        from generate_series(1, {rows}) seq;
        insert into {{outbox_settled}} select '{destination}', 0, bucket, 1, 0, 1, 0, 0, 0, 0, 0, 'r', now()
        from generate_series(1, {rows}) bucket"
    );
    play.fresh.run(&text).await;
}

async fn rows_of(play: &Play, destination: &str) -> i64 {
    let text = format!(
        "select (select count(*) from {{outbox_waiting}} where destination = '{destination}')
            + (select count(*) from {{outbox_settled}} where destination = '{destination}')"
    );
    play.fresh.number(&text).await
}

/// R101: what was removed is not delivered by whoever gets its name: a renaming deletes it first.
#[tokio::test]
async fn a_renaming_takes_nothing_over_from_a_removed_destination() {
    let Some(play) = Play::begin(&[everything("orders-v2")]).await else { return };
    play.commit(&[of_type("order.placed", 1)]).await;
    play.settle("orders-v2", &[Act::Dead]).await;
    left_of(&play, "orders", 6_000).await;
    play.store.rename(&id("orders-v2"), &id("orders"), &note()).await.unwrap();
    let counts = play.store.counts(&id("orders")).await.unwrap();
    assert_eq!((counts.total(), counts.dead), (1, 1), "its own dead letter, and nothing else");
    assert_eq!(play.store.recount(&id("orders")).await.unwrap().differences, []);
}

/// The same beside a removal in another terminal that still deletes: it is refused, and nothing is changed.
#[tokio::test]
async fn a_renaming_beside_the_sweep_of_a_removal_is_refused() {
    let Some(play) = Play::made(1, &[everything("orders-v2")]).await else { return };
    // The sweep of the renaming itself finds nothing to delete while its rows come: written by the test, they stand
    // for those that the other terminal has not come to.
    let text = "create function {schema}.come() returns trigger language plpgsql as $$ begin return null; end $$;
        create trigger come before delete on {outbox_waiting} for each row execute function {schema}.come()";
    let text = text.replace("{schema}", play.fresh.names.schema());
    left_of(&play, "orders", 10).await;
    play.fresh.run(&text).await;
    let refused = play.store.rename(&id("orders-v2"), &id("orders"), &note()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Busy, "{refused}");
    assert!(refused.to_string().contains("is being deleted"), "{refused}");
    let definitions = play.store.destinations().await.unwrap();
    assert!(definitions.rows.iter().any(|row| row.definition.id == id("orders-v2")));
    assert_eq!(play.audited().await, []);
}

/// `doctor` names it, `erase` reaches it, and a removal that is said again finishes it.
#[tokio::test]
async fn what_is_left_of_a_removal_is_named_erased_and_finished() {
    let Some(play) = Play::begin(&[everything("a")]).await else { return };
    let leftovers = async || {
        let found = play.store.doctor(Timestamp::now()).await.unwrap();
        found.into_iter().find(|finding| finding.subject == "leftovers").unwrap()
    };
    assert_eq!(leftovers().await.level, Level::Good);
    left_of(&play, "orders", 3).await;
    let found = leftovers().await;
    assert_eq!(found.level, Level::Warning);
    assert!(found.message.contains("orders (3 that waited)"), "{}", found.message);
    assert!(found.advice.unwrap().contains("postrider destinations remove orders"));

    assert_eq!(play.store.erasable("order/2").await.unwrap().waiting, 1);
    assert_eq!(play.store.erase("order/2", &note()).await.unwrap().waiting, 1);
    let key = "select count(*) from {outbox_waiting} where key = 'order/2'";
    assert_eq!(play.fresh.number(key).await, 0, "nobody would have sent it");
    assert_eq!(rows_of(&play, "orders").await, 5, "what is of other keys waits for the removal");

    assert!(play.store.has_leftovers(&id("orders")).await.unwrap());
    assert!(!play.store.has_leftovers(&id("a")).await.unwrap());
    let remove = DefinitionChange { remove: vec![id("orders")], ..DefinitionChange::default() };
    Operator::apply(&play.store, &remove, &note()).await.unwrap();
    assert_eq!(rows_of(&play, "orders").await, 0);
    assert_eq!(leftovers().await.level, Level::Good);
}
