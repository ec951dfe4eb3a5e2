//! A sleep needs a reason: most of them stand where a signal could be waited for, and make tests
//! slow on a fast machine and red on a slow one. The reason is a comment `// waits: …` on the line
//! or above it.

use super::Finding;
use crate::lexed::Lexed;
use crate::tree::File;

const RULE: &str = "sleep";

pub(super) fn examine(file: &File) -> Vec<Finding> {
    let Some(lexed) = &file.lexed else {
        return Vec::new();
    };
    (0..lexed.lines.len())
        .filter(|index| sleeps(&lexed.lines[*index].code) && !excused(lexed, *index))
        .map(|index| {
            let message = "a sleep without `// waits: <reason>`; wait for a signal, or say why not";
            Finding::at(file, index, RULE, message)
        })
        .collect()
}

/// Whether the code calls a sleep of the thread or the runtime. A method (`clock.sleep(…)`) is
/// somebody's own and can be driven by a test.
fn sleeps(code: &str) -> bool {
    ["sleep(", "sleep_until(", "sleep_ms("].iter().any(|call| {
        code.match_indices(call).any(|(at, _)| {
            let before = code[..at].trim_end();
            let defined = before.ends_with("fn");
            match before.strip_suffix("::") {
                Some(path) => path.ends_with("thread") || path.ends_with("time"),
                None => {
                    !defined && !before.ends_with(|c: char| c.is_alphanumeric() || "._".contains(c))
                }
            }
        })
    })
}

fn excused(lexed: &Lexed, index: usize) -> bool {
    let reason = |comment: &str| {
        comment.split_once("waits:").is_some_and(|(_, reason)| !reason.trim().is_empty())
    };
    if reason(&lexed.lines[index].comment) {
        return true;
    }
    lexed.lines[..index]
        .iter()
        .rev()
        .take_while(|line| line.code.trim().is_empty() && !line.comment.is_empty())
        .any(|line| reason(&line.comment))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(code: &str) -> usize {
        examine(&File::new("a/tests/b.rs", code)).len()
    }

    #[test]
    fn a_bare_sleep_is_flagged() {
        assert_eq!(found("std::thread::sleep(second);"), 1);
        assert_eq!(found("tokio::time::sleep(second).await;"), 1);
        assert_eq!(found("sleep(second).await;"), 1);
        assert_eq!(found("// waits:\nthread::sleep(second);"), 1);
    }

    #[test]
    fn a_reason_on_the_line_or_above_excuses_it() {
        assert_eq!(found("thread::sleep(s); // waits: the pause is what is tested"), 0);
        assert_eq!(
            found("// waits: SQLite gives no signal\n// when a lock is free.\nthread::sleep(s);"),
            0
        );
    }

    #[test]
    fn a_clocks_own_method_is_no_sleep() {
        assert_eq!(found("clock.sleep(second).await; asleep(x); fn sleep(d: Duration) {}"), 0);
        assert_eq!(found("let text = \"thread::sleep(second)\"; // thread::sleep(x)"), 0);
    }
}
