//! The handlers of the guide, as they stand there: run, killed, and judged.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use postrider_core::{EventId, Invariant};

use crate::history::judge;
use crate::stage::Stage;

/// A process with a handler of the guide. Gone when this is dropped.
pub(crate) struct Handler {
    child: Child,
    port: u16,
}

impl Handler {
    /// Starts the Python handler at a port, any for 0, and waits until it listens.
    pub(crate) fn start(python: &Path, stage: &Stage, port: u16) -> Handler {
        Handler::run(python, stage, &example("python"), "handler.py", port)
    }

    fn run(program: &Path, stage: &Stage, text: &str, name: &str, port: u16) -> Handler {
        std::fs::write(stage.path(name), text).unwrap();
        let mut child = Command::new(program)
            .arg(name)
            .current_dir(stage.folder.path())
            .env("PORT", port.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let port = line.trim().rsplit(' ').next().unwrap();
        let port = port.parse().unwrap_or_else(|_| panic!("{name} said {line:?}"));
        Handler { child, port }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/events", self.port)
    }

    /// SIGKILL to this very process.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Handler {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A program that can be run, or why the test is left out.
#[allow(clippy::print_stdout, reason = "a test that is left out says so")]
fn tool(name: &str) -> Option<PathBuf> {
    let starts = Command::new(name).arg("--version").stdout(Stdio::null()).status();
    if starts.is_ok_and(|status| status.success()) {
        return Some(PathBuf::from(name));
    }
    println!("skipped: {name} is not there");
    None
}

/// Python, or why the test is left out.
pub(crate) fn python() -> Option<PathBuf> {
    tool("python3")
}

/// The first example of the guide in a language.
fn example(language: &str) -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/sidecar.md");
    let page = std::fs::read_to_string(page).unwrap();
    let fence = format!("\n```{language}\n");
    let begin = page.find(&fence).unwrap() + fence.len();
    let length = page[begin..].find("\n```").unwrap();
    page[begin..begin + length + 1].to_owned()
}

/// What the Python handler charged, in order.
pub(crate) fn charges(stage: &Stage) -> Vec<EventId> {
    let Ok(database) = rusqlite::Connection::open(stage.path("charges.db")) else {
        return Vec::new();
    };
    database.busy_timeout(std::time::Duration::from_secs(10)).unwrap();
    let Ok(mut statement) = database.prepare("select event_id from charges order by rowid") else {
        return Vec::new();
    };
    let rows = statement.query_map((), |row| row.get::<_, String>(0)).unwrap();
    rows.map(|id| id.unwrap().parse().unwrap()).collect()
}

/// Places orders, one of which the handler cannot take, and hands them over, twice each.
async fn hand_over(stage: &Stage, url: &str) -> EventId {
    for number in 0..12 {
        let event = crate::stage::order(&(number % 3).to_string());
        stage.publish(&event, 2).await;
    }
    let mut cancelled = crate::stage::order("3");
    cancelled.event_type = "order.cancelled".into();
    stage.publish(&cancelled, 1).await;
    let sidecar = stage.sidecar_to(url, &[]).await;
    stage.settled().await;
    let ended = sidecar.stop().await;
    assert!(ended.text.contains("12 delivered in"), "{}", ended.text);
    let dead = stage.dead().await;
    assert_eq!(dead.len(), 1);
    assert!(dead[0].reason.contains("422 Unprocessable Entity: cannot charge order.cancelled"));
    cancelled.id
}

/// The guide's handler in Python charges each order once, and says why it refuses one.
#[tokio::test]
async fn the_python_handler_of_the_guide_works() {
    let Some(python) = python() else { return };
    let stage = Stage::new();
    let handler = Handler::start(&python, &stage, 0);
    hand_over(&stage, &handler.url()).await;
    let charged = "select count(*) from inbox where result = cast('charged' as blob)";
    assert_eq!(stage.number(charged), 12);
    let verdict = judge(&stage, &charges(&stage)).await;
    assert!(verdict.holds() && verdict.judged(Invariant::OneEffect) > 0, "{verdict}");
}

/// The guide's handler in Node.js does the same.
#[tokio::test]
async fn the_node_handler_of_the_guide_works() {
    let Some(node) = tool("node") else { return };
    let stage = Stage::new();
    let handler = Handler::run(&node, &stage, &example("js"), "handler.js", 0);
    hand_over(&stage, &handler.url()).await;
    assert_eq!(std::fs::read_dir(stage.path("charges")).unwrap().count(), 12);
}
