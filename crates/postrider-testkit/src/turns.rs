//! Round trips to a server, counted on the wire.
//!
//! A round trip is a turn of the talk: the client says something after the server did. Invariant: bytes are
//! passed on as they are, so a client that waits for an answer more often than it says is found out.

use std::io::{Read as _, Result, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

/// A way to a server that counts how often clients had to wait for it.
///
/// ```
/// use std::io::{Read, Write};
/// use std::net::{TcpListener, TcpStream};
/// use postrider_testkit::turns::Turns;
///
/// let server = TcpListener::bind("127.0.0.1:0")?;
/// let turns = Turns::to(&format!("test://me@{}/database", server.local_addr()?))?;
/// let (_, near) = turns.url().rsplit_once('@').unwrap();
/// let mut client = TcpStream::connect(near.trim_end_matches("/database"))?;
/// let (mut peer, _) = server.accept()?;
/// for word in [b"once", b"more"] {
///     client.write_all(word)?;
///     peer.read_exact(&mut [0; 4])?;
///     peer.write_all(b"yes")?;
///     client.read_exact(&mut [0; 3])?;
/// }
/// assert_eq!(turns.count(), 2);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Turns {
    url: String,
    turns: Arc<AtomicU64>,
}

impl Turns {
    /// A way to the server of a URL with host and port, `scheme://user@127.0.0.1:5432/database`. It lasts as long
    /// as the process.
    ///
    /// # Errors
    /// The URL names no host and port; what the system says.
    pub fn to(url: &str) -> Result<Turns> {
        let (head, rest) = url.rsplit_once('@').ok_or_else(no_address)?;
        let (server, tail) = rest.split_once('/').ok_or_else(no_address)?;
        let server: SocketAddr = server.parse().map_err(|_| no_address())?;
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let url = format!("{head}@{}/{tail}", listener.local_addr()?);
        let turns = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&turns);
        thread::spawn(move || {
            for near in listener.incoming() {
                let (Ok(near), Ok(far)) = (near, TcpStream::connect(server)) else { return };
                if join(&near, &far, &counted).is_err() {
                    return;
                }
            }
        });
        Ok(Turns { url, turns })
    }

    /// The same URL, by this way.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// How many turns there were on all connections.
    pub fn count(&self) -> u64 {
        self.turns.load(Ordering::SeqCst)
    }
}

fn no_address() -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::InvalidInput, "no address with host and port")
}

fn join(near: &TcpStream, far: &TcpStream, turns: &Arc<AtomicU64>) -> Result<()> {
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    let answered = Arc::new(AtomicBool::new(true));
    let (turns, seen) = (Arc::clone(turns), Arc::clone(&answered));
    carry(near.try_clone()?, far.try_clone()?, move || {
        if seen.swap(false, Ordering::SeqCst) {
            turns.fetch_add(1, Ordering::SeqCst);
        }
    });
    carry(far.try_clone()?, near.try_clone()?, move || answered.store(true, Ordering::SeqCst));
    Ok(())
}

/// Notes each piece before it is passed on.
fn carry(mut from: TcpStream, mut to: TcpStream, note: impl Fn() + Send + 'static) {
    thread::spawn(move || {
        let mut bytes = vec![0; 64 * 1024];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            note();
            if to.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        _ = to.shutdown(Shutdown::Write);
    });
}
