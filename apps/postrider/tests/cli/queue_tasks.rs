//! Moving dead letters back with a service that answers late, by pages, with an old list, and not at all: a server of
//! the test's own.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::Output;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::{Shop, code, err, out, said};

const HOST: &str = "https://sqs.us-east-1.amazonaws.com/000000000000";
const ARN: &str = "arn:aws:sqs:us-east-1:000000000000";

/// What the lists of tasks are, one after the other; the last one stays. None is a refusal because of haste.
type Lists = Vec<Option<Vec<Value>>>;

/// A service with nine dead letters.
struct Service {
    address: String,
    /// The actions, with their bodies.
    asked: Arc<Mutex<Vec<(String, Value)>>>,
}

impl Service {
    fn start(lists: Lists, sources: Vec<Vec<&'static str>>) -> Service {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let asked: Arc<Mutex<Vec<(String, Value)>>> = Arc::default();
        let (heard, lists) = (Arc::clone(&asked), Arc::new(Mutex::new(lists)));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                serve(stream.unwrap(), &heard, &lists, &sources);
            }
        });
        Service { address, asked }
    }

    fn queue(&self, args: &[&str]) -> Output {
        let shop = Shop::bare();
        let from = ["queue", args[0], "--from", "sqs://us-east-1/orders", "--dead-letters", "dead"];
        let mut command = shop.command(&[&from[..], &args[1..]].concat());
        command.env("AWS_ACCESS_KEY_ID", "key").env("AWS_SECRET_ACCESS_KEY", "x");
        command.env("AWS_ENDPOINT_URL", &self.address).output().unwrap()
    }

    fn asked(&self, action: &str) -> Vec<Value> {
        let asked = self.asked.lock().unwrap();
        asked.iter().filter(|(name, _)| name == action).map(|(_, body)| body.clone()).collect()
    }
}

fn serve(
    stream: TcpStream,
    heard: &Mutex<Vec<(String, Value)>>,
    lists: &Mutex<Lists>,
    sources: &[Vec<&str>],
) {
    let mut stream = BufReader::new(stream);
    let (mut length, mut action, mut line) = (0, String::new(), String::new());
    while stream.read_line(&mut line).unwrap_or_default() > 2 {
        let (name, value) = line.split_once(':').unwrap_or((&line, ""));
        match &*name.to_ascii_lowercase() {
            "content-length" => length = value.trim().parse().unwrap(),
            "x-amz-target" => action = value.trim().trim_start_matches("AmazonSQS.").to_owned(),
            _ => {}
        }
        line.clear();
    }
    let mut body = vec![0; length];
    if stream.read_exact(&mut body).is_err() {
        return;
    }
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    heard.lock().unwrap().push((action.clone(), body.clone()));
    let (status, said) = answer(&action, &body, &mut lists.lock().unwrap(), sources);
    let said = said.to_string();
    _ = write!(
        stream.get_mut(),
        "HTTP/1.1 {status} Said\r\nContent-Type: application/x-amz-json-1.0\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{said}",
        said.len()
    );
}

fn answer(action: &str, body: &Value, lists: &mut Lists, sources: &[Vec<&str>]) -> (u16, Value) {
    let name = |key: &str| body[key].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
    let said = match action {
        "GetQueueUrl" => json!({"QueueUrl": format!("{HOST}/{}", name("QueueName"))}),
        "GetQueueAttributes" => json!({"Attributes": {
            "QueueArn": format!("{ARN}:{}", name("QueueUrl")), "ApproximateNumberOfMessages": "9"}}),
        "ListDeadLetterSourceQueues" => {
            let page = body["NextToken"].as_str().map_or(0, |page| page.parse().unwrap());
            let urls: Vec<String> = sources[page].iter().map(|at| format!("{HOST}/{at}")).collect();
            let next = (page + 1 < sources.len()).then(|| (page + 1).to_string());
            json!({"queueUrls": urls, "NextToken": next})
        }
        "StartMessageMoveTask" => json!({"TaskHandle": "ours"}),
        "CancelMessageMoveTask" => json!({"ApproximateNumberOfMessagesMoved": 3}),
        "ListMessageMoveTasks" => {
            let list = if lists.len() > 1 { lists.remove(0) } else { lists[0].clone() };
            let Some(list) = list else {
                return (400, json!({"__type": "RequestThrottled", "message": "slow down"}));
            };
            json!({"Results": list})
        }
        other => return (400, json!({"__type": "InvalidAction", "message": other})),
    };
    (200, said)
}

/// A task as it is listed.
fn task(started: u64, status: &str, moved: u64) -> Value {
    let mut task = json!({
        "Status": status, "StartedTimestamp": started, "ApproximateNumberOfMessagesMoved": moved,
        "ApproximateNumberOfMessagesToMove": 9, "DestinationArn": format!("{ARN}:orders"),
    });
    if status == "RUNNING" {
        task["TaskHandle"] = json!("ours");
    }
    task
}

/// An older task that has moved everything.
fn old() -> Value {
    task(100, "COMPLETED", 9)
}

const REDRIVE: [&str; 3] = ["redrive", "--yes", "--unguarded"];

/// R096: what an older task has done is not said of the one that was begun, whatever the service lists.
#[test]
fn a_list_that_is_old_is_no_success() {
    let service = Service::start(vec![Some(vec![old()])], vec![vec!["orders"]]);
    let moved = service.queue(&[&REDRIVE[..], &["--wait", "1s"]].concat());
    assert_eq!(service.asked("StartMessageMoveTask").len(), 1);
    assert_eq!(code(&moved), 5, "{}", err(&moved));
    assert!(said(&moved).contains("SQS did not say since; it may go on"), "{}", err(&moved));
    assert!(said(&moved).contains("0 were moved"), "{}", err(&moved));
}

/// A look that is refused because of haste is not the end: the next one goes on.
#[test]
fn a_task_is_followed_over_a_look_that_failed() {
    let at = |task: Value| Some(vec![task, old()]);
    let lists = vec![
        Some(vec![old()]),
        Some(vec![old()]),
        at(task(200, "RUNNING", 1)),
        None,
        at(task(200, "RUNNING", 5)),
        at(task(200, "COMPLETED", 9)),
    ];
    let service = Service::start(lists, vec![vec!["orders"]]);
    let moved = service.queue(&REDRIVE);
    assert_eq!(code(&moved), 0, "{}", err(&moved));
    assert!(said(&moved).contains("9 of about 9 were moved to orders"), "{}", err(&moved));
    assert_eq!(service.asked("ListMessageMoveTasks").len(), 6);
}

/// A task that the service gave up is a failure, with its reason, what was moved, and where the rest is.
#[test]
fn a_task_that_failed_is_told_with_its_reason() {
    let mut failed = task(200, "FAILED", 2);
    failed["FailureReason"] = json!("CouldNotDetermineMessageSource");
    let lists = vec![Some(Vec::new()), Some(Vec::new()), Some(vec![failed])];
    let service = Service::start(lists, vec![vec!["orders"]]);
    let moved = service.queue(&REDRIVE);
    assert_eq!(code(&moved), 1, "{}", err(&moved));
    let expected = "SQS gave up: CouldNotDetermineMessageSource; 2 of about 9 were moved, and the rest stays in dead";
    assert!(said(&moved).contains(expected), "{}", err(&moved));
}

/// R097: a queue that shares the dead letters is found on the last of several pages, and nothing is begun.
#[test]
fn who_shares_them_is_found_on_the_last_page() {
    let sources = vec![vec!["orders"], vec![], vec!["bills"]];
    let service = Service::start(vec![Some(Vec::new())], sources);
    let refused = service.queue(&REDRIVE);
    assert_eq!(code(&refused), 78, "{}", err(&refused));
    assert!(said(&refused).contains("dead has dead letters of bills as well"), "{}", err(&refused));
    assert_eq!(service.asked("ListDeadLetterSourceQueues").len(), 3);
    assert!(service.asked("StartMessageMoveTask").is_empty(), "nothing was begun");
}

/// A task is ended by the handle that is listed, and what it had moved is said.
#[test]
fn a_task_is_ended_by_its_handle() {
    let lists = vec![
        Some(vec![task(200, "RUNNING", 2)]),
        Some(vec![task(200, "CANCELLING", 3)]),
        None,
        Some(vec![task(200, "CANCELLED", 3)]),
    ];
    let service = Service::start(lists, vec![vec!["orders"]]);
    let ended = service.queue(&["cancel", "--output", "json"]);
    assert_eq!(code(&ended), 0, "{}", err(&ended));
    assert_eq!(service.asked("CancelMessageMoveTask"), [json!({"TaskHandle": "ours"})]);
    assert!(said(&ended).contains("it was ended: 3 of about 9 were moved"), "{}", err(&ended));
    let document: Value = serde_json::from_str(&out(&ended)).unwrap();
    assert_eq!(document["task"]["state"], "cancelled");
}

/// Where the tasks cannot be listed, nothing is begun, and nobody is told that something may have been.
#[test]
fn without_a_list_nothing_is_begun() {
    let service = Service::start(vec![Some(Vec::new()), None], vec![vec!["orders"]]);
    let refused = service.queue(&REDRIVE);
    assert_eq!(code(&refused), 1, "{}", err(&refused));
    assert!(service.asked("StartMessageMoveTask").is_empty(), "{}", err(&refused));
    assert!(!said(&refused).contains("may have begun"), "{}", err(&refused));
}
