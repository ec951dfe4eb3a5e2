//! The commands that are printed make what `init` makes.

use postrider_core::OutboxSource as _;
use postrider_core::operate::Level;
use postrider_dynamodb::{DynamoStore, Names, Settings, Setup, findings, init, recipe};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::fresh::Fresh;

/// A line of the recipe as a shell takes it apart.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quoted) = (Vec::new(), String::new(), false);
    let mut rest = line.chars();
    while let Some(letter) = rest.next() {
        match letter {
            '\'' => quoted = !quoted,
            '\\' if !quoted => word.extend(rest.next()),
            ' ' if !quoted => words.push(std::mem::take(&mut word)),
            _ => word.push(letter),
        }
    }
    words.push(word);
    words
}

fn value<'a>(words: &'a [String], option: &str) -> &'a str {
    let at = words.iter().position(|word| word == option).expect(option);
    &words[at + 1]
}

/// What the `aws` program would send.
fn request(words: &[String]) -> Option<(&'static str, Value)> {
    let read = |option: &str| serde_json::from_str::<Value>(value(words, option)).unwrap();
    let table = || value(words, "--table-name");
    let has = |command: &str| words.iter().any(|word| word == command);
    if has("create-table") {
        Some(("CreateTable", read("--cli-input-json")))
    } else if has("update-table") {
        Some(("UpdateTable", read("--cli-input-json")))
    } else if has("update-time-to-live") {
        let live = read("--time-to-live-specification");
        Some(("UpdateTimeToLive", json!({ "TableName": table(), "TimeToLiveSpecification": live })))
    } else if has("put-item") {
        let condition = value(words, "--condition-expression");
        Some((
            "PutItem",
            json!({
                "TableName": table(), "Item": read("--item"), "ConditionExpression": condition,
            }),
        ))
    } else {
        assert!(has("wait"), "{words:?}");
        None
    }
}

async fn send(endpoint: &str, operation: &str, body: &Value) {
    let host = endpoint.trim_start_matches("http://");
    let body = body.to_string();
    let text = format!(
        "POST / HTTP/1.0\r\nHost: {host}\r\nX-Amz-Target: DynamoDB_20120810.{operation}\r\n\
         Content-Type: application/x-amz-json-1.0\r\nContent-Length: {}\r\nAuthorization: \
         AWS4-HMAC-SHA256 Credential=local/20260101/us-east-1/dynamodb/aws4_request, \
         SignedHeaders=host, Signature=x\r\nX-Amz-Date: 20260101T000000Z\r\n\r\n{body}",
        body.len()
    );
    let mut server = tokio::net::TcpStream::connect(host).await.unwrap();
    server.write_all(text.as_bytes()).await.unwrap();
    let mut answer = String::new();
    server.read_to_string(&mut answer).await.unwrap();
    assert!(answer.split_whitespace().nth(1) == Some("200"), "{operation} {body}: {answer}");
}

/// Sends what the commands say; what was sent.
async fn follow(settings: &Settings, setup: &Setup) -> Vec<&'static str> {
    let text = recipe(settings, setup).unwrap();
    let endpoint = settings.endpoint.clone().unwrap();
    let mut sent = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let words = words(line);
        assert_eq!(words[..2], ["aws", "dynamodb"], "{line}");
        assert_eq!(
            (value(&words, "--region"), value(&words, "--endpoint-url")),
            ("us-east-1", &*endpoint)
        );
        if let Some((operation, body)) = request(&words) {
            send(&endpoint, operation, &body).await;
            sent.push(operation);
        }
    }
    sent
}

/// A table of the application's is there: it is not made, and gets what it has not. The emulator fails now and then
/// when it adds two indexes at once, so they are read here, and `init` adds them.
#[test]
fn the_commands_make_no_table_that_is_the_applications() {
    let names = Names::with_prefix("shop-").in_table("Shop", "PK", "SK");
    let text = recipe(&Settings::new("eu-central-1", names), &Setup::default()).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let (mut made, mut changed) = (Vec::new(), Vec::new());
    for (operation, body) in lines.filter_map(|line| request(&words(line))) {
        match operation {
            "CreateTable" => made.push(body["TableName"].clone()),
            "UpdateTable" => changed.push(body),
            "UpdateTimeToLive" if body["TableName"] == "Shop" => {
                let live = &body["TimeToLiveSpecification"];
                assert_eq!(live["AttributeName"], "pr_expires_at");
            }
            _ => {}
        }
    }
    assert_eq!(made, ["shop-store", "shop-inbox"]);
    assert_eq!(changed.len(), 2, "{changed:?}");
    assert!(changed.iter().all(|body| body["TableName"] == "Shop"), "{changed:?}");
    assert_eq!(changed[0]["StreamSpecification"]["StreamViewType"], "NEW_IMAGE");
    let index = &changed[1]["GlobalSecondaryIndexUpdates"][0]["Create"];
    assert_eq!(index["IndexName"], "postrider-pending");
    assert_eq!(index["KeySchema"][0]["AttributeName"], "pr_shard");
}

#[tokio::test]
async fn the_commands_make_what_init_makes() {
    let Some(fresh) = Fresh::empty() else { return };
    let setup = Setup { partitions: Some(3), source: Some("/it's".to_owned()) };
    let sent = follow(&fresh.settings, &setup).await;
    assert_eq!(sent.len(), 7, "{sent:?}");
    let found = findings(&fresh.connection, true).await.unwrap();
    assert!(found.iter().all(|finding| finding.level == Level::Good), "{found:?}");
    assert_eq!(init(&fresh.connection, &setup).await.unwrap(), Vec::<String>::new());
    let facts = DynamoStore::new(fresh.connection.clone()).open().await.unwrap();
    assert_eq!(facts.partitions, 3);
}

/// R055: who makes the tables by Terraform alone has the same ones: each table's keys, index, stream, time to live, and what the
/// store is.
#[test]
fn terraform_makes_what_init_makes() {
    let terraform = include_str!("../../../deploy/aws/tables.tf");
    let terraform: Vec<&str> = terraform.split_whitespace().collect();
    let terraform = terraform.join(" ");
    let settings = Settings::new("eu-central-1", Names::default());
    let text = recipe(&settings, &Setup::default()).unwrap();
    let mut missing = Vec::new();
    let mut want = |what: String| {
        if !terraform.contains(&what) {
            missing.push(what);
        }
    };
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let words = words(line);
        match request(&words) {
            Some(("CreateTable", table)) => {
                for attribute in table["AttributeDefinitions"].as_array().unwrap() {
                    let (name, kind) = (&attribute["AttributeName"], &attribute["AttributeType"]);
                    want(format!("attribute {{ name = {name} type = {kind} }}"));
                }
                for index in table["GlobalSecondaryIndexes"].as_array().into_iter().flatten() {
                    let (name, keys) = (&index["IndexName"], &index["KeySchema"]);
                    let (hash, range) = (&keys[0]["AttributeName"], &keys[1]["AttributeName"]);
                    let projection = &index["Projection"]["ProjectionType"];
                    want(format!(
                        "name = {name} hash_key = {hash} range_key = {range} projection_type = {projection}"
                    ));
                }
                if let Some(kind) = table["StreamSpecification"]["StreamViewType"].as_str() {
                    want(format!("stream_view_type = \"{kind}\""));
                }
            }
            Some(("UpdateTimeToLive", asked)) => {
                let name = &asked["TimeToLiveSpecification"]["AttributeName"];
                want(format!("ttl {{ attribute_name = {name} enabled = true }}"));
            }
            Some(("PutItem", put)) => {
                for name in put["Item"].as_object().unwrap().keys() {
                    want(format!(" {name} = {{ "));
                }
                let schema = &put["Item"]["schema"]["N"];
                want(format!("schema = {{ N = {schema} }}"));
            }
            _ => {}
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}
