//! What the parent asks while the child runs: `go` on standard input releases what is held, and its
//! end says stop.

use std::io::BufRead as _;
use std::time::Duration;

use tokio::sync::watch;

/// How long a child may take to stop before it is ended whatever it does: longer than any drain.
const STOP_MAX: Duration = Duration::from_secs(15);

/// What was asked so far.
#[derive(Clone, Copy, Debug, Default)]
struct Wish {
    go: bool,
    stop: bool,
}

/// The parent's wishes. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Asked(watch::Receiver<Wish>);

impl Asked {
    /// Begins to listen, on a thread of its own.
    pub(crate) fn listen() -> Asked {
        let (sender, receiver) = watch::channel(Wish::default());
        std::thread::spawn(move || {
            for line in std::io::stdin().lock().lines() {
                match line {
                    Ok(word) if word == "go" => sender.send_modify(|wish| wish.go = true),
                    Ok(_) => {}
                    Err(_) => break,
                }
            }
            sender.send_modify(|wish| wish.stop = true);
            // waits: a part that was held on purpose never ends by itself
            std::thread::sleep(STOP_MAX);
            std::process::exit(70);
        });
        Asked(receiver)
    }

    /// Returns when the parent says go.
    pub(crate) async fn released(&self) {
        self.until(|wish| wish.go).await;
    }

    /// Returns when the parent says stop, or is gone.
    pub(crate) async fn stopped(&self) {
        self.until(|wish| wish.stop).await;
    }

    async fn until(&self, wished: impl Fn(&Wish) -> bool) {
        let mut wishes = self.0.clone();
        // The thread that sends never ends before the process does.
        let _ = wishes.wait_for(|wish| wished(wish)).await;
    }
}
