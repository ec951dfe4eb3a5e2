//! The marker in a transaction of `diesel-async`.

use std::time::Duration;

use diesel::sql_types::Text;
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use postrider_core::inbox::Accepted;
use postrider_core::{Code, ErrorKind, Event, Payload};
use postrider_postgres::Names;
use postrider_postgres_diesel::Inbox;

use crate::{Failed, billing, count, fresh, incoming, run, until_one_waits};

/// Accepts the event, acts where it is the first time, and commits or rolls back.
async fn act(
    connection: &mut AsyncPgConnection,
    names: &Names,
    event: &Event,
    commits: bool,
) -> Accepted {
    let inbox = Inbox::named(names);
    let mut said = None;
    let ended: Result<(), Failed> = connection
        .transaction(async |tx| {
            let accepted = inbox.accept_async(tx, event, &billing()).await?;
            said = Some(accepted);
            if accepted == Accepted::FirstTime {
                diesel::sql_query(names.render("insert into {schema}.effects values ($1)"))
                    .bind::<Text, _>(event.id.to_string())
                    .execute(tx)
                    .await?;
            }
            if commits { Ok(()) } else { Err(Failed("the application".to_owned())) }
        })
        .await;
    assert_eq!(ended.is_ok(), commits, "{ended:?}");
    said.unwrap()
}

/// R004, R075, INV-4: what is rolled back was not done, what is committed is a duplicate from then on, also beside
/// another handler's; another payload under the id is refused, an event without a source too, and without a
/// transaction nothing is written.
#[tokio::test]
async fn the_marker_commits_with_the_change() {
    let Some((url, names)) = fresh().await else { return };
    run(&url, names.render("create table {schema}.effects (event text)")).await;
    let (inbox, billing) = (Inbox::named(&names), billing());
    let mut connection = AsyncPgConnection::establish(&url).await.unwrap();
    let beside = inbox.accept_async(&mut connection, &incoming(1), &billing).await.unwrap_err();
    assert_eq!(beside.kind(), ErrorKind::Invalid, "{beside}");
    assert!(beside.to_string().contains("no transaction is open"), "{beside}");
    for (commits, expected) in [
        (false, Accepted::FirstTime),
        (true, Accepted::FirstTime),
        (true, Accepted::Duplicate),
        (false, Accepted::Duplicate),
    ] {
        assert_eq!(act(&mut connection, &names, &incoming(1), commits).await, expected);
    }
    let ended: Result<(), Failed> = connection
        .transaction(async |tx| {
            let mail = "mail".parse().unwrap();
            let accepted = inbox.accept_async(tx, &incoming(1), &mail).await?;
            assert_eq!(accepted, Accepted::FirstTime);
            let mut forged = incoming(1);
            forged.payload = Payload::Bytes("other".into());
            let refused = inbox.accept_async(tx, &forged, &billing).await.unwrap_err();
            assert_eq!(refused.operator_code(), Some(Code::PayloadMismatch), "{refused}");
            let nameless = Event::new(incoming(2).id, "order", "42", "order.placed");
            let refused = inbox.accept_async(tx, &nameless, &billing).await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
            Ok(())
        })
        .await;
    ended.unwrap();
    let effects = names.render("select count(*) from {schema}.effects");
    assert_eq!(count(&url, &effects).await, 1);
    run(&url, names.render("drop schema {schema} cascade")).await;
}

/// R004, R078: the second of two waits for the first: a commit makes it a duplicate, a rollback the first time,
/// and a wait that is too long is `Busy`.
#[tokio::test]
async fn the_second_of_two_waits_for_the_first() {
    let Some((url, names)) = fresh().await else { return };
    run(&url, names.render("create table {schema}.effects (event text)")).await;
    let inbox = Inbox::named(&names);
    let mut one = AsyncPgConnection::establish(&url).await.unwrap();
    let mut two = AsyncPgConnection::establish(&url).await.unwrap();
    for (number, commits) in [(1, true), (2, false)] {
        let event = incoming(number);
        let first = one.transaction(async |tx| {
            let accepted = inbox.accept_async(tx, &event, &billing()).await?;
            assert_eq!(accepted, Accepted::FirstTime);
            let until = async {
                until_one_waits(&url, &names).await;
                if commits { Ok(()) } else { Err(Failed("the application".to_owned())) }
            };
            until.await
        });
        // The second begins when the first has its marker: it is asked again until it has.
        let second = async {
            let marked = names.render(MARKED);
            while count(&url, &marked).await == 0 {
                // waits: a server tells nobody who has written what
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            act(&mut two, &names, &event, true).await
        };
        let (ended, said) = tokio::join!(first, second);
        assert_eq!(ended.is_ok(), commits, "{ended:?}");
        assert_eq!(said, if commits { Accepted::Duplicate } else { Accepted::FirstTime });
    }
    let third = incoming(3);
    let ended: Result<(), Failed> = one
        .transaction(async |tx| {
            assert_eq!(inbox.accept_async(tx, &third, &billing()).await?, Accepted::FirstTime);
            let late: Result<(), Failed> = two
                .transaction(async |tx| {
                    tx.batch_execute("set local lock_timeout = '50ms'").await?;
                    let refused = inbox.accept_async(tx, &third, &billing()).await.unwrap_err();
                    assert_eq!(refused.kind(), ErrorKind::Busy, "{refused}");
                    Err(refused.into())
                })
                .await;
            assert!(late.is_err());
            Ok(())
        })
        .await;
    ended.unwrap();
    run(&url, names.render("drop schema {schema} cascade")).await;
}

/// Somebody holds the inbox for writing.
const MARKED: &str = "select count(*) from pg_locks
    where relation = '{inbox}'::regclass and mode = 'RowExclusiveLock'";
