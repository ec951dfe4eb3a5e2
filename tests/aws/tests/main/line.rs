//! A line to a server that others use as well: it can be cut, so that the server is away for one test alone.

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// What stands between processes and a server.
pub(crate) struct Line {
    address: String,
    open: watch::Sender<bool>,
}

impl Line {
    /// To a server like `http://127.0.0.1:8000`.
    pub(crate) async fn to(server: &str) -> Line {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let host = server.trim_start_matches("http://").trim_end_matches('/').to_owned();
        let (open, seen) = watch::channel(true);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if *seen.borrow() {
                    tokio::spawn(carry(client, host.clone(), seen.clone()));
                }
            }
        });
        Line { address, open }
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
}

async fn carry(mut client: TcpStream, host: String, mut open: watch::Receiver<bool>) {
    let Ok(mut server) = TcpStream::connect(host).await else { return };
    tokio::select! {
        _ = copy_bidirectional(&mut client, &mut server) => {}
        _ = open.wait_for(|open| !open) => {}
    }
}
