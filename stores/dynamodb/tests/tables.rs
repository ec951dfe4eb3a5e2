//! Tables are made once, and what is wrong with them is said.

use postrider_core::ErrorKind;
use postrider_core::operate::Level;
use postrider_dynamodb::{Connection, Names, Settings, Setup, findings, init};
use serde_json::json;

use crate::fresh::Fresh;
use crate::proxy::{self, Then};

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
