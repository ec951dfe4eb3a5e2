//! Tables are made once, and what is wrong with them is said.

use postrider_core::ErrorKind;
use postrider_core::operate::Level;
use postrider_dynamodb::{Connection, Names, Settings, Setup, findings, init};

use crate::fresh::Fresh;

#[tokio::test]
async fn tables_are_made_once_and_keep_their_partitions() {
    let Some(fresh) = Fresh::new(4).await else { return };
    init(&fresh.connection, &Setup::default()).await.expect("making them again changes nothing");
    let other = Setup { partitions: Some(5), ..Setup::default() };
    let refused = init(&fresh.connection, &other).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Config);
    assert!(refused.to_string().contains("partitions=4"), "{refused}");
    let found = findings(&fresh.connection).await.unwrap();
    assert!(found.iter().all(|finding| finding.level == Level::Good), "{found:?}");
    assert_eq!(found.len(), 3, "each table is as it should be: {found:?}");
}

#[tokio::test]
async fn an_absent_table_is_named_with_what_to_do() {
    let Some(fresh) = Fresh::empty() else { return };
    let error = findings(&fresh.connection).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::SchemaMissing);
    assert!(error.to_string().contains(&fresh.settings.names.outbox), "{error}");
    assert!(error.to_string().contains("postrider init"), "{error}");
}

#[tokio::test]
async fn an_endpoint_that_nobody_listens_at_is_told_as_such() {
    let nowhere = Settings::at("http://127.0.0.1:9", Names::default());
    let error = findings(&Connection::new(nowhere).unwrap()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}
