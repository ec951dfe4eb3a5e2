//! The marker in a transaction of the driver.

use postrider_core::inbox::Accepted;
use postrider_core::{Code, ErrorKind, Event, Payload};
use postrider_postgres_sqlx::Inbox;
use sqlx::{AssertSqlSafe, Connection, PgConnection, Postgres, Transaction};

use crate::{billing, fresh, incoming, run, waiting};

/// R004, R075, INV-4: what is rolled back was not done, what is committed is a duplicate from then on, also beside
/// another handler's; another payload under the id is refused, and an event without a source too.
#[tokio::test]
async fn the_marker_commits_with_the_change() {
    let Some((url, names)) = fresh().await else { return };
    run(&url, names.render("create table {schema}.effects (event text)")).await;
    let (inbox, billing) = (Inbox::named(&names), billing());
    let act = async |tx: &mut Transaction<'_, Postgres>, event: &Event| {
        let accepted = inbox.accept(tx, event, &billing).await?;
        if accepted == Accepted::FirstTime {
            let effect = names.render("insert into {schema}.effects values ($1)");
            let effect = sqlx::query(AssertSqlSafe(effect)).bind(event.id.to_string());
            effect.execute(&mut **tx).await.unwrap();
        }
        Ok::<_, postrider_core::Error>(accepted)
    };
    let mut connection = PgConnection::connect(&url).await.unwrap();
    for (commits, expected) in [
        (false, Accepted::FirstTime),
        (true, Accepted::FirstTime),
        (true, Accepted::Duplicate),
        (false, Accepted::Duplicate),
    ] {
        let mut tx = connection.begin().await.unwrap();
        assert_eq!(act(&mut tx, &incoming(1)).await.unwrap(), expected);
        match commits {
            true => tx.commit().await.unwrap(),
            false => tx.rollback().await.unwrap(),
        }
    }
    let mut tx = connection.begin().await.unwrap();
    let mail = "mail".parse().unwrap();
    assert_eq!(inbox.accept(&mut tx, &incoming(1), &mail).await.unwrap(), Accepted::FirstTime);
    let mut forged = incoming(1);
    forged.payload = Payload::Bytes("other".into());
    let refused = act(&mut tx, &forged).await.unwrap_err();
    assert_eq!(
        (refused.kind(), refused.operator_code()),
        (ErrorKind::Conflict, Some(Code::PayloadMismatch)),
        "{refused}"
    );
    let nameless = Event::new(incoming(2).id, "order", "42", "order.placed");
    assert_eq!(act(&mut tx, &nameless).await.unwrap_err().kind(), ErrorKind::Invalid);
    tx.commit().await.unwrap();
    let effects = names.render("select count(*) from {schema}.effects");
    let effects: i64 =
        sqlx::query_scalar(AssertSqlSafe(effects)).fetch_one(&mut connection).await.unwrap();
    assert_eq!(effects, 1);
    run(&url, names.render("drop schema {schema} cascade")).await;
}

/// R004, R078: the second of two waits for the first: a commit makes it a duplicate, a rollback the first time,
/// and a wait that is too long is `Busy`.
#[tokio::test]
async fn the_second_of_two_waits_for_the_first() {
    let Some((url, names)) = fresh().await else { return };
    let (inbox, billing) = (Inbox::named(&names), billing());
    let mut one = PgConnection::connect(&url).await.unwrap();
    let mut two = PgConnection::connect(&url).await.unwrap();
    for (number, commits) in [(1, true), (2, false)] {
        let event = incoming(number);
        let mut first = one.begin().await.unwrap();
        let mut second = two.begin().await.unwrap();
        assert_eq!(inbox.accept(&mut first, &event, &billing).await.unwrap(), Accepted::FirstTime);
        let (answer, ()) = tokio::join!(inbox.accept(&mut second, &event, &billing), async {
            until_one_waits(&url, &waiting(names.schema())).await;
            match commits {
                true => first.commit().await.unwrap(),
                false => first.rollback().await.unwrap(),
            }
        });
        let expected = if commits { Accepted::Duplicate } else { Accepted::FirstTime };
        assert_eq!(answer.unwrap(), expected);
        second.commit().await.unwrap();
    }
    let mut first = one.begin().await.unwrap();
    let mut second = two.begin().await.unwrap();
    sqlx::query("set local lock_timeout = '50ms'").execute(&mut *second).await.unwrap();
    let third = incoming(3);
    assert_eq!(inbox.accept(&mut first, &third, &billing).await.unwrap(), Accepted::FirstTime);
    let refused = inbox.accept(&mut second, &third, &billing).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Busy, "{refused}");
    second.rollback().await.unwrap();
    first.rollback().await.unwrap();
    run(&url, names.render("drop schema {schema} cascade")).await;
}

async fn until_one_waits(url: &str, waiting: &str) {
    let mut connection = PgConnection::connect(url).await.unwrap();
    let count = || sqlx::query_scalar(AssertSqlSafe(waiting));
    while count().fetch_one(&mut connection).await.unwrap_or(0_i64) == 0 {
        tokio::task::yield_now().await;
    }
}
