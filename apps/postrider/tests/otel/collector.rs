//! A collector on loopback, which keeps what it gets.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use tokio::task::JoinHandle;

/// What it answers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answer {
    Takes,
    /// With a status that nobody tries again.
    Refuses,
}

/// One request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) path: String,
    pub(crate) content_type: String,
    pub(crate) body: Bytes,
}

/// A collector that listens until it is dropped.
pub(crate) struct Collector {
    address: SocketAddr,
    kept: Kept,
    task: JoinHandle<()>,
}

#[derive(Clone)]
struct Kept {
    answer: Answer,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Collector {
    pub(crate) async fn start(answer: Answer) -> Collector {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let kept = Kept { answer, requests: Arc::default() };
        let router = Router::new().fallback(keep).with_state(kept.clone());
        let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Collector { address, kept, task }
    }

    pub(crate) fn address(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn got(&self) -> Vec<Request> {
        self.kept.requests.lock().unwrap().clone()
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn keep(State(kept): State<Kept>, uri: Uri, headers: HeaderMap, body: Bytes) -> StatusCode {
    let content_type = headers.get("content-type").and_then(|value| value.to_str().ok());
    kept.requests.lock().unwrap().push(Request {
        path: uri.path().to_owned(),
        content_type: content_type.unwrap_or_default().to_owned(),
        body,
    });
    match kept.answer {
        Answer::Takes => StatusCode::OK,
        Answer::Refuses => StatusCode::BAD_REQUEST,
    }
}
