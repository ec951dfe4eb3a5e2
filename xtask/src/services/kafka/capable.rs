//! Whether a broker that somebody else started can do what the tests ask of one: asked in Kafka's own protocol, by
//! hand, since a client of Kafka is minutes of compiling.
//!
//! Invariant: no topic of somebody's is written to. Whether transactions work is seen by beginning the session of a
//! producer, for which the server makes its own topics where it has none yet.

use std::time::Duration;

use crate::services::{daemon, probe};

/// Requests, by number, and the version that is written here.
const FIND_COORDINATOR: (i16, i16) = (10, 1);
const API_VERSIONS: (i16, i16) = (18, 0);
const INIT_PRODUCER: (i16, i16) = (22, 0);
const DESCRIBE_CONFIGS: (i16, i16) = (32, 1);
/// The kinds of coordinators: of groups, and of transactions.
const KINDS: [u8; 2] = [0, 1];
/// Of things with a configuration: a broker.
const BROKER: u8 = 4;
/// The name of our group, and of our producer.
const NAME: &str = "postrider-probe";
/// What a server answers that is about to make or to load the topic that the question needs.
const NOT_YET: [i16; 4] = [14, 15, 16, 51];
/// That a topic does not exist is a case to test.
const SETTING: &str = "auto.create.topics.enable";

/// What one look came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Capable,
    NotYet,
    /// It can not, or it is no Kafka.
    No,
}

/// Whether there is such a broker. One that is about to make its own topics is waited for.
pub(super) fn is_capable(port: u16, patience: Duration) -> bool {
    let mut verdict = Verdict::No;
    // What answers otherwise has decided itself, for or against.
    daemon::gone(
        || {
            verdict = look(port);
            verdict != Verdict::NotYet
        },
        patience,
    );
    verdict == Verdict::Capable
}

fn look(port: u16) -> Verdict {
    match capable(port) {
        Some(0) => Verdict::Capable,
        Some(code) if NOT_YET.contains(&code) => Verdict::NotYet,
        _ => Verdict::No,
    }
}

/// The first code of an error, or 0; nothing where it is not what we look for.
fn capable(port: u16) -> Option<i16> {
    if !knows_requests(port)? {
        return None;
    }
    let mut node = 0;
    for kind in KINDS {
        let mut answer = call(port, FIND_COORDINATOR, &[&text(NAME)[..], &[kind]].concat())?;
        answer.skip(4)?;
        let code = answer.short()?;
        if code != 0 {
            return Some(code);
        }
        answer.text()?;
        node = answer.int()?;
        // Clients go where it says that it is, which inside of a container is elsewhere.
        let host = answer.text()?;
        if !matches!(host.as_str(), "127.0.0.1" | "localhost") || answer.int()? != i32::from(port) {
            return None;
        }
    }
    if setting(port, node)? != "false" {
        return None;
    }
    let minute = 60_000_i32.to_be_bytes();
    let mut answer = call(port, INIT_PRODUCER, &[&text(NAME)[..], &minute].concat())?;
    answer.skip(4)?;
    answer.short()
}

/// Whether it knows what the other questions ask.
fn knows_requests(port: u16) -> Option<bool> {
    let mut answer = call(port, API_VERSIONS, &[])?;
    if answer.short()? != 0 {
        return None;
    }
    let mut missing = vec![FIND_COORDINATOR, INIT_PRODUCER, DESCRIBE_CONFIGS];
    for _ in 0..answer.int()? {
        let (request, least, most) = (answer.short()?, answer.short()?, answer.short()?);
        missing.retain(|(other, version)| *other != request || !(least..=most).contains(version));
    }
    Some(missing.is_empty())
}

/// The value of the broker's setting.
fn setting(port: u16, node: i32) -> Option<String> {
    let one = 1_i32.to_be_bytes();
    let question =
        [&one[..], &[BROKER], &text(&node.to_string()), &one, &text(SETTING), &[0]].concat();
    let mut answer = call(port, DESCRIBE_CONFIGS, &question)?;
    // How long we are throttled, and that there is one answer.
    answer.skip(8)?;
    if answer.short()? != 0 {
        return None;
    }
    answer.text()?;
    answer.skip(1)?;
    answer.text()?;
    answer.skip(4)?;
    (answer.text()? == SETTING).then_some(())?;
    answer.text()
}

/// Sends one request and gives what stands behind the answer's number.
fn call(port: u16, (request, version): (i16, i16), body: &[u8]) -> Option<Answer> {
    const NUMBER: [u8; 4] = [0, 0, 0, 1];
    let header = [&request.to_be_bytes()[..], &version.to_be_bytes(), &NUMBER, &text("probe")];
    let question = [&header.concat(), body].concat();
    let length = u32::try_from(question.len()).ok()?.to_be_bytes();
    let bytes = probe::framed(port, &[&length[..], &question].concat());
    let mut answer = Answer { bytes, at: 0 };
    (answer.take(4)? == NUMBER).then_some(answer)
}

/// A text as the protocol writes it: its length, and its bytes.
fn text(text: &str) -> Vec<u8> {
    let length = u16::try_from(text.len()).expect("our texts are short");
    [&length.to_be_bytes()[..], text.as_bytes()].concat()
}

/// An answer, read from its beginning.
struct Answer {
    bytes: Vec<u8>,
    at: usize,
}

impl Answer {
    fn take(&mut self, count: usize) -> Option<&[u8]> {
        let part = self.bytes.get(self.at..self.at.checked_add(count)?)?;
        self.at += count;
        Some(part)
    }

    fn skip(&mut self, count: usize) -> Option<()> {
        self.take(count).map(|_| ())
    }

    fn short(&mut self) -> Option<i16> {
        Some(i16::from_be_bytes(self.take(2)?.try_into().ok()?))
    }

    fn int(&mut self) -> Option<i32> {
        Some(i32::from_be_bytes(self.take(4)?.try_into().ok()?))
    }

    /// A text; one that is absent is empty.
    fn text(&mut self) -> Option<String> {
        let length = usize::try_from(self.short()?).unwrap_or(0);
        String::from_utf8(self.take(length)?.to_vec()).ok()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpListener, TcpStream};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicI16, Ordering};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(5);

    /// A server of Kafka that knows four requests, and what it says to them.
    struct Script {
        /// Where it says that it is; none for where it is.
        advertised: Option<(&'static str, u16)>,
        creates_topics: &'static str,
        /// The oldest version of beginning a producer that it knows.
        least: i16,
        /// How often it is not ready.
        not_yet: AtomicI16,
        /// What becomes of a producer.
        producer: i16,
    }

    impl Default for Script {
        fn default() -> Script {
            Script {
                advertised: None,
                creates_topics: "false",
                least: 0,
                not_yet: AtomicI16::new(0),
                producer: 0,
            }
        }
    }

    impl Script {
        fn answer(&self, request: i16, port: u16) -> Vec<u8> {
            let throttled = [0_u8; 4];
            let code = |code: i16| code.to_be_bytes().to_vec();
            match request {
                10 => {
                    let left = self.not_yet.fetch_sub(1, Ordering::SeqCst);
                    let (host, port) = self.advertised.unwrap_or(("localhost", port));
                    let node = 7_i32.to_be_bytes();
                    let error = code(if left > 0 { 15 } else { 0 });
                    let place = [text(host), i32::from(port).to_be_bytes().to_vec()].concat();
                    [&throttled[..], &error, &[0xff, 0xff], &node, &place].concat()
                }
                18 => {
                    let mut known = [&code(0)[..], &3_i32.to_be_bytes()].concat();
                    for (request, least) in [(10, 0), (22, self.least), (32, 1)] {
                        known.extend([code(request), code(least), code(9)].concat());
                    }
                    known
                }
                22 => [&throttled[..], &code(self.producer), &[0; 10]].concat(),
                32 => {
                    let one = 1_i32.to_be_bytes();
                    let entry = [text(SETTING), text(self.creates_topics), vec![0, 4, 0]].concat();
                    let broker = [vec![BROKER], text("7")].concat();
                    let result = [&code(0)[..], &[0xff, 0xff], &broker, &one, &entry].concat();
                    [&throttled[..], &one, &result].concat()
                }
                other => panic!("request {other}"),
            }
        }

        fn serve(self) -> u16 {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            let port = listener.local_addr().unwrap().port();
            let script = Arc::new(self);
            // It ends with the test's process.
            std::thread::spawn(move || {
                while let Ok((stream, _)) = listener.accept() {
                    script.exchange(stream, port);
                }
            });
            port
        }

        fn exchange(&self, mut stream: TcpStream, port: u16) {
            let mut length = [0; 4];
            stream.read_exact(&mut length).unwrap();
            let mut question = vec![0; u32::from_be_bytes(length) as usize];
            stream.read_exact(&mut question).unwrap();
            let request = i16::from_be_bytes([question[0], question[1]]);
            let answer = [&question[4..8], &self.answer(request, port)].concat();
            stream.write_all(&(answer.len() as u32).to_be_bytes()).unwrap();
            stream.write_all(&answer).unwrap();
        }
    }

    #[test]
    fn a_broker_is_reused_that_can_do_what_the_tests_ask() {
        assert!(is_capable(Script::default().serve(), PATIENCE));
        let slow = Script { not_yet: AtomicI16::new(3), ..Script::default() };
        assert!(is_capable(slow.serve(), PATIENCE), "it makes its own topics first");
    }

    #[test]
    fn a_broker_that_cannot_is_let_be() {
        let inside = Script { advertised: Some(("kafka", 9092)), ..Script::default() };
        let moved = Script { advertised: Some(("localhost", 1)), ..Script::default() };
        let making = Script { creates_topics: "true", ..Script::default() };
        let strange = Script { least: 1, ..Script::default() };
        let bare = Script { producer: 53, ..Script::default() };
        for (script, why) in [
            (inside, "its clients are sent into a container"),
            (moved, "its clients are sent to another port"),
            (making, "it makes topics by itself"),
            (strange, "it does not know a request of this version"),
            (bare, "it does not let us begin a producer with transactions"),
        ] {
            assert!(!is_capable(script.serve(), PATIENCE), "{why}");
        }
        let never = Script { not_yet: AtomicI16::new(i16::MAX), ..Script::default() };
        assert!(!is_capable(never.serve(), Duration::from_millis(300)), "its topics never come");
    }

    #[test]
    fn what_is_no_kafka_is_let_be() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut question = [0; 4];
            stream.read_exact(&mut question).unwrap();
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
        });
        assert!(!is_capable(port, PATIENCE));
        assert!(!is_capable(port, PATIENCE), "and where nobody listens");
    }

    /// Against the real one: what is believed of the protocol above is only as good as this.
    #[test]
    fn the_broker_that_is_started_here_would_be_reused() {
        let url = std::env::var("POSTRIDER_KAFKA_URL").ok();
        let Some(port) = url.as_deref().and_then(crate::services::port_of) else {
            println!("skipped: a real broker is asked: none is up; `cargo x services up kafka`");
            return;
        };
        assert!(is_capable(port, Duration::from_secs(30)));
    }
}
