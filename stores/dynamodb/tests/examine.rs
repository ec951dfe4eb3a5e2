//! What a person is told of tables before something goes wrong with them, and nothing is written for it.

use std::sync::{Arc, Mutex};

use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, GlobalSecondaryIndexUpdate, KeySchemaElement, KeyType,
    ProvisionedThroughput, ScalarAttributeType, StreamSpecification, StreamViewType,
    TimeToLiveSpecification,
};
use postrider_core::operate::{Finding, Level};
use postrider_dynamodb::{Connection, findings};
use serde_json::json;

use crate::fresh::Fresh;
use crate::proxy::{self, Then};

/// What is wrong, as a person reads it.
fn wrong(found: &[Finding]) -> Vec<String> {
    let bad = found.iter().filter(|finding| finding.level != Level::Good);
    bad.map(|finding| format!("{:?} {}: {}", finding.level, finding.subject, finding.message))
        .collect()
}

/// R054: a stream of keys alone, an index that is gone, and a table that nothing is removed from are found.
#[tokio::test]
async fn a_stream_an_index_and_a_time_to_live_that_are_wrong_are_found() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let (client, names) = (fresh.connection.tables().await, fresh.connection.names());
    let stream = |on: bool| {
        let spec = StreamSpecification::builder().stream_enabled(on);
        let spec = if on { spec.stream_view_type(StreamViewType::KeysOnly) } else { spec };
        spec.build().unwrap()
    };
    for on in [false, true] {
        let update = client.update_table().table_name(&names.outbox);
        update.stream_specification(stream(on)).send().await.unwrap();
    }
    let gone = aws_sdk_dynamodb::types::DeleteGlobalSecondaryIndexAction::builder()
        .index_name(&names.index)
        .build()
        .unwrap();
    let gone = GlobalSecondaryIndexUpdate::builder().delete(gone).build();
    let update = client.update_table().table_name(&names.outbox);
    update.global_secondary_index_updates(gone).send().await.unwrap();
    let off = TimeToLiveSpecification::builder()
        .enabled(false)
        .attribute_name(&names.ttl)
        .build()
        .unwrap();
    let update = client.update_time_to_live().table_name(&names.outbox);
    update.time_to_live_specification(off).send().await.unwrap();
    let polled = findings(&fresh.connection, false).await.unwrap();
    let told = polled.iter().find(|one| one.message.contains("KEYS_ONLY")).expect("it is told");
    assert_eq!(told.level, Level::Good, "no relay reads it: {told:?}");
    let found = wrong(&findings(&fresh.connection, true).await.unwrap());
    assert!(found.iter().any(|one| one.starts_with("Critical") && one.contains("KEYS_ONLY")));
    for words in ["the stream carries KEYS_ONLY", "there is no index", "no time to live"] {
        assert!(found.iter().any(|one| one.contains(words)), "{words}: {found:?}");
    }
}

/// What is absent beside the table with the events is named, each by itself.
#[tokio::test]
async fn a_table_that_is_absent_is_a_finding() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let (client, names) = (fresh.connection.tables().await, fresh.connection.names());
    client.delete_table().table_name(&names.inbox).send().await.unwrap();
    let found = wrong(&findings(&fresh.connection, true).await.unwrap());
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains(&names.inbox), "{found:?}");
}

/// Each action that is denied is named, and asking for it wrote nothing. A throttled table is found too.
#[tokio::test]
async fn each_permission_that_is_missing_is_named() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let upstream = fresh.settings.endpoint.clone().unwrap();
    let denied =
        ["GetItem", "BatchGetItem", "UpdateItem", "PutItem", "DeleteItem", "Query", "GetRecords"];
    // A check has no call of its own.
    let refuses =
        move |operation: &str| denied.contains(&operation) || operation == "TransactWriteItems";
    let rule = move |operation: &str, _: &mut serde_json::Value| match refuses(operation) {
        true => Then::Answer(
            400,
            json!({
                "__type": "com.amazon.coral.service#AccessDeniedException",
                "Message": format!(
                    "User: arn:aws:sts::1:x is not authorized to perform: dynamodb:{} on resource: y",
                    // What stands in it is what is refused.
                    operation.replace("TransactWriteItems", "ConditionCheckItem")
                ),
            }),
        ),
        false => Then::Forward,
    };
    let mut settings = fresh.settings.clone();
    settings.endpoint = Some(proxy::start(&upstream, Box::new(rule), Box::new(|_, _, _| {})).await);
    let found = wrong(&findings(&Connection::new(settings).unwrap(), true).await.unwrap());
    let recipe = include_str!("../../../deploy/aws/policies.tf");
    let relay =
        recipe.split("data \"aws_iam_policy_document\"").find(|it| it.starts_with(" \"relay\""));
    for action in denied.into_iter().chain(["ConditionCheckItem"]) {
        let allowed = relay.unwrap().contains(&format!("\"dynamodb:{action}\""));
        assert!(allowed, "the recipe's relay may not {action}");
        let words = format!("the permission dynamodb:{action} is missing");
        assert!(found.iter().any(|one| one.contains(&words)), "{words}: {found:?}");
    }

    let rule = |operation: &str, _: &mut serde_json::Value| match operation {
        "Query" => {
            Then::Answer(400, json!({ "__type": "x#ThrottlingException", "message": "slow" }))
        }
        _ => Then::Forward,
    };
    let mut settings = fresh.settings.clone();
    settings.endpoint = Some(proxy::start(&upstream, Box::new(rule), Box::new(|_, _, _| {})).await);
    let found = wrong(&findings(&Connection::new(settings).unwrap(), true).await.unwrap());
    assert!(found.iter().any(|one| one.contains("the table is throttled")), "{found:?}");
}

/// A table that may not be described, and a time to live that may not be, are findings; what else was found
/// is still told.
#[tokio::test]
async fn what_may_not_be_described_hides_nothing_else() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let (upstream, names) =
        (fresh.settings.endpoint.clone().unwrap(), fresh.settings.names.clone());
    let rule = move |operation: &str, asked: &mut serde_json::Value| {
        let denied = match operation {
            "DescribeTable" => asked["TableName"] == *names.outbox,
            "DescribeTimeToLive" => asked["TableName"] == *names.store,
            _ => false,
        };
        if !denied {
            return Then::Forward;
        }
        Then::Answer(400, json!({ "__type": "x#AccessDeniedException", "Message": "no" }))
    };
    let mut settings = fresh.settings.clone();
    settings.endpoint = Some(proxy::start(&upstream, Box::new(rule), Box::new(|_, _, _| {})).await);
    let found = findings(&Connection::new(settings).unwrap(), true).await.unwrap();
    let names = &fresh.settings.names;
    for (table, level) in [
        (&names.outbox, Level::Critical),
        (&names.store, Level::Critical),
        (&names.inbox, Level::Good),
    ] {
        let subject = format!("table {table}");
        let of_table = found.iter().filter(|finding| finding.subject == subject);
        let levels: Vec<Level> = of_table.map(|finding| finding.level).collect();
        assert_eq!(levels, [level], "{table}: {found:?}");
    }
}

/// Looking writes nothing: every write has a condition, and none of them holds.
#[tokio::test]
async fn nothing_is_written_for_it() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let upstream = fresh.settings.endpoint.clone().unwrap();
    let writes = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&writes);
    let edit = move |operation: &str, asked: &serde_json::Value, answer: &mut serde_json::Value| {
        if ["UpdateItem", "PutItem", "DeleteItem"].contains(&operation) {
            let refused = answer["__type"].as_str().unwrap_or_default().to_owned();
            seen.lock().unwrap().push((asked["ConditionExpression"].is_string(), refused));
        }
    };
    let mut settings = fresh.settings.clone();
    settings.endpoint =
        Some(proxy::start(&upstream, Box::new(|_, _| Then::Forward), Box::new(edit)).await);
    findings(&Connection::new(settings).unwrap(), true).await.unwrap();
    let writes = writes.lock().unwrap();
    assert_eq!(writes.len(), 5, "{writes:?}");
    for (conditional, refused) in &*writes {
        assert!(*conditional && refused.contains("ConditionalCheckFailed"), "{writes:?}");
    }
}

/// A capacity that is set is told of, because beyond it the table throttles.
#[tokio::test]
async fn a_capacity_that_is_set_is_told_of() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let (client, names) = (fresh.connection.tables().await, fresh.connection.names());
    client.delete_table().table_name(&names.inbox).send().await.unwrap();
    let key = |name: &str, kind| {
        KeySchemaElement::builder().attribute_name(name).key_type(kind).build().unwrap()
    };
    let text = |name: &str| {
        AttributeDefinition::builder()
            .attribute_name(name)
            .attribute_type(ScalarAttributeType::S)
            .build()
            .unwrap()
    };
    let few = ProvisionedThroughput::builder().read_capacity_units(2).write_capacity_units(3);
    client
        .create_table()
        .table_name(&names.inbox)
        .billing_mode(BillingMode::Provisioned)
        .provisioned_throughput(few.build().unwrap())
        .set_attribute_definitions(Some(vec![text("pk"), text("sk")]))
        .set_key_schema(Some(vec![key("pk", KeyType::Hash), key("sk", KeyType::Range)]))
        .send()
        .await
        .unwrap();
    let found = wrong(&findings(&fresh.connection, true).await.unwrap());
    assert!(found.iter().any(|one| one.contains("2 reads and 3 writes a second")), "{found:?}");
}

/// An index that carries more than its keys works, and costs more: that is told. One of keys alone is not.
#[tokio::test]
async fn an_index_that_carries_more_than_its_keys_is_told_of() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let sound = wrong(&findings(&fresh.connection, true).await.unwrap());
    assert!(!sound.iter().any(|one| one.contains("the index carries")), "the control: {sound:?}");
    let upstream = fresh.settings.endpoint.clone().unwrap();
    let edit = |operation: &str, _: &serde_json::Value, answer: &mut serde_json::Value| {
        if operation == "DescribeTable" && answer["Table"]["GlobalSecondaryIndexes"].is_array() {
            let index = &mut answer["Table"]["GlobalSecondaryIndexes"][0];
            assert_eq!(index["Projection"]["ProjectionType"], "KEYS_ONLY");
            index["Projection"]["ProjectionType"] = json!("ALL");
        }
    };
    let mut settings = fresh.settings.clone();
    settings.endpoint =
        Some(proxy::start(&upstream, Box::new(|_, _| Then::Forward), Box::new(edit)).await);
    let found = wrong(&findings(&Connection::new(settings).unwrap(), true).await.unwrap());
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].starts_with("Warning") && found[0].contains("the index carries ALL"),
        "{found:?}"
    );
}
