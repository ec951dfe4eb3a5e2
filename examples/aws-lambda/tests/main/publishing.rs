//! What the stream and the schedule invoke.

use std::time::Duration;

use serde_json::{Value, json};

use crate::cloud::{Cloud, LONG, failures, queued, sequence, stream};
use crate::service::Function;

/// The schedule's invocation, as it was recorded.
fn tick() -> Value {
    serde_json::from_str(include_str!("../events/schedule.json")).unwrap()
}

/// R044, R048: the records of an invocation are published to the bus as events, and marked, and the answer names none of
/// them. What comes out at the bus's queue is what the third function takes.
#[tokio::test]
async fn every_record_is_published_and_marked() {
    let Some(cloud) = Cloud::make().await else { return };
    let records = [cloud.order("1").await, cloud.order("2").await, cloud.order("3").await];
    assert_eq!(cloud.pending().await, 3);
    let mut publish = cloud.publish().await;
    let answer = publish.invoke(stream(&records), LONG).await.unwrap();
    assert_eq!(answer, json!({"batchItemFailures": []}), "{}", publish.end());
    assert_eq!(cloud.pending().await, 0);
    // Two rules: each twice.
    let queued = queued(&cloud.messages(6).await).to_string();
    for order in ["1", "2", "3"] {
        assert_eq!(queued.matches(&format!(r#"\"subject\":\"{order}\""#)).count(), 2, "{queued}");
    }
    // The service may send a batch again: everything in it is settled.
    let mut publish = cloud.publish().await;
    let answer = publish.invoke(stream(&records), LONG).await.unwrap();
    assert!(failures(&answer).is_empty());
    assert!(publish.end().contains(r#""delivered":0"#));
    cloud.remove().await;
}

/// A record that cannot be published is named, so that the service sends it again, with all behind it; and nothing is
/// lost: with the bus back, the same batch is published.
#[tokio::test]
async fn a_record_that_cannot_be_published_is_named() {
    let Some(cloud) = Cloud::make().await else { return };
    let records = [cloud.order("1").await, cloud.order("2").await];
    let mut away = cloud.environment();
    away.insert("AWS_ENDPOINT_URL_EVENTBRIDGE", "http://127.0.0.1:1".to_owned());
    let mut publish = Function::start(env!("CARGO_BIN_EXE_publish"), &away).await;
    let answer = publish.invoke(stream(&records), Duration::from_secs(9)).await.unwrap();
    assert_eq!(failures(&answer), [sequence(0)], "{}", publish.end());
    assert_eq!(cloud.pending().await, 2);
    let mut publish = cloud.publish().await;
    let answer = publish.invoke(stream(&records), LONG).await.unwrap();
    assert!(failures(&answer).is_empty(), "{}", publish.end());
    assert_eq!(cloud.pending().await, 0);
    cloud.remove().await;
}

/// What is no batch of a stream is an error of the invocation, which the service sends again, and not a success.
#[tokio::test]
async fn what_is_no_batch_is_an_error_of_the_invocation() {
    let Some(cloud) = Cloud::make().await else { return };
    let mut publish = cloud.publish().await;
    let error = publish.invoke(json!({"Records": [{"s3": {}}]}), LONG).await.unwrap_err();
    assert!(error["errorMessage"].as_str().unwrap().contains("the batch comes again"), "{error}");
    let error = publish.invoke(stream(&[]), Duration::from_secs(1)).await.unwrap_err();
    assert!(error["errorMessage"].as_str().unwrap().contains("too little"), "{error}");
    // The same process goes on.
    let answer = publish.invoke(stream(&[cloud.order("1").await]), LONG).await.unwrap();
    assert!(failures(&answer).is_empty(), "{}", publish.end());
    assert_eq!(cloud.pending().await, 0);
    cloud.remove().await;
}

/// A sweep that does not get done says so in its answer, and in the line that the alarm of deploy/aws reads.
#[tokio::test]
async fn a_sweep_that_does_not_get_done_is_seen_by_the_alarm() {
    let Some(cloud) = Cloud::make().await else { return };
    cloud.order("1").await;
    let mut away = cloud.environment();
    away.insert("AWS_ENDPOINT_URL_EVENTBRIDGE", "http://127.0.0.1:1".to_owned());
    let mut sweep = Function::start(env!("CARGO_BIN_EXE_sweep"), &away).await;
    let answer = sweep.invoke(tick(), Duration::from_secs(9)).await.unwrap();
    assert_eq!(answer["done"], false, "{answer}");
    let log = sweep.end();
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let swept: Vec<_> = lines.filter(|line| line["fields"]["message"] == "swept").collect();
    assert_eq!((swept.len(), &swept[0]["fields"]["done"]), (1, &json!(false)), "{log}");
    let recipe = include_str!("../../../../deploy/aws/sweep.tf");
    assert!(recipe.contains(r#"($.fields.message = \"swept\") && ($.fields.done IS FALSE)"#));
    cloud.remove().await;
}

/// R043: what no invocation of the stream told of is published by the sweep, and only that.
#[tokio::test]
async fn a_sweep_publishes_what_the_streams_function_missed() {
    let Some(cloud) = Cloud::make().await else { return };
    let told = cloud.order("1").await;
    let mut publish = cloud.publish().await;
    assert!(publish.invoke(stream(&[told]), LONG).await.is_ok());
    cloud.order("2").await;
    cloud.order("3").await;
    let mut sweep = cloud.sweep().await;
    let answer = sweep.invoke(tick(), LONG).await.unwrap();
    assert_eq!(answer, json!({"done": true, "delivered": 2, "left": [], "waiting": 0}));
    assert_eq!(cloud.pending().await, 0);
    let answer = sweep.invoke(tick(), LONG).await.unwrap();
    assert_eq!(answer["delivered"], 0, "{}", sweep.end());
    cloud.remove().await;
}
