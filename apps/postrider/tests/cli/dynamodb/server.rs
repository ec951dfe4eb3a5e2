//! A server of HTTP on this machine that answers as it is told.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

/// From the lines of a head and a body, a status and a body.
type Answer = dyn Fn(&[String], String) -> (&'static str, String) + Send + Sync;

/// Answers whoever calls; its port.
pub(super) fn listen(
    answer: impl Fn(&[String], String) -> (&'static str, String) + Send + Sync + 'static,
) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (port, answer) = (listener.local_addr().unwrap().port(), Arc::new(answer));
    std::thread::spawn(move || {
        for caller in listener.incoming().flatten() {
            let answer = Arc::clone(&answer);
            std::thread::spawn(move || serve(caller, &*answer));
        }
    });
    port
}

/// A field of a head.
pub(super) fn field<'a>(head: &'a [String], name: &str) -> Option<&'a str> {
    head.iter().find_map(|line| {
        let (field, value) = line.split_once(':')?;
        field.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

/// One caller, request by request.
fn serve(caller: TcpStream, answer: &Answer) {
    let mut from = BufReader::new(caller);
    loop {
        let mut head = Vec::new();
        loop {
            let mut line = String::new();
            if from.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            if line.trim().is_empty() {
                break;
            }
            head.push(line);
        }
        let length = field(&head, "content-length").map_or(0, |length| length.parse().unwrap());
        let mut body = vec![0; length];
        if from.read_exact(&mut body).is_err() {
            return;
        }
        let (status, text) = answer(&head, String::from_utf8(body).unwrap());
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{text}", text.len());
        if from.get_mut().write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}
