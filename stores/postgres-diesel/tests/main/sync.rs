//! The calls for `diesel` itself, without async: over the wire of `diesel-async` in its synchronous wrapper, and over
//! libpq where the tests are built with it.

use std::thread;

use diesel::connection::{LoadConnection, SimpleConnection};
use diesel::pg::Pg;
use diesel::sql_types::Text;
use diesel::{QueryableByName, RunQueryDsl};
use diesel_async::AsyncPgConnection;
use diesel_async::async_connection_wrapper::AsyncConnectionWrapper;
use postrider_core::inbox::Accepted;
use postrider_core::{ErrorKind, NewEvent, Timestamp};
use postrider_postgres::Names;
use postrider_postgres_diesel::{Inbox, Outbox, Settings};
use postrider_testkit::turns::Turns;

use crate::enqueue::small;
use crate::{Count, Failed, billing, event, fresh, incoming, run, waiting};

/// A connection that blocks.
trait Blocking: LoadConnection<Backend = Pg> + SimpleConnection + Send + 'static {}

impl<C: LoadConnection<Backend = Pg> + SimpleConnection + Send + 'static> Blocking for C {}

/// R001, R002, R003, R004, R023, R078, INV-4: events and markers commit with the transaction or not at all, the
/// second of two waits for the first, and each call is one round trip.
#[tokio::test]
async fn what_blocks_keeps_the_same_promises() {
    plays::<AsyncConnectionWrapper<AsyncPgConnection>>().await;
}

/// The same over libpq.
#[cfg(postrider_libpq)]
#[tokio::test]
async fn what_blocks_on_libpq_keeps_the_same_promises() {
    plays::<diesel::PgConnection>().await;
}

#[cfg(not(postrider_libpq))]
#[test]
fn what_blocks_on_libpq_keeps_the_same_promises() {
    eprintln!(
        "skipped: diesel over libpq is only linked where that is asked for, since not every machine has it: \
         RUSTFLAGS='--cfg postrider_libpq' cargo test -p postrider-postgres-diesel --all-features"
    );
}

async fn plays<C: Blocking>() {
    let Some((url, names)) = fresh().await else { return };
    let (at, called) = (url.clone(), names.clone());
    // A thread of its own: the wrapper runs a runtime of its own.
    let played = thread::spawn(move || {
        events::<C>(&at, &called);
        markers::<C>(&at, &called);
        trips::<C>(&at, &called);
    });
    let played = tokio::task::spawn_blocking(move || played.join()).await.unwrap();
    run(&url, names.render("drop schema {schema} cascade")).await;
    played.unwrap();
}

#[derive(QueryableByName)]
struct Ids {
    #[diesel(sql_type = Text)]
    ids: String,
}

fn events<C: Blocking>(url: &str, names: &Names) {
    let outbox = Outbox::from(Settings::named(names.clone()));
    let mut connection = C::establish(url).unwrap();
    let beside = outbox.enqueue(&mut connection, &event(1)).unwrap_err();
    assert_eq!(beside.kind(), ErrorKind::Invalid, "{beside}");
    let beside = outbox.enqueue_many(&mut connection, &[event(1)]).unwrap_err();
    assert_eq!(beside.kind(), ErrorKind::Invalid, "{beside}");
    let rolled_back: Result<(), Failed> = connection.transaction(|tx| {
        outbox.enqueue(tx, &event(1))?;
        Err(Failed("the application".to_owned()))
    });
    assert!(rolled_back.is_err());
    let committed: Result<(), Failed> = connection.transaction(|tx| {
        let refused = outbox.enqueue(tx, &event(1).version(0)).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
        outbox.enqueue(tx, &event(2))?;
        let bytes = event(4).bytes(vec![0, 255], "a/b").ordered_by("k").source("/s");
        let later = event(9).deliver_after(Timestamp::now());
        assert_eq!(outbox.enqueue_many(tx, &[event(3), bytes, later, event(5)])?.len(), 4);
        outbox.enqueue_many(tx, &[])?;
        let full = Outbox::from(Settings::named(names.clone()).watermark(1));
        let refused = full.enqueue(tx, &event(1)).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Backpressure, "{refused}");
        tx.batch_execute(&small(names))?;
        let careful = Outbox::from(Settings::named(names.clone()).preflight());
        let large = event(1).bytes(vec![0; 1_001], "a/b");
        let refused = careful.enqueue(tx, &large).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::TooLarge, "{refused}");
        let refused = careful.enqueue_many(tx, [&event(1), &large]).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::TooLarge, "{refused}");
        tx.batch_execute(&names.render("delete from {outbox_destination}"))?;
        Ok(())
    });
    committed.unwrap();
    let written = "select string_agg(aggregate_id, ' ' order by seq) as ids from {outbox}";
    let written: Ids =
        diesel::sql_query(names.render(written)).get_result(&mut connection).unwrap();
    assert_eq!(written.ids, "2 3 4 5");
}

fn markers<C: Blocking>(url: &str, names: &Names) {
    let inbox = Inbox::named(names);
    let (mut one, mut two) = (C::establish(url).unwrap(), C::establish(url).unwrap());
    let beside = inbox.accept(&mut one, &incoming(1), &billing()).unwrap_err();
    assert_eq!(beside.kind(), ErrorKind::Invalid, "{beside}");
    for (number, commits) in [(1, true), (2, false)] {
        let mut second = C::establish(url).unwrap();
        let (late, event) = (inbox.clone(), incoming(number));
        let mut handle = None;
        let ended: Result<(), Failed> = one.transaction(|tx| {
            assert_eq!(inbox.accept(tx, &event, &billing())?, Accepted::FirstTime);
            let event = event.clone();
            handle = Some(thread::spawn(move || {
                second.transaction(|tx| Ok::<_, Failed>(late.accept(tx, &event, &billing())?))
            }));
            let waiting = waiting(names.schema());
            while diesel::sql_query(&waiting).get_result::<Count>(&mut two)?.count == 0 {
                thread::yield_now();
            }
            if commits { Ok(()) } else { Err(Failed("the application".to_owned())) }
        });
        assert_eq!(ended.is_ok(), commits, "{ended:?}");
        let said = handle.unwrap().join().unwrap().unwrap();
        assert_eq!(said, if commits { Accepted::Duplicate } else { Accepted::FirstTime });
    }
    let third = incoming(3);
    let ended: Result<(), Failed> = one.transaction(|tx| {
        assert_eq!(inbox.accept(tx, &third, &billing())?, Accepted::FirstTime);
        let late: Result<(), Failed> = two.transaction(|tx| {
            tx.batch_execute("set local lock_timeout = '50ms'")?;
            let refused = inbox.accept(tx, &third, &billing()).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Busy, "{refused}");
            Err(refused.into())
        });
        assert!(late.is_err());
        Ok(())
    });
    ended.unwrap();
}

fn trips<C: Blocking>(url: &str, names: &Names) {
    let turns = Turns::to(url).unwrap();
    let (outbox, inbox) = (Outbox::from(Settings::named(names.clone())), Inbox::named(names));
    let mut connection = C::establish(turns.url()).unwrap();
    let many: Vec<NewEvent> = (0..300).map(event).collect();
    for (round, cold) in [(11, true), (12, false)] {
        let ended: Result<(), Failed> = connection.transaction(|tx| {
            let mut before = turns.count();
            let mut expect = |what: &str| {
                let now = turns.count();
                let needed = now - before;
                assert!(needed == 1 || cold && needed == 2, "{what}: {needed}");
                before = now;
            };
            outbox.enqueue(tx, &event(1))?;
            expect("one event");
            outbox.enqueue_many(tx, &many)?;
            expect("many events");
            let _ = inbox.accept(tx, &incoming(round), &billing())?;
            expect("a marker");
            Ok(())
        });
        ended.unwrap();
    }
}
