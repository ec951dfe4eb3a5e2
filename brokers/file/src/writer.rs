//! Where lines go: the contract of an end, and any writer as one. After a write that failed half way
//! the next batch begins on a line of its own.

use std::io::{self, Write};
use std::time::{Duration, Instant};

/// How long a writer that is not ready (a pipe whose reader set it to non-blocking) is waited for.
/// Below a relay's publish deadline of 5 s.
const READY_WAIT: Duration = Duration::from_secs(2);

/// The end that lines are appended to.
pub(crate) trait Sink: Send {
    /// Appends whole lines. When it returns, they are as durable as this end makes them. After an
    /// error some of them may be there; what comes next is on a line of its own.
    fn append(&mut self, lines: &[u8]) -> io::Result<()>;
}

/// Any writer: flushed, and no more durable than that.
pub(crate) struct Plain<W> {
    writer: W,
    /// The last write ended inside a line.
    torn: bool,
}

impl<W: Write + Send> Plain<W> {
    pub(crate) fn new(writer: W) -> Plain<W> {
        Plain { writer, torn: false }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let deadline = Instant::now() + READY_WAIT;
        let mut written = 0;
        while written < bytes.len() {
            match self.writer.write(&bytes[written..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(more) => {
                    written += more;
                    self.torn = bytes[written - 1] != b'\n';
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock && Instant::now() < deadline => {
                    // waits: a non-blocking descriptor that is full says nothing when it empties
                    std::thread::sleep(Duration::from_millis(2));
                }
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

impl<W: Write + Send> Sink for Plain<W> {
    fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        if self.torn {
            self.write(b"\n")?;
        }
        self.write(lines)?;
        self.writer.flush()
    }
}

/// Standard output without the buffer of `std::io::Stdout`, which would write what is left in it
/// after an error a second time.
#[cfg(unix)]
pub(crate) fn stdout() -> io::Result<Box<dyn Sink>> {
    use std::os::fd::AsFd;
    let owned = io::stdout().as_fd().try_clone_to_owned()?;
    Ok(Box::new(Plain::new(std::fs::File::from(owned))))
}

#[cfg(not(unix))]
pub(crate) fn stdout() -> io::Result<Box<dyn Sink>> {
    Ok(Box::new(Plain::new(io::stdout())))
}
