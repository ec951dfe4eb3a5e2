//! Tasks that move dead letters, as the service may tell of them and LocalStack never does: late, old, in part.

use std::sync::{Arc, Mutex, MutexGuard};

use postrider_aws::{DeadLetters, Redrive};
use postrider_core::ErrorKind;
use serde_json::{Value, json};

use crate::stub::{Asked, Said, Stub, failure};

const HOST: &str = "https://sqs.us-east-1.amazonaws.com/000000000000";
const ARN: &str = "arn:aws:sqs:us-east-1:000000000000";

/// Two queues of which one has the other's dead letters, and the tasks that are told of.
#[derive(Clone, Default)]
struct Service(Arc<Mutex<Told>>);

#[derive(Default)]
struct Told {
    tasks: Vec<Value>,
    /// What the next listings are answered with instead.
    troubles: Vec<(u16, &'static str)>,
    /// The pages of the queues that have their dead letters here.
    sources: Vec<Vec<String>>,
}

impl Service {
    fn told(&self) -> MutexGuard<'_, Told> {
        self.0.lock().unwrap()
    }

    async fn start(&self) -> (Stub, DeadLetters) {
        let service = self.clone();
        let stub = Stub::start(move |asked| service.answer(asked)).await;
        let letters = DeadLetters::of(stub.settings(), "orders", Some("dead")).await.unwrap();
        (stub, letters)
    }

    fn answer(&self, asked: &Asked) -> Option<Said> {
        let (mut told, body) = (self.told(), asked.body());
        let said = match asked.action.trim_start_matches("AmazonSQS.") {
            "GetQueueUrl" => {
                json!({"QueueUrl": format!("{HOST}/{}", body["QueueName"].as_str()?)})
            }
            "GetQueueAttributes" => {
                let name = body["QueueUrl"].as_str()?.rsplit('/').next()?;
                json!({"Attributes": {"QueueArn": format!("{ARN}:{name}")}})
            }
            "ListDeadLetterSourceQueues" => {
                let page = body["NextToken"].as_str().map_or(0, |page| page.parse().unwrap());
                let mut said = json!({"queueUrls": told.sources[page]});
                if page + 1 < told.sources.len() {
                    said["NextToken"] = json!((page + 1).to_string());
                }
                said
            }
            "StartMessageMoveTask" => json!({"TaskHandle": "ours"}),
            "CancelMessageMoveTask" => json!({"ApproximateNumberOfMessagesMoved": 3}),
            "ListMessageMoveTasks" => match told.troubles.pop() {
                Some((status, code)) => return failure(status, code, "not now"),
                None => json!({"Results": told.tasks}),
            },
            other => panic!("{other}"),
        };
        Some((200, said.to_string()))
    }
}

/// A task as it is listed.
fn task(started: u64, status: &str, moved: u64) -> Value {
    let mut task = json!({
        "Status": status, "StartedTimestamp": started, "ApproximateNumberOfMessagesMoved": moved,
        "ApproximateNumberOfMessagesToMove": 9, "SourceArn": format!("{ARN}:dead"),
        "DestinationArn": format!("{ARN}:orders"),
    });
    if status == "RUNNING" {
        task["TaskHandle"] = json!("ours");
    }
    task
}

async fn kind(redrive: &Redrive) -> ErrorKind {
    redrive.progress().await.unwrap_err().kind()
}

/// R096: a list that is old, in which the newest task that ended is another one, does not make a success of ours. As
/// soon as ours is there, it is told, and no other one from then on.
#[tokio::test]
async fn an_older_task_is_never_taken_for_the_one_that_began() {
    let service = Service::default();
    service.told().tasks = vec![task(100, "COMPLETED", 9)];
    let (_stub, letters) = service.start().await;
    let redrive = letters.redrive(None).await.unwrap();
    assert_eq!(kind(&redrive).await, ErrorKind::Unavailable, "it is not listed yet");
    // It ended before anybody saw it run: then it is the oldest one that came after what was there.
    service.told().tasks =
        vec![task(300, "COMPLETED", 1), task(200, "FAILED", 4), task(100, "COMPLETED", 9)];
    assert_eq!(redrive.progress().await.unwrap().moved, 4);
    // And it stays the one, though the list becomes old again, or others are newer.
    service.told().tasks = vec![task(100, "COMPLETED", 9)];
    assert_eq!(kind(&redrive).await, ErrorKind::Unavailable);
    service.told().tasks = vec![task(150, "COMPLETED", 7), task(200, "FAILED", 4)];
    assert_eq!(redrive.progress().await.unwrap().moved, 4);
    service.told().tasks = (0..10).map(|n| task(900 + n, "COMPLETED", 1)).collect();
    assert_eq!(kind(&redrive).await, ErrorKind::NotFound, "ten newer ones are all that is listed");
}

/// A task that was seen at work is known by its beginning when it has ended, also where somebody else has begun one
/// before it was looked at again; one to another queue never was ours.
#[tokio::test]
async fn a_task_that_was_seen_running_is_known_when_it_has_ended() {
    let service = Service::default();
    let (_stub, letters) = service.start().await;
    let redrive = letters.redrive(Some(5)).await.unwrap();
    let mut elsewhere = task(50, "COMPLETED", 8);
    elsewhere["DestinationArn"] = json!(format!("{ARN}:another"));
    service.told().tasks = vec![elsewhere.clone()];
    assert_eq!(kind(&redrive).await, ErrorKind::Unavailable, "that one goes elsewhere");
    service.told().tasks = vec![task(200, "RUNNING", 1), elsewhere];
    let running = redrive.progress().await.unwrap();
    assert!(running.running && running.moved == 1);
    let mut others = task(300, "RUNNING", 0);
    others["TaskHandle"] = json!("theirs");
    service.told().tasks = vec![others, task(200, "COMPLETED", 9)];
    let ended = redrive.progress().await.unwrap();
    assert_eq!((ended.running, ended.moved, &*ended.state), (false, 9, "completed"));
    let theirs = letters.running().await.unwrap().expect("the newest runs");
    assert!(theirs.progress().await.unwrap().running);
}

/// A task that failed says why, and how far it came.
#[tokio::test]
async fn a_task_that_failed_says_why() {
    let service = Service::default();
    let (_stub, letters) = service.start().await;
    let redrive = letters.redrive(None).await.unwrap();
    let mut failed = task(200, "FAILED", 2);
    failed["FailureReason"] = json!("AWS.SimpleQueueService.NonExistentQueue");
    service.told().tasks = vec![failed];
    let progress = redrive.progress().await.unwrap();
    assert_eq!((progress.running, progress.moved, progress.of), (false, 2, Some(9)));
    assert_eq!(progress.failure.as_deref(), Some("AWS.SimpleQueueService.NonExistentQueue"));
}

/// A listing that is refused for a moment is told as such, and the next one goes on; before a task begins nothing was
/// begun by it.
#[tokio::test]
async fn a_listing_that_is_throttled_begins_and_ends_nothing() {
    let service = Service::default();
    let (stub, letters) = service.start().await;
    service.told().troubles.push((400, "RequestThrottled"));
    let refused = letters.redrive(None).await.unwrap_err();
    assert_eq!((refused.kind(), refused.operation()), (ErrorKind::Busy, Redrive::LIST));
    let begun = |asked: &Asked| asked.action.ends_with("StartMessageMoveTask");
    assert!(!stub.asked().iter().any(begun), "nothing was begun");
    let redrive = letters.redrive(None).await.unwrap();
    service.told().tasks = vec![task(200, "RUNNING", 1)];
    service.told().troubles.push((503, "ServiceUnavailable"));
    assert_eq!(kind(&redrive).await, ErrorKind::Unavailable);
    assert_eq!(redrive.progress().await.unwrap().moved, 1);
}

/// A task is ended by its own handle.
#[tokio::test]
async fn a_task_is_cancelled_by_its_handle() {
    let service = Service::default();
    let (stub, letters) = service.start().await;
    let redrive = letters.redrive(None).await.unwrap();
    redrive.cancel().await.unwrap();
    let asked = stub.asked().pop().unwrap();
    assert_eq!(asked.action, "AmazonSQS.CancelMessageMoveTask");
    assert_eq!(asked.body()["TaskHandle"], "ours");
    service.told().tasks = vec![task(200, "CANCELLING", 3)];
    assert!(redrive.progress().await.unwrap().running);
    service.told().tasks = vec![task(200, "CANCELLED", 3)];
    assert_eq!(redrive.progress().await.unwrap().state, "cancelled");
}

/// R097: the queues that share dead letters are looked for on every page, and a list that does not end is told.
#[tokio::test]
async fn who_shares_dead_letters_is_found_on_every_page() {
    let service = Service::default();
    let page = |names: &[&str]| names.iter().map(|name| format!("{HOST}/{name}")).collect();
    service.told().sources =
        vec![page(&["orders"]), page(&[]), page(&["bills", "orders"]), page(&["mail"])];
    let (_stub, letters) = service.start().await;
    let others = letters.others().await.unwrap();
    assert_eq!((others.names, others.more), (vec!["bills".to_owned(), "mail".to_owned()], false));
    service.told().sources = vec![page(&["orders"]); 11];
    let others = letters.others().await.unwrap();
    assert_eq!((others.names, others.more), (Vec::new(), true), "ten pages are read");
}
