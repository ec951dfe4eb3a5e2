//! A network between a client and a server that fails as networks do: answers are lost or late, and connections
//! stay open with nobody behind them.
//!
//! Invariant: what is carried is carried in order and whole; a connection of which something was lost carries
//! nothing more, and is closed as soon as answers pass again.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// What becomes of what is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// Everything passes.
    Open,
    /// Nothing passes, and the connections stay open: what was sent into it passes when it is open again.
    Cut,
    /// Requests pass, and answers are lost.
    AnswersLost,
    /// Requests pass, and each piece of an answer comes so much later.
    AnswersLate(Duration),
}

/// Carries bytes to a port of this machine and back.
#[derive(Debug)]
pub struct Proxy {
    /// Where clients connect to, on 127.0.0.1.
    pub port: u16,
    traffic: watch::Sender<Traffic>,
}

impl Proxy {
    /// Listens, and carries to a port as long as the runtime lives.
    ///
    /// # Panics
    /// If this machine has no free port.
    pub async fn to(port: u16) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let own = listener.local_addr().expect("its number").port();
        let (traffic, told) = watch::channel(Traffic::Open);
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let Ok(far) = TcpStream::connect(("127.0.0.1", port)).await else { continue };
                tokio::spawn(connect(near, far, told.clone()));
            }
        });
        Proxy { port: own, traffic }
    }

    /// From now on.
    pub fn set(&self, traffic: Traffic) {
        self.traffic.send_replace(traffic);
    }

    /// Cuts it, or opens it.
    pub fn cut(&self, cut: bool) {
        self.set(if cut { Traffic::Cut } else { Traffic::Open });
    }
}

/// One connection. Each way ends by itself, as a side closes it or what was lost does.
async fn connect(near: TcpStream, far: TcpStream, traffic: watch::Receiver<Traffic>) {
    let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
    tokio::join!(requests(near_in, far_out, traffic.clone()), answers(far_in, near_out, traffic));
}

/// Waits while nothing passes, and says what does then.
async fn passing(traffic: &mut watch::Receiver<Traffic>) -> Option<Traffic> {
    traffic.wait_for(|now| *now != Traffic::Cut).await.ok().map(|now| *now)
}

async fn requests(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut traffic: watch::Receiver<Traffic>,
) {
    let mut bytes = vec![0; 16 * 1024];
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        if passing(&mut traffic).await.is_none() || to.write_all(&bytes[..count]).await.is_err() {
            return;
        }
    }
}

async fn answers(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut traffic: watch::Receiver<Traffic>,
) {
    let mut bytes = vec![0; 16 * 1024];
    let mut lost = false;
    loop {
        let read = tokio::select! {
            read = from.read(&mut bytes) => read,
            changed = traffic.changed() => match changed {
                Ok(()) if lost && *traffic.borrow() != Traffic::AnswersLost => return,
                Ok(()) => continue,
                Err(_) => return,
            },
        };
        let Ok(count @ 1..) = read else { return };
        match passing(&mut traffic).await {
            None => return,
            Some(Traffic::AnswersLost) => {
                lost = true;
                continue;
            }
            // Half an answer would be no answer of the protocol.
            Some(_) if lost => return,
            // waits: that is what late means
            Some(Traffic::AnswersLate(late)) => tokio::time::sleep(late).await,
            Some(Traffic::Open | Traffic::Cut) => {}
        }
        if to.write_all(&bytes[..count]).await.is_err() {
            return;
        }
    }
}
