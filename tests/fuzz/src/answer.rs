//! What a webhook's server answers, byte for byte.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use postrider_core::{Broker, Event, EventId, Outcome, Outgoing};
use postrider_webhook::{Endpoint, WebhookBroker, WebhookSettings};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};

/// The longest wait that a server may wish for.
const WISH_MAX: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// Bytes of a reason: of an answer's beginning each byte may take three, and of where it leads to.
const REASON_BYTES_MAX: usize = 64 + 3 * (1_024 + 200);

/// A request is answered with the input, and the connection is closed: only a 2xx acknowledges, and the reason is text.
pub fn answer(input: &[u8]) {
    static SCENE: Mutex<Option<Scene>> = Mutex::new(None);
    let mut scene = SCENE.lock().unwrap_or_else(PoisonError::into_inner);
    let scene = scene.get_or_insert_with(Scene::begin);
    let (detail, wish) = match scene.answered(input) {
        Outcome::Acked => return acknowledged(input),
        Outcome::Skipped => return,
        Outcome::Retry { fault, after } => (fault.detail, after),
        Outcome::Rejected(fault)
        | Outcome::Unroutable(fault)
        | Outcome::Hindered(fault)
        | Outcome::Gone(fault) => (fault.detail, None),
    };
    assert!(!detail.is_empty() && !detail.chars().any(char::is_control), "{detail:?}");
    assert!(detail.len() <= REASON_BYTES_MAX, "{} bytes of reason", detail.len());
    assert!(wish.is_none_or(|wish| wish <= WISH_MAX), "{wish:?}");
}

/// A status of 2xx stands in it, perhaps behind others that announce it.
fn acknowledged(input: &[u8]) {
    let is_status = |part: &[u8]| part.starts_with(b"HTTP/1.") && part[8..].starts_with(b" 2");
    assert!(input.windows(10).any(is_status), "acknowledged by {}", input.escape_ascii());
}

/// A server and who calls it, in one thread.
struct Scene {
    runtime: Runtime,
    listener: TcpListener,
    broker: WebhookBroker,
    event: Outgoing,
}

impl Scene {
    fn begin() -> Scene {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a port");
        let address = listener.local_addr().expect("an address");
        let settings = WebhookSettings {
            allow_private: true,
            idle: Duration::from_millis(1),
            ..WebhookSettings::default()
        };
        let endpoint = Endpoint::new(format!("http://{address}/"));
        let broker = WebhookBroker::new(&settings.endpoint("shop", endpoint)).expect("a broker");
        let event = Event::new(EventId::from_u128(1), "order", "42", "order.placed");
        Scene { runtime, listener, broker, event: Outgoing::new(Arc::new(event), "shop") }
    }

    fn answered(&self, input: &[u8]) -> Outcome {
        let batch = std::slice::from_ref(&self.event);
        let outcomes = self.runtime.block_on(async {
            tokio::select! {
                outcomes = self.broker.publish(batch) => outcomes,
                () = self.serve(input) => unreachable!("a server does not end"),
            }
        });
        let mut outcomes = outcomes.expect("each event has an outcome of its own");
        assert_eq!(outcomes.len(), 1);
        outcomes.remove(0)
    }

    /// Answers whoever comes. One that is gone before it was answered is somebody else's matter.
    async fn serve(&self, input: &[u8]) {
        loop {
            if let Ok((mut stream, _)) = self.listener.accept().await
                && read_request(&mut stream).await.is_some()
                && stream.write_all(input).await.is_ok()
            {
                let _ = stream.shutdown().await;
            }
        }
    }
}

/// Reads the whole request: what is left unread would reset the connection under the answer.
async fn read_request(stream: &mut TcpStream) -> Option<()> {
    let mut request = Vec::new();
    loop {
        if let Some(head) = request.windows(4).position(|four| four == b"\r\n\r\n") {
            let text = std::str::from_utf8(&request[..head]).ok()?;
            let length = |line: &str| line.strip_prefix("content-length: ")?.parse::<usize>().ok();
            let body = text.lines().find_map(length).unwrap_or_default();
            if request.len() >= head + 4 + body {
                return Some(());
            }
        }
        if stream.read_buf(&mut request).await.ok()? == 0 {
            return None;
        }
    }
}
