//! A line to a server that others use as well: it can be cut, so that the server is away for one test alone, or cut
//! for the calls of DynamoDB's streams alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// What stands between processes and a server.
pub(crate) struct Line {
    address: String,
    open: watch::Sender<bool>,
    streams: Arc<Streams>,
}

/// The calls of streams.
#[derive(Default)]
struct Streams {
    away: AtomicBool,
    passed: AtomicU64,
    refused: AtomicU64,
}

/// What a request of a stream has in its head. One whose head comes in two pieces may pass.
const OF_STREAMS: &[u8] = b"DynamoDBStreams_";
/// Bytes that are carried at once.
const PIECE: usize = 16 * 1024;

impl Line {
    /// To a server like `http://127.0.0.1:8000`.
    pub(crate) async fn to(server: &str) -> Line {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let host = server.trim_start_matches("http://").trim_end_matches('/').to_owned();
        let (open, seen) = watch::channel(true);
        let streams = Arc::<Streams>::default();
        let told = Arc::clone(&streams);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if *seen.borrow() {
                    tokio::spawn(carry(client, host.clone(), seen.clone(), Arc::clone(&told)));
                }
            }
        });
        Line { address, open, streams }
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Breaks every connection, and takes no new one.
    pub(crate) fn cut(&self) {
        self.open.send_replace(false);
    }

    pub(crate) fn mend(&self) {
        self.open.send_replace(true);
    }

    /// From now on calls of streams are answered by a broken connection, or pass again.
    pub(crate) fn cut_streams(&self, away: bool) {
        self.streams.away.store(away, Ordering::SeqCst);
    }

    /// Calls of streams that passed, and that did not.
    pub(crate) fn streams(&self) -> (u64, u64) {
        let Streams { passed, refused, .. } = &*self.streams;
        (passed.load(Ordering::SeqCst), refused.load(Ordering::SeqCst))
    }
}

async fn carry(
    mut client: TcpStream,
    host: String,
    mut open: watch::Receiver<bool>,
    streams: Arc<Streams>,
) {
    let Ok(mut server) = TcpStream::connect(host).await else { return };
    let ((asked, mut told), (mut answers, requests)) = (client.split(), server.split());
    tokio::select! {
        () = carry_requests(asked, requests, &streams) => {}
        _ = copy(&mut answers, &mut told) => {}
        _ = open.wait_for(|open| !open) => {}
    }
}

async fn carry_requests(mut from: ReadHalf<'_>, mut to: WriteHalf<'_>, streams: &Streams) {
    let mut piece = vec![0; PIECE];
    while let Ok(count @ 1..) = from.read(&mut piece).await {
        let said = &piece[..count];
        if said.windows(OF_STREAMS.len()).any(|window| window == OF_STREAMS) {
            if streams.away.load(Ordering::SeqCst) {
                streams.refused.fetch_add(1, Ordering::SeqCst);
                return;
            }
            streams.passed.fetch_add(1, Ordering::SeqCst);
        }
        if to.write_all(said).await.is_err() {
            return;
        }
    }
}
