//! What a person at a terminal sees: questions, progress, colours, a screen that is redrawn.

use std::io::{Read as _, Write as _};
use std::process::Child;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use pty_process::blocking::{Command, Pty, open};

use super::id;
use crate::Shop;

/// A command on a terminal of 80 columns.
struct Session {
    child: Child,
    pty: Arc<Pty>,
    chunks: Receiver<Vec<u8>>,
    screen: String,
}

impl Session {
    fn start(shop: &Shop, args: &[&str]) -> Session {
        Session::with(shop.operator(args))
    }

    fn with(command: std::process::Command) -> Session {
        let (pty, pts) = open().unwrap();
        pty.resize(pty_process::Size::new(24, 80)).unwrap();
        let child = Command::from(command).spawn(pts).unwrap();
        let pty = Arc::new(pty);
        let (sender, chunks) = channel();
        let reader = Arc::clone(&pty);
        std::thread::spawn(move || {
            let mut buffer = [0; 4_096];
            // The terminal's end is an error on Linux.
            while let Ok(length @ 1..) = (&*reader).read(&mut buffer) {
                if sender.send(buffer[..length].to_vec()).is_err() {
                    break;
                }
            }
        });
        Session { child, pty, chunks, screen: String::new() }
    }

    /// Waits until the text stands there.
    fn expect(&mut self, text: &str) {
        self.expect_times(text, 1);
    }

    /// Waits until the text stands there so many times.
    fn expect_times(&mut self, text: &str, times: usize) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while self.screen.matches(text).count() < times {
            let left = deadline.saturating_duration_since(Instant::now());
            let chunk = self.chunks.recv_timeout(left).unwrap_or_default();
            if chunk.is_empty() {
                let _ = self.child.kill();
                panic!("no `{text}` in: {}", self.screen);
            }
            self.screen.push_str(&String::from_utf8_lossy(&chunk));
        }
    }

    fn write(&mut self, text: &str) {
        (&*self.pty).write_all(text.as_bytes()).unwrap();
    }

    /// Waits for the end: the exit code, and everything that was shown.
    fn end(mut self) -> (i32, String) {
        let status = self.child.wait().unwrap();
        while let Ok(chunk) = self.chunks.recv_timeout(Duration::from_secs(10)) {
            self.screen.push_str(&String::from_utf8_lossy(&chunk));
        }
        (status.code().expect("it ended by itself"), self.screen)
    }
}

fn buried() -> Shop {
    let shop = Shop::delivered();
    shop.bury(&[3, 5], "dead");
    shop
}

const CTRL_C: &str = "\x03";
const CTRL_D: &str = "\x04";

#[test]
fn a_yes_goes_on() {
    let shop = buried();
    let _daemon = shop.daemon();
    let mut session = Session::start(&shop, &["dead", "redrive", "--all"]);
    session.expect("redrive 2 dead letters? [y/N]");
    session.write("y\n");
    let (code, screen) = session.end();
    assert_eq!(code, 0, "{screen}");
    assert!(screen.contains("redrive: 2 done"), "{screen}");
}

/// F32: whatever is not a yes changes nothing.
#[test]
fn anything_else_changes_nothing() {
    let shop = buried();
    for (answer, expected) in [("n\n", 1), ("\n", 1), ("yess\n", 1), (CTRL_D, 1), (CTRL_C, 130)] {
        let mut session = Session::start(&shop, &["dead", "redrive", "--all"]);
        session.expect("[y/N]");
        session.write(answer);
        let (code, screen) = session.end();
        assert_eq!(code, expected, "{answer:?}: {screen}");
        assert!(screen.contains("nothing was changed"), "{answer:?}: {screen}");
    }
    assert_eq!(shop.number("select count(*) from outbox_request"), 0);
}

#[test]
fn what_cannot_be_undone_asks_for_the_name() {
    let shop = Shop::delivered();
    let erase = ["erase", "--key", "order/1", "--reason", "request 7"];
    for (answer, expected, erased) in [("y\n", 1, 0), ("order/2\n", 1, 0), ("order/1\n", 0, 2)] {
        let mut session = Session::start(&shop, &erase);
        session.expect("type `order/1` to go on:");
        session.write(answer);
        let (code, screen) = session.end();
        assert_eq!(code, expected, "{answer:?}: {screen}");
        let gone = "select count(*) from outbox where erased_at is not null";
        assert_eq!(shop.number(gone), erased, "{answer:?}");
    }
}

/// Colours stand on a terminal, and nowhere else.
#[test]
fn colours_stand_on_a_terminal_unless_refused() {
    let shop = buried();
    let (code, screen) = Session::start(&shop, &["dead", "ls"]).end();
    assert_eq!(code, 0);
    assert!(screen.contains("\x1b["), "{screen:?}");
    let mut command = shop.operator(&["dead", "ls"]);
    command.env("NO_COLOR", "1");
    let (_, plain) = Session::with(command).end();
    assert!(plain.contains(&id(3)) && !plain.contains("\x1b["), "{plain:?}");
    assert!(!shop.answer(&["dead", "ls"]).contains('\x1b'));
}

/// Tables fit the terminal, and ids are whole.
#[test]
fn tables_fit_the_terminal() {
    let shop = buried();
    let mut command = shop.operator(&["outbox", "ls"]);
    command.env("NO_COLOR", "1");
    let (_, screen) = Session::with(command).end();
    for line in screen.lines() {
        assert!(line.trim_end().chars().count() <= 80, "{line}");
    }
    assert!(screen.contains(&id(6)), "{screen}");
    // Into a pipe nothing is cut.
    assert!(shop.answer(&["dead", "ls"]).contains("422: no such customer"));
}

#[test]
fn progress_is_one_line_that_goes_again() {
    let shop = buried();
    // Nobody carries it out, but somebody is alive: the command waits, and shows how far it is.
    shop.answer(&["partitions", "pause", "0"]);
    shop.pretend_alive();
    let mut session = Session::start(&shop, &["dead", "redrive", "--all", "--yes", "--wait", "5s"]);
    session.expect("0 of 2");
    let (code, screen) = session.end();
    assert_eq!(code, 5, "{screen}");
    assert!(screen.contains("\r\x1b[K"), "{screen:?}");
    assert!(screen.contains("not carried out within the time"), "{screen}");
}

#[test]
fn waiting_can_be_interrupted_and_the_request_stays() {
    let shop = buried();
    shop.answer(&["partitions", "pause", "0"]);
    shop.pretend_alive();
    let mut session = Session::start(&shop, &["dead", "redrive", "--all", "--yes"]);
    session.expect("0 of 2");
    session.write(CTRL_C);
    let (code, screen) = session.end();
    assert_eq!(code, 130, "{screen}");
    assert!(screen.contains("carried out all the same"), "{screen}");
    assert_eq!(shop.number("select count(*) from outbox_request"), 1);
}

#[test]
fn the_status_is_redrawn_until_it_is_interrupted() {
    let shop = buried();
    let mut session = Session::start(&shop, &["status", "--watch", "1"]);
    session.expect("DESTINATION");
    session.expect("dead letters");
    session.expect_times("\x1b[H", 3);
    session.write(CTRL_C);
    let (code, screen) = session.end();
    assert_eq!(code, 0, "{screen}");
}
