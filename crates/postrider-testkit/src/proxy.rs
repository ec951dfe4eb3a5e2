//! A network between a client and a server that fails as networks do: answers are lost or late, and connections
//! stay open with nobody behind them.
//!
//! Invariant: what is carried is carried in order and whole; a connection of which something was lost carries
//! nothing more, and is closed as soon as answers pass again.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// What becomes of what is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// Everything passes.
    Open,
    /// Nothing passes, and the connections stay open: what was sent into it passes when it is open again.
    Cut,
    /// Answers pass, and requests are on their way for as long as it lasts.
    RequestsHeld,
    /// Requests pass, and answers are lost.
    AnswersLost,
    /// Requests pass, and each piece of an answer comes so much later.
    AnswersLate(Duration),
}

/// Carries bytes to a port of this machine and back.
#[derive(Debug)]
pub struct Proxy {
    /// Where clients connect to, on 127.0.0.1 unless another address was asked for.
    pub port: u16,
    carrying: JoinHandle<()>,
    traffic: watch::Sender<Traffic>,
    /// Bytes of requests that are on their way.
    held: watch::Sender<usize>,
}

impl Proxy {
    /// Listens, and carries to a port as long as the runtime lives.
    ///
    /// # Panics
    /// If this machine has no free port.
    pub async fn to(port: u16) -> Proxy {
        Proxy::at(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), port).await
    }

    /// The same at an address of this machine; with 0 as its port, at a free one.
    ///
    /// # Panics
    /// If somebody else listens there.
    pub async fn at(address: SocketAddr, port: u16) -> Proxy {
        let listener = TcpListener::bind(address).await.expect("a port");
        let own = listener.local_addr().expect("its number").port();
        let (traffic, told) = watch::channel(Traffic::Open);
        let (held, _) = watch::channel(0);
        let counted = held.clone();
        let carrying = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((near, _)) = listener.accept().await {
                let Ok(far) = TcpStream::connect(("127.0.0.1", port)).await else { continue };
                connections.spawn(connect(near, far, told.clone(), counted.clone()));
                // Those that ended are not kept.
                while connections.try_join_next().is_some() {}
            }
        });
        Proxy { port: own, carrying, traffic, held }
    }

    /// Nobody listens there any more, and what is connected is closed.
    pub async fn end(self) {
        self.carrying.abort();
        // It has ended because it was told to.
        let _ = self.carrying.await;
    }

    /// From now on.
    pub fn set(&self, traffic: Traffic) {
        self.traffic.send_replace(traffic);
    }

    /// Waits until so many bytes of requests are on their way, and will arrive when it is open again, whatever becomes of
    /// who sent them. Of one connection no more than 16 KiB are counted.
    ///
    /// # Panics
    /// If the proxy is gone.
    pub async fn holds(&self, bytes: usize) {
        let mut held = self.held.subscribe();
        held.wait_for(|held| *held >= bytes).await.expect("it counts as long as it is there");
    }

    /// Cuts it, or opens it.
    pub fn cut(&self, cut: bool) {
        self.set(if cut { Traffic::Cut } else { Traffic::Open });
    }
}

/// One connection. Each way ends by itself, as a side closes it or what was lost does.
async fn connect(
    near: TcpStream,
    far: TcpStream,
    traffic: watch::Receiver<Traffic>,
    held: watch::Sender<usize>,
) {
    let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
    let requests = requests(near_in, far_out, traffic.clone(), held);
    tokio::join!(requests, answers(far_in, near_out, traffic));
}

async fn requests(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut traffic: watch::Receiver<Traffic>,
    held: watch::Sender<usize>,
) {
    let mut bytes = vec![0; 16 * 1024];
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        held.send_modify(|held| *held += count);
        let passes = |now: &Traffic| !matches!(now, Traffic::Cut | Traffic::RequestsHeld);
        let open = traffic.wait_for(passes).await.is_ok();
        held.send_modify(|held| *held -= count);
        if !open || to.write_all(&bytes[..count]).await.is_err() {
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
        let now = traffic.wait_for(|now| *now != Traffic::Cut).await.ok().map(|now| *now);
        match now {
            None => return,
            Some(Traffic::AnswersLost) => {
                lost = true;
                continue;
            }
            // Half an answer would be no answer of the protocol.
            Some(_) if lost => return,
            // waits: that is what late means
            Some(Traffic::AnswersLate(late)) => tokio::time::sleep(late).await,
            Some(Traffic::Open | Traffic::Cut | Traffic::RequestsHeld) => {}
        }
        if to.write_all(&bytes[..count]).await.is_err() {
            return;
        }
    }
}
