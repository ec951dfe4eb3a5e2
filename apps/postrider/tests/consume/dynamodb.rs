//! A sidecar whose inbox is on DynamoDB.

use postrider_core::EventId;
use postrider_dynamodb::{Connection, Names, Settings, Setup, init, remove};
use postrider_testkit::services;

use crate::endpoint::Endpoint;
use crate::sidecar::Sidecar;
use crate::stage::{Stage, order};

/// R077, R078: copies are acted on once, also by a sidecar that comes later. It needs the inbox's table alone: the
/// others are not even there.
#[tokio::test]
async fn an_inbox_on_dynamodb_absorbs_copies() {
    let server = match services::url("ddb") {
        Ok(url) => url,
        Err(reason) => {
            println!("skipped: an inbox on DynamoDB: {reason}");
            assert!(std::env::var_os("CI").is_none(), "{reason}");
            return;
        }
    };
    let id = EventId::mint().to_string().replace('-', "");
    let prefix = format!("side{}-", &id[12..]);
    let settings = Settings::at(&server, Names::with_prefix(&prefix));
    let connection = Connection::new(settings).unwrap();
    init(&connection, &Setup::default()).await.unwrap();
    for table in [&connection.names().outbox, &connection.names().store] {
        // The answer to a first try may be lost on a busy machine.
        _ = connection.tables().await.delete_table().table_name(table).send().await;
    }
    let stage = Stage::new();
    let endpoint = Endpoint::willing().await;
    let inbox = format!("dynamodb://?prefix={prefix}&endpoint={server}");
    // No call of a busy server's takes so long as the lease.
    let once = ["--once", "--idle", "2s", "--lease", "30s"];
    let (first, second) = (order("1"), order("2"));
    stage.publish(&first, 3).await;
    for _ in 0..2 {
        let ended = Sidecar::start(stage.command_at(&inbox, &endpoint.url(), &once)).ended().await;
        assert_eq!(ended.code, Some(0), "{}", ended.text);
        stage.publish(&first, 1).await;
        stage.publish(&second, 1).await;
    }
    assert_eq!(endpoint.calls().len(), 2, "each was acted on once");
    remove(&connection).await.unwrap();
    let ended = Sidecar::start(stage.command_at(&inbox, &endpoint.url(), &once)).ended().await;
    assert_ne!(ended.code, Some(0));
    assert!(ended.text.contains("PR-1001"), "the inbox is gone: {}", ended.text);
}
