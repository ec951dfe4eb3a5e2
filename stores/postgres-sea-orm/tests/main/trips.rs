//! How often each call waits for the server.

use postrider_core::NewEvent;
use postrider_postgres_sea_orm::{Inbox, Outbox, Settings};
use postrider_testkit::turns::Turns;
use sea_orm::{ConnectOptions, Database, TransactionTrait};

use crate::{billing, event, fresh, incoming, run};

/// One event, three hundred, and a marker are one round trip each, once their statements are prepared;
/// one by one, three events are three (which shows that the counter counts).
#[tokio::test]
async fn each_call_is_one_round_trip() {
    let Some((url, names)) = fresh().await else { return };
    let turns = Turns::to(&url).unwrap();
    let (outbox, inbox) = (Outbox::from(Settings::named(names.clone())), Inbox::named(&names));
    let mut options = ConnectOptions::new(turns.url());
    options.max_connections(1);
    let db = Database::connect(options).await.unwrap();
    let many: Vec<NewEvent> = (0..300).map(event).collect();
    for (round, cold) in [(1, true), (2, false)] {
        let tx = db.begin().await.unwrap();
        let mut before = turns.count();
        let mut expect = |calls: u64, what: &str| {
            let now = turns.count();
            let needed = now - before;
            assert!(needed == calls || cold && needed == 2 * calls, "{what}: {needed}");
            before = now;
        };
        outbox.enqueue(&tx, &event(1)).await.unwrap();
        expect(1, "one event");
        outbox.enqueue_many(&tx, &many).await.unwrap();
        expect(1, "many events");
        let _ = inbox.accept(&tx, &incoming(round), &billing()).await.unwrap();
        expect(1, "a marker");
        if !cold {
            for event in &many[..3] {
                outbox.enqueue(&tx, event).await.unwrap();
            }
            expect(3, "three by themselves");
        }
        tx.commit().await.unwrap();
    }
    run(&url, names.render("drop schema {schema} cascade")).await;
}
