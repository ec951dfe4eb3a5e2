//! The name of a broker's server.

use std::collections::{BTreeMap, BTreeSet};

use postrider_core::EventId;
use postrider_testkit::names::Moving;
use tokio::runtime::Runtime;

use super::{carried_while_it_moves, moving};
use crate::Shop;
use crate::broker::{assert_none_dead, configured};
use crate::running::Running;

/// Keys, each with an event in each round.
const KEYS: u32 = 5;

/// What was committed, each key in its order.
fn committed(shop: &Shop) -> BTreeMap<String, Vec<EventId>> {
    let mut keys: BTreeMap<String, Vec<EventId>> = BTreeMap::new();
    let connection = shop.connect();
    let mut all = connection.prepare("select aggregate_id, id from outbox order by seq").unwrap();
    let rows = all.query_map((), |row| Ok((row.get(0)?, row.get::<_, String>(1)?)));
    for row in rows.unwrap() {
        let (key, id) = row.unwrap();
        keys.entry(key).or_default().push(id.parse().unwrap());
    }
    keys
}

/// The first copies of what arrived are all that was committed, each key in its order.
fn judge(shop: &Shop, arrived: &[EventId]) {
    for (key, committed) in committed(shop) {
        let mut first: Vec<EventId> = Vec::new();
        for id in arrived.iter().filter(|id| committed.contains(id)) {
            if !first.contains(id) {
                first.push(*id);
            }
        }
        assert_eq!(first, committed, "key {key}");
    }
}

/// A relay on a shop's file while its broker's server moves: nothing is lost, or out of its key's order.
fn follows(
    shop: &Shop,
    runtime: &Runtime,
    moving: &mut Moving,
    kind: &str,
    arrived: &dyn Fn() -> Vec<EventId>,
) {
    shop.configure(&configured(kind, &format!("{kind}://{}", moving.address()), ""));
    let mut relay =
        Running::start(moving.wrap(&shop.command(&["relay", "--config", "postrider.toml"])));
    relay.wait_for("partition taken");
    let place = || {
        // Two of each key, the second behind the first.
        (0..2).for_each(|_| shop.place(0..KEYS));
        2 * KEYS as usize
    };
    let distinct = || arrived().into_iter().collect::<BTreeSet<_>>().len();
    carried_while_it_moves(runtime, moving, &mut relay, &|| (), &place, &distinct);
    judge(shop, &arrived());
    assert!(relay.stop().success());
    assert_none_dead(shop);
}

/// F36: the name of a server of NATS leads elsewhere.
#[cfg(feature = "nats")]
#[test]
fn a_relay_follows_the_name_of_a_server_of_nats() {
    use async_nats::jetstream::{self, stream};
    let Some(server) = crate::nats::server("") else { return };
    let (shop, runtime) = (Shop::new(), Runtime::new().unwrap());
    let Some(mut moving) = moving(&shop, &runtime, server.port()) else { return };
    let stream = runtime.block_on(async {
        let client = jetstream::new(async_nats::connect(server.address()).await.unwrap());
        let config = stream::Config {
            name: "orders".to_owned(),
            subjects: vec!["orders".to_owned()],
            ..stream::Config::default()
        };
        client.create_stream(config).await.unwrap()
    });
    let arrived = || {
        runtime.block_on(async {
            let last = stream.get_info().await.unwrap().state.last_sequence;
            let mut ids = Vec::new();
            for number in 1..=last {
                let message = stream.get_raw_message(number).await.unwrap();
                ids.push(message.headers.get("Nats-Msg-Id").unwrap().as_str().parse().unwrap());
            }
            ids
        })
    };
    follows(&shop, &runtime, &mut moving, "nats", &arrived);
}

/// F36: the name that a server of Kafka has, and tells its clients, leads elsewhere.
#[cfg(feature = "kafka")]
#[test]
fn a_relay_follows_the_name_of_a_server_of_kafka() {
    use postrider_testkit::kafka::{KafkaServer, Stored};
    use postrider_testkit::own_server::free_ports;
    if crate::kafka::is_absent() {
        return;
    }
    let (shop, runtime) = (Shop::new(), Runtime::new().unwrap());
    let behind = free_ports(1).unwrap()[0];
    let Some(mut moving) = moving(&shop, &runtime, behind) else { return };
    let server = KafkaServer::known_as(behind, &moving.address()).unwrap();
    runtime.block_on(server.create("orders", 2, &[]));
    let arrived = || runtime.block_on(server.stored("orders")).iter().map(Stored::id).collect();
    follows(&shop, &runtime, &mut moving, "kafka", &arrived);
}
