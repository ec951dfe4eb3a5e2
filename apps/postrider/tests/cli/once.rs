//! `postrider relay --once`, to each destination, and the same engine embedded.

use std::sync::Arc;

use postrider_core::OutboxSource;
use postrider_file::FileBroker;
use postrider_local::LocalBroker;
use postrider_relay::{Ending, Relay, Target};
use postrider_sqlite::SqliteStore;

use crate::{Shop, code, err, events, orders, out};

/// R038: one run delivers what is committed, ends with 0, and the next delivers nothing again.
#[test]
fn one_run_delivers_what_is_committed_as_cloudevents() {
    let shop = Shop::new();
    shop.place(1..11);
    let first = shop.relay(&["--to", "stdout", "--once"]);
    assert_eq!(code(&first), 0, "{}", err(&first));
    let expected: Vec<String> = (1..11).map(|order| order.to_string()).collect();
    let delivered = events(&out(&first));
    assert_eq!(orders(&delivered), expected);
    assert!(delivered.iter().all(|event| &*event.source == "/shop"));
    assert!(err(&first).contains("10 delivered"), "{}", err(&first));
    let second = shop.relay(&["--to", "stdout", "--once"]);
    assert_eq!((code(&second), out(&second).as_str()), (0, ""));
}

/// The address is no part of the definition: one destination may change its broker.
#[test]
fn the_address_of_a_destination_may_change() {
    let shop = Shop::new();
    for (orders, to) in
        [(1..4, "file://events.ndjson"), (4..6, "local://queue.db"), (6..7, "stdout")]
    {
        shop.place(orders);
        let run = shop.relay(&["--to", to, "--once"]);
        assert_eq!(code(&run), 0, "{to}: {}", err(&run));
    }
    let file = std::fs::read_to_string(shop.path("events.ndjson")).unwrap();
    assert_eq!(orders(&events(&file)), ["1", "2", "3"]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let queue = LocalBroker::open(shop.path("queue.db")).unwrap();
    let messages = runtime.block_on(queue.messages("order.placed")).unwrap();
    let ids: Vec<&str> = messages.iter().map(|message| &*message.event.aggregate_id).collect();
    assert_eq!(ids, ["4", "5"]);
}

/// R002: what was rolled back is not there, whatever came before and after.
#[test]
fn rolled_back_changes_are_never_told() {
    let shop = Shop::new();
    let mut connection = shop.connect();
    for order in 1..21 {
        let tx = connection.transaction().unwrap();
        tx.execute(
            "insert into outbox (aggregate_type, aggregate_id, event_type, payload)
             values ('order', ?1, 'order.placed', 'null')",
            [order.to_string()],
        )
        .unwrap();
        if order % 2 == 0 { tx.commit().unwrap() } else { tx.rollback().unwrap() }
    }
    let run = shop.relay(&["--to", "stdout", "--once"]);
    assert_eq!(code(&run), 0, "{}", err(&run));
    let expected: Vec<String> = (1..11).map(|half| (2 * half).to_string()).collect();
    assert_eq!(orders(&events(&out(&run))), expected);
}

/// R028: the engine in the application's own process does what the separate process does.
#[test]
fn an_embedded_relay_delivers_what_a_separate_one_does() {
    let shop = Shop::new();
    shop.place(1..51);
    std::fs::copy(shop.path("shop.db"), shop.path("copy.db")).unwrap();
    let separate = shop.run(&["relay", "--store", "sqlite://copy.db", "--to", "stdout", "--once"]);
    assert_eq!(code(&separate), 0, "{}", err(&separate));

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let ending = runtime.block_on(async {
        let source: Arc<dyn OutboxSource> =
            Arc::new(SqliteStore::new(shop.path("shop.db")).unwrap());
        let broker = FileBroker::open(shop.path("embedded.ndjson")).unwrap();
        let route = postrider_core::Route::all("{event_type}".parse().unwrap());
        let id = postrider_core::DestinationId::new("default").unwrap();
        let definition = postrider_core::Destination::new(id, "url", vec![route]);
        let relay = Relay::builder(source)
            .destination(definition, Arc::new(broker))
            .target(Target::Once)
            .start()
            .await
            .unwrap();
        relay.stopped().await.ending
    });
    assert_eq!(ending, Some(Ending::Done));
    let embedded = std::fs::read_to_string(shop.path("embedded.ndjson")).unwrap();
    assert_eq!(events(&embedded), events(&out(&separate)));
    assert_eq!(events(&embedded).len(), 50);
}
