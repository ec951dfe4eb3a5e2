//! Tables are made once, and what is wrong with them is said.

use std::collections::HashSet;

use postrider_core::ErrorKind;
use postrider_core::operate::Level;
use postrider_dynamodb::{Connection, Names, Settings, Setup, findings, init};
use serde_json::json;

use crate::fresh::Fresh;
use crate::proxy::{self, Rule, Then, aside};

#[tokio::test]
async fn tables_are_made_once_and_keep_their_partitions() {
    let Some(fresh) = Fresh::new(4).await else { return };
    init(&fresh.connection, &Setup::default()).await.expect("making them again changes nothing");
    let other = Setup { partitions: Some(5), ..Setup::default() };
    let refused = init(&fresh.connection, &other).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Config);
    assert!(refused.to_string().contains("partitions=4"), "{refused}");
    let found = findings(&fresh.connection, true).await.unwrap();
    assert!(found.iter().all(|finding| finding.level == Level::Good), "{found:?}");
    assert_eq!(found.len(), 3, "each table is as it should be: {found:?}");
}

#[tokio::test]
async fn an_absent_table_is_named_with_what_to_do() {
    let Some(fresh) = Fresh::empty() else { return };
    let error = findings(&fresh.connection, true).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::SchemaMissing);
    assert!(error.to_string().contains(&fresh.settings.names.outbox), "{error}");
    assert!(error.to_string().contains("postrider init"), "{error}");
}

#[tokio::test]
async fn an_endpoint_that_nobody_listens_at_is_told_as_such() {
    let nowhere = Settings::at("http://127.0.0.1:9", Names::default());
    let error = findings(&Connection::new(nowhere).unwrap(), true).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}

/// Where whoever made the tables was interrupted before the time to live, the next `init` switches it on,
/// and says so; the one after that has nothing to do.
#[tokio::test]
async fn an_interrupted_init_is_completed_by_the_next() {
    let Some(fresh) = Fresh::empty() else { return };
    let upstream = fresh.settings.endpoint.clone().unwrap();
    let rule = |operation: &str, _: &mut serde_json::Value| match operation {
        "UpdateTimeToLive" => {
            Then::Answer(400, json!({ "__type": "x#AccessDeniedException", "Message": "no" }))
        }
        _ => Then::Forward,
    };
    let mut settings = fresh.settings.clone();
    settings.endpoint = Some(proxy::start(&upstream, Box::new(rule), Box::new(|_, _, _| {})).await);
    let setup = Setup { partitions: Some(2), ..Setup::default() };
    let interrupted = init(&Connection::new(settings).unwrap(), &setup).await.unwrap_err();
    assert_eq!(interrupted.kind(), ErrorKind::Unauthorized, "{interrupted}");
    let names = &fresh.settings.names;
    let made = init(&fresh.connection, &setup).await.unwrap();
    let completed = format!("the time to live of {}", names.outbox);
    assert_eq!(made, [completed.as_str(), &names.store, &names.inbox]);
    let found = findings(&fresh.connection, true).await.unwrap();
    assert!(found.iter().all(|finding| finding.level == Level::Good), "{found:?}");
    assert_eq!(init(&fresh.connection, &setup).await.unwrap(), [""; 0]);
}

/// A connection of `init` through a rule and an edit of answers.
async fn through(fresh: &Fresh, rule: Rule, edit: proxy::Edit) -> Connection {
    let mut settings = fresh.settings.clone();
    settings.endpoint =
        Some(proxy::start(&fresh.settings.endpoint.clone().unwrap(), rule, edit).await);
    // What is done aside takes as long as it takes.
    settings.call_time_max = std::time::Duration::from_secs(300);
    Connection::new(settings).unwrap()
}

/// The service shows a new table late, and as one that is being made; and refuses its changes meanwhile. All of it is
/// waited for.
#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_is_not_ready_yet_is_waited_for() {
    let Some(fresh) = Fresh::empty() else { return };
    let (mut made, mut refused) = (HashSet::new(), HashSet::new());
    let rule = move |operation: &str, body: &mut serde_json::Value| {
        let table = body["TableName"].as_str().unwrap_or_default().to_owned();
        let says = |kind: &str| Then::Answer(400, json!({ "__type": kind, "message": "x" }));
        match operation {
            "CreateTable" => _ = made.insert(table),
            // Once each, directly after it was made.
            "DescribeTable" if made.remove(&table) => return says("ResourceNotFoundException"),
            "UpdateTimeToLive" if refused.insert(table) => return says("ResourceInUseException"),
            _ => {}
        }
        Then::Forward
    };
    let mut shown = HashSet::new();
    let edit = move |operation: &str, asked: &serde_json::Value, told: &mut serde_json::Value| {
        let table = asked["TableName"].as_str().unwrap_or_default().to_owned();
        if operation == "DescribeTable" && told["Table"].is_object() && shown.insert(table) {
            told["Table"]["TableStatus"] = json!("CREATING");
        }
    };
    let connection = through(&fresh, Box::new(rule), Box::new(edit)).await;
    let made = init(&connection, &Setup::default()).await.unwrap();
    let names = &fresh.settings.names;
    assert_eq!(made, [&*names.outbox, &names.store, &names.inbox]);
    let found = findings(&fresh.connection, true).await.unwrap();
    assert!(found.iter().all(|finding| finding.level == Level::Good), "{found:?}");
}

/// Two that make the same store at once, one of them faster at each table: both end well, and the number of partitions is
/// that of the one that wrote it.
#[tokio::test(flavor = "multi_thread")]
async fn two_that_make_the_same_tables_agree() {
    let Some(fresh) = Fresh::empty() else { return };
    let (mut first, settings) = (true, fresh.settings.clone());
    let rule = move |operation: &str, _: &mut serde_json::Value| {
        if operation == "CreateTable" && std::mem::take(&mut first) {
            let settings = settings.clone();
            aside(move || async move {
                let setup = Setup { partitions: Some(3), ..Setup::default() };
                init(&Connection::new(settings).unwrap(), &setup).await.unwrap();
            });
        }
        Then::Forward
    };
    let connection = through(&fresh, Box::new(rule), Box::new(|_, _, _| {})).await;
    let made = init(&connection, &Setup::default()).await.unwrap();
    assert_eq!(made, [""; 0], "the other one made them");
    let other = Setup { partitions: Some(4), ..Setup::default() };
    let refused = init(&connection, &other).await.unwrap_err();
    assert!(refused.to_string().contains("partitions=3"), "{refused}");
}

/// A table that is being deleted is not waited for, and nothing is taken for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_is_being_deleted_is_said() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let edit = |operation: &str, _: &serde_json::Value, told: &mut serde_json::Value| {
        if operation == "DescribeTable" {
            told["Table"]["TableStatus"] = json!("DELETING");
        }
    };
    let connection = through(&fresh, Box::new(|_, _| Then::Forward), Box::new(edit)).await;
    let error = init(&connection, &Setup::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert!(error.to_string().contains("is being deleted"), "{error}");
}
