//! Asking a server something in its own protocol: an open port does not say that it is ready, or
//! that it is the server we look for.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(2);
/// Of the answer; what is looked for stands at its beginning.
const LIMIT: usize = 16 * 1024;

/// Whether somebody accepts connections there.
pub(crate) fn answers(port: u16) -> bool {
    connect(port).is_some()
}

/// Sends the question and returns the first piece of the answer; nothing where none comes.
pub(crate) fn ask(port: u16, question: &[u8]) -> Vec<u8> {
    let Some(mut stream) = connect(port) else { return Vec::new() };
    let mut answer = vec![0; LIMIT];
    let read = stream.write_all(question).and_then(|()| stream.read(&mut answer)).unwrap_or(0);
    answer.truncate(read);
    answer
}

/// Sends the question and returns the answer, of which the first four bytes say how long it is; without these, and
/// nothing where none comes, or a longer one than the limit.
pub(crate) fn framed(port: u16, question: &[u8]) -> Vec<u8> {
    let Some(mut stream) = connect(port) else { return Vec::new() };
    let mut length = [0; 4];
    let read = stream.write_all(question).and_then(|()| stream.read_exact(&mut length));
    let length = u32::from_be_bytes(length) as usize;
    let mut answer = vec![0; length.min(LIMIT)];
    match read.and_then(|()| stream.read_exact(&mut answer)) {
        Ok(()) if length <= LIMIT => answer,
        _ => Vec::new(),
    }
}

/// The whole answer to an HTTP request, as far as the limit; empty where none comes.
pub(crate) fn http(port: u16, method: &str, path: &str, headers: &str, body: &str) -> String {
    let Some(mut stream) = connect(port) else { return String::new() };
    let request = format!(
        "{method} {path} HTTP/1.0\r\nHost: 127.0.0.1:{port}\r\nContent-Length: {}\r\n{headers}\r\n{body}",
        body.len()
    );
    let mut answer = Vec::new();
    // What came before a pause that was too long counts as well.
    if stream.write_all(request.as_bytes()).is_ok() {
        let _ = stream.take(LIMIT as u64).read_to_end(&mut answer);
    }
    String::from_utf8_lossy(&answer).into_owned()
}

/// Whether the answer has this in it.
pub(crate) fn has(answer: &[u8], part: &[u8]) -> bool {
    answer.windows(part.len()).any(|window| window == part)
}

fn connect(port: u16) -> Option<TcpStream> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let stream = TcpStream::connect_timeout(&address, PATIENCE).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    stream.set_write_timeout(Some(PATIENCE)).ok()?;
    Some(stream)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn the_answer_is_read_and_a_silent_port_has_none() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = std::thread::spawn(move || {
            for _ in 0..2 {
                let (mut stream, _) = listener.accept().unwrap();
                let mut question = [0; 4];
                stream.read_exact(&mut question).unwrap();
                stream.write_all(&question).unwrap();
            }
        });
        assert_eq!(ask(port, b"PING"), b"PING");
        assert_eq!(http(port, "GET", "/", "", ""), "GET ");
        server.join().unwrap();
        assert!(!answers(port));
        assert!(ask(port, b"PING").is_empty());
    }

    #[test]
    fn a_part_is_found_anywhere_in_an_answer() {
        assert!(has(b"\0\x01abc", b"bc") && !has(b"ab", b"abc"));
    }
}
