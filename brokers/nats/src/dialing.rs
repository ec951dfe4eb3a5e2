//! Which server is dialled next, and when; and that nobody is dialled for a connection that was closed.
//!
//! Invariant: a closed connection shows nobody who we were. The client itself dials until it is connected: it hears of nothing
//! else meanwhile.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_nats::{ReconnectToServer, Server, ServerAddr};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::standing::Standing;

/// Between two attempts to reach a server. The first ones come sooner.
const RECONNECT_MAX: Duration = Duration::from_secs(2);

/// The servers of a connection, each in its turn.
#[derive(Default)]
pub(crate) struct Dialing {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// Those that are left of this round.
    round: Vec<ServerAddr>,
    /// The connection that was up last, and the attempts since.
    epoch: u64,
    attempts: u32,
    /// Who was dialled last, for whom every other one is tried first: it may be there and be of no use.
    last: Option<ServerAddr>,
}

impl Dialing {
    /// The next one, and how long to wait until then.
    fn next(&self, servers: &[Server], epoch: u64) -> Option<(ServerAddr, Duration)> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.epoch != epoch {
            let last = inner.last.take();
            *inner = Inner { epoch, last, ..Inner::default() };
        }
        inner.attempts = inner.attempts.saturating_add(1);
        let pause = Duration::from_millis(50 << inner.attempts.min(6)).min(RECONNECT_MAX);
        inner.round.retain(|addr| servers.iter().any(|server| server.addr == *addr));
        if inner.round.is_empty() {
            // In any order, so that not all go to one; who failed least is taken first, from the end.
            let any = RandomState::new();
            let mut all: Vec<&Server> = servers.iter().collect();
            all.sort_by_cached_key(|it| {
                let is_last = inner.last.as_ref() == Some(&it.addr);
                (is_last, it.failed_attempts, any.hash_one(it.addr.as_url_str()))
            });
            inner.round = all.into_iter().rev().map(|server| server.addr.clone()).collect();
        }
        let next = inner.round.pop()?;
        inner.last = Some(next.clone());
        Some((next, pause))
    }

    /// Waits until it is time, and says who is dialled. Once the connection is closed it says nothing any more: the client has no other
    /// way to be told.
    pub(crate) async fn choose(
        &self,
        servers: Vec<Server>,
        mut standing: watch::Receiver<Standing>,
    ) -> Option<ReconnectToServer> {
        let epoch = standing.borrow().epoch;
        let (addr, pause) = self.next(&servers, epoch)?;
        let closed = async { drop(standing.wait_for(Standing::is_given_up).await) };
        tokio::select! {
            biased;
            () = closed => std::future::pending().await,
            // waits: the client dials again after a pause, which no server ends
            () = sleep(pause) => Some(ReconnectToServer { addr, delay: Some(Duration::ZERO) }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::{TcpListener, TcpStream};

    use async_nats::connection::State;
    use tokio::sync::mpsc;
    use tokio::time::{Instant, timeout};

    use crate::connection::Connection;
    use crate::settings::{Credentials, NatsSettings};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);
    const INFO: &[u8] = b"INFO {\"server_id\":\"a\",\"server_name\":\"a\",\"version\":\"2.10.0\",\"go\":\"\",\
        \"host\":\"127.0.0.1\",\"port\":4222,\"headers\":true,\"max_payload\":1048576,\"proto\":1}\r\n";

    /// A server that tells who came, and from the second time on that somebody comes refuses the old one, and is away for the new one.
    fn server() -> (String, mpsc::UnboundedReceiver<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("nats://{}", listener.local_addr().unwrap());
        let (tell, told) = mpsc::unbounded_channel();
        std::thread::spawn(move || {
            let mut known = std::collections::BTreeSet::new();
            let mut kept: Vec<TcpStream> = Vec::new();
            for stream in listener.incoming() {
                let mut stream = BufReader::new(stream.unwrap());
                let mut line = String::new();
                if stream.get_mut().write_all(INFO).is_err() || stream.read_line(&mut line).is_err()
                {
                    continue;
                }
                let who = ["old", "new"].into_iter().find(|who| line.contains(who));
                let who = who.unwrap_or_default().to_owned();
                if known.insert(who.clone()) {
                    stream.get_mut().write_all(b"PONG\r\n").unwrap();
                    kept.push(stream.into_inner());
                } else if who == "old" {
                    _ = stream.get_mut().write_all(b"-ERR 'Authorization Violation'\r\n");
                }
                if tell.send(who).is_err() {
                    return;
                }
                if known.len() == 2 {
                    kept.clear();
                }
            }
        });
        (address, told)
    }

    fn connection(address: &str, name: &str) -> Connection {
        let mut settings = NatsSettings::new(address);
        settings.deadline = PATIENCE;
        settings.credentials = Credentials::User { name: name.into(), password: "secret".into() };
        Connection::new(settings).unwrap()
    }

    /// Who came, until one of them has come so often.
    async fn dials(
        told: &mut mpsc::UnboundedReceiver<String>,
        whose: &str,
        times: usize,
    ) -> Vec<String> {
        let mut seen: Vec<String> = Vec::new();
        while seen.iter().filter(|who| *who == whose).count() < times {
            seen.push(timeout(PATIENCE, told.recv()).await.unwrap().unwrap());
        }
        seen
    }

    /// F32: whoever answers at an old address does not get the old password, whether the connection was closed or dropped.
    #[tokio::test]
    async fn a_closed_connection_is_dialled_no_more() {
        for closed in [true, false] {
            let (address, mut told) = server();
            let (old, new) = (connection(&address, "old"), connection(&address, "new"));
            old.up(Instant::now() + PATIENCE).await.unwrap();
            // With the second one the server goes away, under both.
            let _ = new.up(Instant::now() + Duration::from_millis(200)).await;
            let seen = dials(&mut told, "old", 3).await;
            if closed {
                old.close().await;
            }
            drop(old);
            while told.try_recv().is_ok() {}
            let after = dials(&mut told, "new", 5).await;
            // One may have been under way.
            let olds = after.iter().filter(|who| *who == "old").count();
            assert!(olds <= 1, "closed: {closed}: {seen:?}, and then {after:?}");
        }
    }

    /// F32, F36: after a reload the server refuses the old password, which is not shown again and again because something that came
    /// by the old connection is not settled yet.
    #[tokio::test]
    async fn a_connection_that_rests_and_is_refused_is_dialled_no_more() {
        let (address, mut told) = server();
        let (old, new) = (connection(&address, "old"), connection(&address, "new"));
        old.up(Instant::now() + PATIENCE).await.unwrap();
        let _ = new.up(Instant::now() + Duration::from_millis(200)).await;
        let seen = dials(&mut told, "old", 4).await;
        old.rest();
        while told.try_recv().is_ok() {}
        let after = dials(&mut told, "new", 5).await;
        // One may have been under way.
        let olds = after.iter().filter(|who| *who == "old").count();
        assert!(olds <= 1, "{seen:?}, and then {after:?}");
    }

    /// INV-8: what the client says it drops when nobody reads it in time. Its word that it is connected may be among that.
    #[tokio::test]
    async fn a_connection_that_stands_is_used_though_nobody_said_so() {
        let (address, _told) = server();
        let old = connection(&address, "old");
        let up = old.up(Instant::now() + PATIENCE).await.unwrap();
        assert_eq!(up.client.connection_state(), State::Connected);
        old.forget();
        old.up(Instant::now() + Duration::from_millis(50)).await.unwrap();
    }

    #[test]
    fn each_server_has_its_turn_and_the_pauses_grow() {
        let dialing = Dialing::default();
        let server = |name: &str, failed_attempts| Server {
            addr: name.parse().unwrap(),
            failed_attempts,
            did_connect: false,
            is_discovered: false,
            last_error: None,
        };
        // One that has no address at all does not count as failed.
        let servers = [server("nats://a", 3), server("nats://b", 0), server("nats://c", 1)];
        let next = |epoch| {
            let (addr, pause) = dialing.next(&servers, epoch).unwrap();
            (addr.host().to_owned(), pause.as_millis())
        };
        for (name, pause) in [("b", 100), ("c", 200), ("a", 400), ("b", 800), ("c", 1_600)] {
            assert_eq!(next(0), (name.to_owned(), pause));
        }
        assert_eq!((next(0).1, next(0).1), (2_000, 2_000));
        assert_eq!(next(1), ("c".to_owned(), 100), "`b` was up meanwhile, and was left");
    }
}
