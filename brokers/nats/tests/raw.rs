//! A connection on which everything is said as it is: also what no client would send.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use crate::server::Server;

pub(crate) struct Raw(BufReader<TcpStream>);

impl Raw {
    /// Connects as a user whose password is his name, or as nobody.
    pub(crate) fn connect(server: &Server, user: Option<&str>) -> Raw {
        let address = server.address();
        let stream = TcpStream::connect(address.trim_start_matches("nats://")).unwrap();
        let mut raw = Raw(BufReader::new(stream));
        assert!(raw.line().starts_with("INFO "));
        let who =
            user.map(|user| format!(r#","user":"{user}","pass":"{user}""#)).unwrap_or_default();
        raw.say(format!("CONNECT {{\"verbose\":false,\"headers\":true{who}}}\r\n").as_bytes());
        raw.heard();
        raw
    }

    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    pub(crate) fn say(&mut self, words: &[u8]) {
        self.0.get_mut().write_all(words).unwrap();
    }

    /// Waits until the server has read all that was said.
    pub(crate) fn heard(&mut self) {
        self.say(b"PING\r\n");
        assert_eq!(self.line(), "PONG");
    }

    /// Publishes with headers, whatever stands in them.
    pub(crate) fn publish(&mut self, subject: &[u8], headers: &[u8], body: &str) {
        let mut block = b"NATS/1.0".to_vec();
        block.extend(headers);
        block.extend(b"\r\n\r\n");
        let sizes = format!(" {} {}\r\n", block.len(), block.len() + body.len());
        let parts = [b"HPUB ", subject, sizes.as_bytes(), &block, body.as_bytes(), b"\r\n"];
        self.say(&parts.concat());
    }
}
