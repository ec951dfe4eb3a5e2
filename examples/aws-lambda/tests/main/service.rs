//! What stands in for the service: its runtime's interface on loopback, and a function's process that asks it for
//! invocations.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::{Mutex, mpsc};

/// How long a function may take to answer, whatever time it was told.
const PATIENCE: Duration = Duration::from_secs(60);

/// How a function answered: by a response, or by an error of its own.
pub(crate) type Answer = Result<Value, Value>;

/// A function's process, and the interface that it has.
pub(crate) struct Function {
    process: Child,
    log: Option<JoinHandle<String>>,
    invocations: mpsc::Sender<(Duration, Value)>,
    answers: mpsc::Receiver<Answer>,
}

struct Interface {
    invocations: Mutex<mpsc::Receiver<(Duration, Value)>>,
    answers: mpsc::Sender<Answer>,
}

impl Function {
    /// Starts a program as the service does: with the interface's address, and an environment of the function's own.
    pub(crate) async fn start(program: &str, environment: &BTreeMap<&str, String>) -> Function {
        let (invocations, taken) = mpsc::channel(1);
        let (given, answers) = mpsc::channel(1);
        let interface = Interface { invocations: Mutex::new(taken), answers: given };
        let routes = Router::new()
            .route("/2018-06-01/runtime/invocation/next", get(next))
            .route("/2018-06-01/runtime/invocation/{id}/response", post(response))
            .route("/2018-06-01/runtime/invocation/{id}/error", post(error))
            .with_state(Arc::new(interface));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        tokio::spawn(async { axum::serve(listener, routes).await });
        let mut process = Command::new(program)
            .env_clear()
            .env("AWS_LAMBDA_RUNTIME_API", address)
            .env("AWS_LAMBDA_FUNCTION_NAME", "example")
            .env("AWS_LAMBDA_FUNCTION_VERSION", "$LATEST")
            .env("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "256")
            .envs(environment)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = process.stderr.take().unwrap();
        let log = std::thread::spawn(move || {
            let mut log = String::new();
            output.read_to_string(&mut log).unwrap();
            log
        });
        Function { process, log: Some(log), invocations, answers }
    }

    /// Invokes it, with so much time, and waits for its answer.
    pub(crate) async fn invoke(&mut self, event: Value, remaining: Duration) -> Answer {
        self.invocations.send((remaining, event)).await.unwrap();
        match tokio::time::timeout(PATIENCE, self.answers.recv()).await {
            Ok(answer) => answer.unwrap(),
            Err(_) => panic!("no answer; it said:\n{}", self.end()),
        }
    }

    /// Ends it, as the service does with an environment that it needs no more, and says what it logged.
    pub(crate) fn end(&mut self) -> String {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        self.log.take().unwrap().join().unwrap()
    }
}

impl Drop for Function {
    fn drop(&mut self) {
        _ = self.process.kill();
        _ = self.process.wait();
    }
}

/// A function asks for the next invocation, and waits for it.
async fn next(
    State(interface): State<Arc<Interface>>,
) -> Result<(HeaderMap, Json<Value>), StatusCode> {
    let invocation = interface.invocations.lock().await.recv().await;
    let (remaining, event) = invocation.ok_or(StatusCode::GONE)?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let deadline = (now + remaining).as_millis().to_string();
    let mut headers = HeaderMap::new();
    let function = "arn:aws:lambda:us-east-1:000000000000:function:example";
    for (name, value) in [
        ("lambda-runtime-aws-request-id", "8476a536-e9f4-11e8-9739-2dfe598c3fcd"),
        ("lambda-runtime-deadline-ms", &deadline),
        ("lambda-runtime-invoked-function-arn", function),
    ] {
        headers.insert(name, value.parse().unwrap());
    }
    Ok((headers, Json(event)))
}

async fn response(
    State(interface): State<Arc<Interface>>,
    Path(_): Path<String>,
    body: String,
) -> StatusCode {
    // The runtime does not say of what type it is.
    let body = serde_json::from_str(&body).unwrap();
    interface.answers.send(Ok(body)).await.unwrap();
    StatusCode::ACCEPTED
}

async fn error(
    State(interface): State<Arc<Interface>>,
    Path(_): Path<String>,
    body: String,
) -> StatusCode {
    let body = serde_json::from_str(&body).unwrap();
    interface.answers.send(Err(body)).await.unwrap();
    StatusCode::ACCEPTED
}
