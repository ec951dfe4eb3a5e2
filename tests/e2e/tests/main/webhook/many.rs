//! A thousand endpoints of one destination: one refuses the whole time, one takes two seconds for each
//! answer, and the others do not notice.

use postrider_core::NewEvent;
use postrider_e2e::{PARTNERS, PLACED, tenant};
use postrider_sqlite::Outbox;
use rusqlite::TransactionBehavior;

use crate::evidence::{OF_A_RELAY, assert_holds};
use crate::stage::texts;
use crate::webhook::evidence::Witness;
use crate::webhook::town::{Held, Town};

const TENANTS: u64 = 1_000;

/// Orders of each tenant. They are committed in turns, so that each turn has one of everybody.
const ORDERS: u64 = 3;

const REFUSING: &str = "tenant-7";
const SLOW: &str = "tenant-600";

/// Commits the orders of all tenants in one transaction.
fn place_orders(town: &Town) {
    let mut shop = town.stage.shop();
    let tx = shop.transaction_with_behavior(TransactionBehavior::Immediate).expect("begun");
    let outbox = Outbox::new();
    for order in 0..TENANTS * ORDERS {
        let key = (order % TENANTS).to_string();
        let event = NewEvent::new("order", &key, PLACED).tenant(&tenant(order % TENANTS));
        let id = event.event().id.to_string();
        let row = (format!("order/{key}"), id);
        tx.prepare_cached(include_str!("../../../sql/place_order.sql"))
            .and_then(|mut statement| statement.execute(row))
            .expect("an order");
        outbox.enqueue(&tx, &event).expect("its event");
    }
    tx.commit().expect("committed");
}

/// F5, F8, R068, INV-5, INV-8: 998 endpoints get all that is theirs while one refuses and one is slow;
/// the cursor goes past what waits, health names who refuses, and nothing of it is dead. When it
/// listens again, it gets its own in order.
#[tokio::test]
async fn one_dead_and_one_slow_endpoint_hold_nobody_else() {
    let town = Town { tenants: TENANTS, ..Town::new() };
    place_orders(&town);
    let elsewhere = Held::new();
    let partner = town.receiver(&["--slow-ms", "2000", "--slow", SLOW]).await;
    let away = format!("{REFUSING}={}", elsewhere.address);
    // A window of a quarter of the tenants, so that the cursor cannot get by without moving.
    let args = ["--away", away.as_str(), "--window", "250", "--lease-ms", "60000"];
    let mut relay = town.relay(&[&args[..], &["--deadline-ms", "18000"]].concat()).await;
    let named = format!("endpoint {REFUSING}");
    relay.hear("who refuses", |line| line.contains(&named)).await;
    town.until_passed(&mut relay, TENANTS * ORDERS).await;
    let others = |town: &Town| {
        let wanted = (TENANTS - 1) * ORDERS;
        town.records().iter().filter(|record| record.endpoint != REFUSING).count() as u64 == wanted
    };
    town.stage.until(&mut relay, "all others have theirs", || others(&town)).await;
    assert_eq!(town.duplicates(), 0);
    let waiting = "select distinct o.tenant || ' ' || w.state || ' ' || w.attempts
        from outbox_waiting w join outbox o on o.id = w.id where w.state <> 'parked'";
    town.stage
        .until(&mut relay, "only the refusing one waits", || {
            town.waiting("true") == ORDERS.cast_signed()
        })
        .await;
    assert_eq!(texts(&town.stage.shop(), waiting), [format!("{REFUSING} retrying 0")]);
    let mut witness = Witness::default();
    let published = format!(
        "select count(*) from outbox_status where destination = '{PARTNERS}' and status = 'published'"
    );
    let published = crate::stage::number(&town.stage.shop(), &published);
    assert_eq!(published.cast_unsigned(), (TENANTS - 1) * ORDERS, "what waits is not published");

    let late = town.receiver_at(elsewhere.address, &[]).await;
    town.stage.until(&mut relay, "nothing waits", || town.waiting("true") == 0).await;
    assert_eq!(relay.finish().await.code, Some(0));
    partner.finish().await;
    late.finish().await;
    witness.look(&town);
    let (history, verdict) = witness.judge(&town);
    assert_holds(&verdict, &OF_A_RELAY);
    assert_eq!(history.ledger().delivered, TENANTS * ORDERS);
}
