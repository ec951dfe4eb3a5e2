//! A proxy at the HTTP boundary, for what the emulator does not do by itself: a request is answered in its
//! place, changed, or its answer is changed.

use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use aws_sdk_dynamodb::primitives::{DateTime, DateTimeFormat};
use postrider_core::BoxFuture;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// What becomes of a request.
pub(crate) enum Then {
    /// It goes on as it is now.
    Forward,
    /// It goes on, and its answer is held back until this is over.
    Hold(BoxFuture<'static, ()>),
    /// This is the answer: a status and a body.
    Answer(u16, Value),
}

/// Sees each request: its operation, and its body, which it may change.
pub(crate) type Rule = Box<dyn FnMut(&str, &mut Value) -> Then + Send>;
/// Sees each answer that was forwarded: the operation, the request, and the answer, which it may change.
pub(crate) type Edit = Box<dyn FnMut(&str, &Value, &mut Value) + Send>;

/// The clock of a service that reads signatures: by how many seconds it is ahead of ours, and by how many what its
/// answers say is ahead of it.
#[derive(Clone, Copy, Default)]
pub(crate) struct Clock {
    pub(crate) ahead: i64,
    pub(crate) said: i64,
}

/// How far a signature's time may be from the service's, in seconds.
const SIGNATURE_TIME: i64 = 5 * 60;

struct Script {
    rule: Rule,
    edit: Edit,
    clock: Option<Arc<Mutex<Clock>>>,
}

/// A proxy in front of an endpoint like `http://127.0.0.1:8000`; its own address.
pub(crate) async fn start(upstream: &str, rule: Rule, edit: Edit) -> String {
    listen(upstream, Script { rule, edit, clock: None }).await
}

/// One that has a clock: it refuses what is signed at another time, and says in each answer what time it is. The
/// emulator does neither. The rule sees what is not refused.
pub(crate) async fn start_with_clock(
    upstream: &str,
    rule: Rule,
    clock: Arc<Mutex<Clock>>,
) -> String {
    listen(upstream, Script { rule, edit: Box::new(|_, _, _| ()), clock: Some(clock) }).await
}

async fn listen(upstream: &str, script: Script) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let own = format!("http://{}", listener.local_addr().unwrap());
    let upstream = upstream.trim_start_matches("http://").trim_end_matches('/').to_owned();
    let script = Arc::new(Mutex::new(script));
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(serve(client, upstream.clone(), Arc::clone(&script)));
        }
    });
    own
}

impl Clock {
    /// The refusal of a request that is signed at a time that this clock is far from.
    fn refuses(self, head: &[String]) -> Option<Then> {
        let signed = header(head, "x-amz-date")?;
        let now = DateTime::from(SystemTime::now()).secs() + self.ahead;
        let (day, time) = (&signed[..8], &signed[9..15]);
        let text = format!(
            "{}-{}-{}T{}:{}:{}Z",
            &day[..4],
            &day[4..6],
            &day[6..],
            &time[..2],
            &time[2..4],
            &time[4..]
        );
        let at = DateTime::from_str(&text, DateTimeFormat::DateTime).unwrap().secs();
        let what = match at - now {
            late if late < -SIGNATURE_TIME => "Signature expired",
            early if early > SIGNATURE_TIME => "Signature not yet current",
            _ => return None,
        };
        let text = format!("{what}: {signed} is not within 5 min. of the service's time");
        Some(Then::Answer(400, json!({"__type": "InvalidSignatureException", "message": text})))
    }

    fn header(self) -> String {
        let now = DateTime::from(SystemTime::now()).secs() + self.ahead + self.said;
        let date = DateTime::from_secs(now).fmt(DateTimeFormat::HttpDate).unwrap();
        format!("date: {date}\r\n")
    }
}

/// Does something on another thread while a request waits, and waits for it.
pub(crate) fn aside<F: Future<Output = ()>>(work: impl FnOnce() -> F + Send + 'static) {
    let done = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(work());
    });
    done.join().unwrap();
}

async fn serve(client: TcpStream, upstream: String, script: Arc<Mutex<Script>>) {
    let mut client = BufReader::new(client);
    while let Some((head, body)) = message(&mut client).await {
        let operation = header(&head, "x-amz-target").unwrap_or_default();
        let operation = operation.rsplit('.').next().unwrap_or_default().to_owned();
        let mut asked: Value = serde_json::from_slice(&body).unwrap();
        let clock = script.lock().unwrap().clock.as_ref().map(|clock| *clock.lock().unwrap());
        let then = match clock.and_then(|clock| clock.refuses(&head)) {
            Some(refused) => refused,
            None => (script.lock().unwrap().rule)(&operation, &mut asked),
        };
        let held = match then {
            Then::Answer(status, answer) => Err((status, answer)),
            Then::Forward => Ok(None),
            Then::Hold(until) => Ok(Some(until)),
        };
        let (status, answer) = match held {
            Err(answer) => answer,
            Ok(until) => {
                let (status, mut answer) = forward(&upstream, &head, &asked).await;
                (script.lock().unwrap().edit)(&operation, &asked, &mut answer);
                if let Some(until) = until {
                    until.await;
                }
                (status, answer)
            }
        };
        let text = answer.to_string();
        let head = format!(
            "HTTP/1.1 {status} X\r\ncontent-type: application/x-amz-json-1.0\r\n\
             {}content-length: {}\r\n\r\n",
            clock.map(Clock::header).unwrap_or_default(),
            text.len()
        );
        if client.write_all((head + &text).as_bytes()).await.is_err() {
            return;
        }
    }
}

async fn forward(upstream: &str, head: &[String], asked: &Value) -> (u16, Value) {
    let mut server = BufReader::new(TcpStream::connect(upstream).await.unwrap());
    let text = asked.to_string();
    let mut request = String::new();
    for line in head {
        let name = line.split(':').next().unwrap_or_default().to_lowercase();
        if !["content-length", "connection", "accept-encoding"].contains(&&*name) {
            request += &format!("{line}\r\n");
        }
    }
    request += &format!("content-length: {}\r\nconnection: close\r\n\r\n{text}", text.len());
    server.write_all(request.as_bytes()).await.unwrap();
    let (head, body) = message(&mut server).await.expect("the emulator answers");
    let status = head[0].split(' ').nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_slice(&body).unwrap())
}

/// A message of HTTP: the lines of its head, and its body.
async fn message(from: &mut BufReader<TcpStream>) -> Option<(Vec<String>, Vec<u8>)> {
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        if from.read_line(&mut line).await.ok()? == 0 {
            return None;
        }
        match line.trim_end() {
            "" => break,
            line => head.push(line.to_owned()),
        }
    }
    let mut body = Vec::new();
    match header(&head, "content-length").and_then(|length| length.parse().ok()) {
        Some(length) => {
            body.resize(length, 0);
            from.read_exact(&mut body).await.ok()?;
        }
        None if head[0].starts_with("HTTP/") => _ = from.read_to_end(&mut body).await.ok()?,
        None => {}
    }
    Some((head, body))
}

fn header(head: &[String], name: &str) -> Option<String> {
    head.iter().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        key.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
    })
}
