//! A service of the tests' own: says what it is told to, and remembers what it was asked.

use std::sync::{Arc, Mutex};

use postrider_aws::AwsSettings;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// `AmazonSQS.SendMessageBatch`, or what a form calls its action.
    pub(crate) action: String,
    pub(crate) text: String,
}

impl Asked {
    pub(crate) fn body(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or(Value::Null)
    }
}

/// An answer: a status, and a body.
pub(crate) type Said = (u16, String);

/// See the module.
#[derive(Clone)]
pub(crate) struct Stub {
    address: String,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Stub {
    /// Starts one that answers like this; `None` is no answer at all.
    pub(crate) async fn start(
        answer: impl Fn(&Asked) -> Option<Said> + Send + Sync + 'static,
    ) -> Stub {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (answer, heard) = (Arc::new(answer), Arc::clone(&asked));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (answer, heard) = (Arc::clone(&answer), Arc::clone(&heard));
                tokio::spawn(async move { serve(stream, &*answer, &heard).await });
            }
        });
        Stub { address, asked }
    }

    pub(crate) fn settings(&self) -> AwsSettings {
        crate::cloud::settings(&self.address)
    }

    /// What was asked so far.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

async fn serve(
    mut stream: TcpStream,
    answer: &(dyn Fn(&Asked) -> Option<Said> + Send + Sync),
    heard: &Mutex<Vec<Asked>>,
) {
    let mut bytes = Vec::new();
    let (head, length) = loop {
        let mut part = vec![0; 16 * 1024];
        let Ok(read @ 1..) = stream.read(&mut part).await else { return };
        bytes.extend_from_slice(&part[..read]);
        let Some(end) = bytes.windows(4).position(|it| it == b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
        break (end + 4, length.map_or(0, |length| length.trim().parse().unwrap()));
    };
    while bytes.len() < head + length {
        let mut part = vec![0; 64 * 1024];
        let Ok(read @ 1..) = stream.read(&mut part).await else { return };
        bytes.extend_from_slice(&part[..read]);
    }
    let text = String::from_utf8_lossy(&bytes[head..]).into_owned();
    let lines = String::from_utf8_lossy(&bytes[..head]).into_owned();
    let target = lines.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("x-amz-target").then(|| value.trim().to_owned())
    });
    let form = || text.split('&').find_map(|pair| pair.strip_prefix("Action=")).unwrap_or_default();
    let asked = Asked { action: target.unwrap_or_else(|| form().to_owned()), text: text.clone() };
    heard.lock().unwrap().push(asked.clone());
    let Some((status, body)) = answer(&asked) else {
        // waits: for ever, as who does not answer
        return std::future::pending().await;
    };
    let kind = if body.starts_with('<') { "text/xml" } else { "application/x-amz-json-1.0" };
    let said = format!(
        "HTTP/1.1 {status} Said\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    _ = stream.write_all(said.as_bytes()).await;
}

/// A failure as these services tell it.
pub(crate) fn failure(status: u16, code: &str, message: &str) -> Option<Said> {
    let body = serde_json::json!({ "__type": code, "message": message });
    Some((status, body.to_string()))
}
