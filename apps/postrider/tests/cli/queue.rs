//! Dead letters in a queue of SQS, moved back by the program, with a sidecar and its inbox behind the queue.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use crate::aws::Account;
use crate::{Shop, code, err, out, said};

/// An endpoint that takes everything, and remembers the events' ids.
struct Endpoint {
    port: u16,
    acted: Arc<Mutex<Vec<String>>>,
}

impl Endpoint {
    fn listen() -> Endpoint {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let acted: Arc<Mutex<Vec<String>>> = Arc::default();
        let seen = Arc::clone(&acted);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = BufReader::new(stream.unwrap());
                let (mut length, mut line) = (0, String::new());
                while stream.read_line(&mut line).unwrap() > 2 {
                    if let Some(text) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                        length = text.trim().parse().unwrap();
                    }
                    line.clear();
                }
                let mut body = vec![0; length];
                stream.read_exact(&mut body).unwrap();
                let event: Value = serde_json::from_slice(&body).unwrap();
                seen.lock().unwrap().push(event["id"].as_str().unwrap().to_owned());
                let answer = b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n";
                stream.get_mut().write_all(answer).unwrap();
            }
        });
        Endpoint { port, acted }
    }

    fn acted(&self) -> usize {
        self.acted.lock().unwrap().len()
    }
}

/// A shop whose events go to a queue, the queue's dead letters, and a sidecar behind it.
struct Line {
    account: Account,
    shop: Shop,
    endpoint: Endpoint,
    queue: String,
    dead: String,
}

impl Line {
    fn lay() -> Option<Line> {
        let account = Account::open()?;
        let (shop, endpoint) = (Shop::new(), Endpoint::listen());
        let (queue, dead) = (account.queue("orders"), account.queue("orders-dead"));
        account.serve(&queue, &dead);
        std::fs::write(shop.path("password"), "hunter2").unwrap();
        let line = Line { account, shop, endpoint, queue, dead };
        line.configure("billing.db");
        for inbox in ["billing.db", "forgetful.db"] {
            let init = line.shop.run(&["init", &format!("sqlite://{inbox}")]);
            assert_eq!(code(&init), 0, "{}", err(&init));
        }
        Some(line)
    }

    /// The lease is short, and with it the time for which a message is hidden that the emulator gave to the question of a
    /// sidecar that has ended.
    fn configure(&self, inbox: &str) {
        let login = self.account.login();
        self.shop.configure(&format!(
            "store = \"sqlite://shop.db\"\n[destinations.stream]\nkind = \"sqs\"\n\
             url = \"sqs://us-east-1\"\nroutes = [{{ topic = \"orders\" }}]\n[destinations.stream.sqs]\n{login}\n\
             [consume.billing]\nfrom = \"sqs://us-east-1/orders\"\ninbox = \"sqlite://{inbox}\"\n\
             endpoint = \"http://127.0.0.1:{}/\"\ntimeout = \"1s\"\nlease = \"2s\"\n[consume.billing.sqs]\n{login}",
            self.endpoint.port
        ));
    }

    /// Events of so many orders in the queue, and a copy of each among the dead letters.
    fn place(&self, orders: u32) {
        self.shop.place(0..orders);
        let ended = self.shop.run(&["relay", "--config", "postrider.toml", "--once"]);
        assert_eq!(code(&ended), 0, "{}", err(&ended));
        let mut copied = 0;
        while copied < orders {
            // Hidden for a moment only: the sidecar is to have them as well.
            let asked = json!({
                "QueueUrl": self.queue, "MaxNumberOfMessages": 10, "VisibilityTimeout": 1,
                "MessageAttributeNames": ["All"],
            });
            let came = self.account.ask("ReceiveMessage", &asked);
            for message in came["Messages"].as_array().into_iter().flatten() {
                self.bury(message);
                copied += 1;
            }
        }
    }

    /// Puts a copy of a message among the dead letters, and gives it.
    fn bury(&self, message: &Value) {
        let copy = json!({
            "QueueUrl": self.dead, "MessageBody": message["Body"],
            "MessageAttributes": message["MessageAttributes"].as_object().cloned().unwrap_or_default(),
        });
        self.account.ask("SendMessage", &copy);
    }

    /// One of the dead letters, which stays.
    fn dead_letter(&self) -> Value {
        let asked = json!({
            "QueueUrl": self.dead, "VisibilityTimeout": 0, "MessageAttributeNames": ["All"],
        });
        self.account.ask("ReceiveMessage", &asked)["Messages"][0].clone()
    }

    fn queue(&self, args: &[&str]) -> Output {
        self.shop.run(&self.args(args))
    }

    fn args<'a>(&self, args: &[&'a str]) -> Vec<&'a str> {
        let (verb, rest) = args.split_first().unwrap();
        [&["queue", verb, "--config", "postrider.toml"], rest].concat()
    }

    /// Sidecars act until nothing is there, and nothing is hidden.
    fn consume(&self) {
        for _ in 0..5 {
            let consume = ["consume", "--config", "postrider.toml", "--once", "--idle", "4s"];
            let ended = self.shop.run(&consume);
            assert_eq!(code(&ended), 0, "{}", err(&ended));
            if self.account.count(&self.queue) == "0" && self.account.hidden(&self.queue) == "0" {
                return;
            }
        }
        panic!("messages stay in the queue");
    }

    fn remove(&self) {
        for queue in [&self.queue, &self.dead] {
            self.account.ask("DeleteQueue", &json!({ "QueueUrl": queue }));
        }
    }
}

fn document(output: &Output) -> Value {
    serde_json::from_str(&out(output)).unwrap_or_else(|_| panic!("{}", err(output)))
}

/// How often the endpoint acts on three events that are consumed, and moved back out of the dead letters after that.
fn effects(after: &str) -> Option<usize> {
    let line = Line::lay()?;
    line.place(3);
    line.consume();
    assert_eq!(line.endpoint.acted(), 3);
    line.configure(after);
    let dry = line.queue(&["redrive", "--dry-run"]);
    let unknown = said(&dry).contains("forgetful.db has no row of billing");
    let known = said(&dry).contains("billing.db has as done of billing has no second effect");
    assert_eq!((known, unknown), (after == "billing.db", after != "billing.db"), "{}", err(&dry));
    let moved = line.queue(&["redrive", "--yes", "--output", "json"]);
    assert_eq!(code(&moved), 0, "{}", err(&moved));
    let document = document(&moved);
    assert_eq!((&document["count"], &document["task"]["moved"]), (&json!(0), &json!(3)));
    assert!(said(&moved).contains("about 3 dead letters of orders-dead"), "{}", err(&moved));
    line.consume();
    line.remove();
    Some(line.endpoint.acted())
}

/// R096: dead letters whose events were acted on are moved back, and have no second effect, because of the inbox.
#[test]
fn what_was_acted_on_and_is_moved_back_has_one_effect() {
    let Some(effects) = effects("billing.db") else { return };
    assert_eq!(effects, 3);
}

/// The negative control: with an inbox that knows nothing of them, each acts twice.
#[test]
fn without_what_the_inbox_knows_they_act_twice() {
    let Some(effects) = effects("forgetful.db") else { return };
    assert_eq!(effects, 6);
}

/// R097: an inbox row is not deleted without a reason; one that was forgotten with a reason is named before dead letters
/// are moved, and acts again, on purpose.
#[test]
fn what_an_operator_had_forgotten_is_said_before_it_acts_again() {
    let Some(line) = Line::lay() else { return };
    line.place(1);
    let letter = line.dead_letter();
    let event: Value = serde_json::from_str(letter["Body"].as_str().unwrap()).unwrap();
    let id = event["id"].as_str().unwrap();
    line.consume();
    let forget = ["inbox", "forget", id, "--handler", "billing", "--store", "sqlite://billing.db"];
    let refused = line.shop.run(&[&forget[..], &["--yes"]].concat());
    assert_eq!(code(&refused), 2, "{}", err(&refused));
    let moved = line.queue(&["redrive", "--yes"]);
    assert!(!said(&moved).contains("by hand"), "{}", err(&moved));
    line.consume();
    assert_eq!(line.endpoint.acted(), 1, "the refusal changed nothing");
    line.bury(&letter);
    let forgotten =
        line.shop.run(&[&forget[..], &["--yes", "--reason", "the bank lost it"]].concat());
    assert_eq!(code(&forgotten), 0, "{}", err(&forgotten));
    let moved = line.queue(&["redrive", "--yes"]);
    assert_eq!(code(&moved), 0, "{}", err(&moved));
    assert!(
        said(&moved).contains("forgotten by hand, and acted on again if among these: 1;"),
        "{}",
        err(&moved)
    );
    line.consume();
    assert_eq!(line.endpoint.acted(), 2);
    line.remove();
}

/// R097: without an inbox, or with one that forgets before dead letters do, nothing is moved; nor without a yes, nor in a
/// dry run.
#[test]
fn nothing_is_moved_without_a_guard_and_a_yes() {
    let Some(line) = Line::lay() else { return };
    line.place(2);
    let still = |ended: &Output, expected: i32, words: &str| {
        assert_eq!(code(ended), expected, "{}", err(ended));
        assert!(said(ended).contains(words), "{}", err(ended));
        assert_eq!(line.account.count(&line.dead), "2");
    };
    still(&line.queue(&["redrive"]), 2, "add --yes");
    let dry = line.queue(&["redrive", "--dry-run", "--output", "json"]);
    still(&dry, 0, "would be moved to orders");
    assert_eq!(document(&dry)["count"], 2);
    still(&line.queue(&["redrive", "--yes", "--inbox", "sqlite://absent.db"]), 1, "the inbox");
    let by_flags = |more: &[&str]| {
        let flags = ["queue", "redrive", "--from", "sqs://us-east-1/orders", "--yes"];
        let mut alone = line.shop.command(&[&flags[..], more].concat());
        alone.env("AWS_ACCESS_KEY_ID", line.account.key()).env("AWS_SECRET_ACCESS_KEY", "x");
        alone.env("AWS_ENDPOINT_URL", line.account.url()).output().unwrap()
    };
    still(&by_flags(&[]), 78, "no inbox is named");
    std::fs::write(line.shop.path("short.toml"), "[retention]\ninbox = \"15d\"\n").unwrap();
    let days = json!({"MessageRetentionPeriod": (14 * 86_400).to_string()});
    line.account.ask("SetQueueAttributes", &json!({"QueueUrl": line.dead, "Attributes": days}));
    let short = by_flags(&["--config", "short.toml", "--inbox", "sqlite://billing.db"]);
    still(&short, 78, "remembers for 15d, and a dead letter may be 22d old");
    let assumed = by_flags(&["--inbox", "sqlite://billing.db", "--dry-run"]);
    still(&assumed, 0, "billing.db is assumed to remember for 35d");
    assert!(said(&assumed).contains("has no row:"), "{}", err(&assumed));
    let moved = line.queue(&["redrive", "--yes", "--unguarded", "--wait", "30s"]);
    assert_eq!(code(&moved), 0, "{}", err(&moved));
    assert_eq!(line.account.count(&line.dead), "0");
    let again = line.queue(&["redrive", "--yes", "--unguarded"]);
    assert!(said(&again).contains("nothing to move"), "{}", err(&again));
    line.remove();
}

/// R097: another queue than the table's has neither the table's dead letters nor its inbox.
#[test]
fn what_a_table_says_of_its_queue_counts_for_no_other() {
    let Some(line) = Line::lay() else { return };
    line.configure("billing.db");
    let config = line.shop.path("postrider.toml");
    let table = std::fs::read_to_string(&config).unwrap() + "dead_letters = \"orders-dead\"\n";
    std::fs::write(&config, table).unwrap();
    let (other, dead) = (line.account.queue("other"), line.account.queue("other-dead"));
    line.account.serve(&other, &dead);
    line.account.ask("SendMessage", &json!({"QueueUrl": line.dead, "MessageBody": "{}"}));
    line.account.ask("SendMessage", &json!({"QueueUrl": dead, "MessageBody": "{}"}));
    let own = document(&line.queue(&["status", "--output", "json"]));
    assert_eq!(own["dead_letters"], "orders-dead");
    let from = ["--from", "sqs://us-east-1/other"];
    let of_other = line.queue(&[&["status", "--output", "json"], &from[..]].concat());
    assert_eq!(document(&of_other)["dead_letters"], "other-dead", "{}", err(&of_other));
    let refused = line.queue(&[&["redrive", "--yes"], &from[..]].concat());
    assert_eq!(code(&refused), 78, "{}", err(&refused));
    assert!(said(&refused).contains("--from is other"), "{}", err(&refused));
    let given = ["redrive", "--yes", "--inbox", "sqlite://billing.db"];
    let moved = line.queue(&[&given[..], &from[..]].concat());
    assert_eq!(code(&moved), 0, "{}", err(&moved));
    assert_eq!(
        (line.account.count(&dead), line.account.count(&line.dead)),
        ("0".into(), "1".into())
    );
    for queue in [&other, &dead] {
        line.account.ask("DeleteQueue", &json!({ "QueueUrl": queue }));
    }
    line.remove();
}

/// R097: dead letters that another queue shares are moved by a flag only.
#[test]
fn dead_letters_of_several_queues_are_not_moved_into_one() {
    let Some(line) = Line::lay() else { return };
    let other = line.account.queue("other");
    line.account.serve(&other, &line.dead);
    line.account.ask("SendMessage", &json!({"QueueUrl": line.dead, "MessageBody": "{}"}));
    let refused = line.queue(&["redrive", "--yes"]);
    assert_eq!(code(&refused), 78, "{}", err(&refused));
    assert!(
        said(&refused).contains("orders-dead has dead letters of other as well"),
        "{}",
        err(&refused)
    );
    assert_eq!(line.account.count(&line.dead), "1");
    let moved = line.queue(&["redrive", "--yes", "--shared"]);
    assert_eq!(code(&moved), 0, "{}", err(&moved));
    assert_eq!(line.account.count(&line.dead), "0");
    line.account.ask("DeleteQueue", &json!({ "QueueUrl": other }));
    line.remove();
}

/// Ctrl-C ends the task at the service, and what was moved is said; whoever comes meanwhile begins no second one, and may
/// end it as well.
#[test]
fn a_task_is_ended_by_who_began_it_or_by_another() {
    let Some(line) = Line::lay() else { return };
    line.place(20);
    let begin = || {
        let args = line.args(&["redrive", "--yes", "--rate", "1", "--output", "json"]);
        let mut command = line.shop.command(&args);
        let begun = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        while document(&line.queue(&["status", "--output", "json"]))["task"]["state"] != "running" {
            // waits: a task that has begun tells nobody, and each look is a process of its own
            std::thread::sleep(Duration::from_millis(100));
        }
        begun
    };
    let first = begin();
    let second = line.queue(&["redrive", "--yes"]);
    assert_eq!(code(&second), 1, "{}", err(&second));
    assert!(said(&second).contains("somebody is moving them already"), "{}", err(&second));
    let sent = Command::new("kill").args(["-INT", &first.id().to_string()]).status().unwrap();
    assert!(sent.success());
    let ended = first.wait_with_output().unwrap();
    assert_eq!(code(&ended), 130, "{}", err(&ended));
    assert!(said(&ended).contains("of about 20 were moved to orders"), "{}", err(&ended));
    assert_eq!(document(&ended)["task"]["state"], "cancelled");
    let left = document(&line.queue(&["status", "--output", "json"]));
    assert!(left["count"].as_u64().unwrap() >= 15, "{left}");
    let other = begin();
    let cancelled = line.queue(&["cancel"]);
    assert_eq!(code(&cancelled), 0, "{}", err(&cancelled));
    let ended = other.wait_with_output().unwrap();
    assert_eq!(code(&ended), 1, "{}", err(&ended));
    assert!(said(&ended).contains("cancelled"), "{}", err(&ended));
    let nothing = line.queue(&["cancel"]);
    assert!(code(&nothing) == 1 && said(&nothing).contains("no task moves"), "{}", err(&nothing));
    line.remove();
}

/// A queue that is not there, or has no place for dead letters, is said with its code.
#[test]
fn a_queue_without_dead_letters_is_said() {
    let Some(line) = Line::lay() else { return };
    let missing = line.queue(&["status", "--dead-letters", "nowhere"]);
    assert_eq!(code(&missing), 1, "{}", err(&missing));
    assert!(err(&missing).contains("PR-1302") && err(&missing).contains("nowhere"));
    let none = line.queue(&["status", "--from", "sqs://us-east-1/orders-dead"]);
    assert_eq!(code(&none), 78, "{}", err(&none));
    assert!(said(&none).contains("has no redrive policy"), "{}", err(&none));
    let file = line.queue(&["status", "--from", "local://queue.db"]);
    assert!(code(&file) == 78 && said(&file).contains("is no queue of SQS"), "{}", err(&file));
    line.remove();
}
