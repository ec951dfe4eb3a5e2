//! What a newcomer builds: the program with its default features rests on no heavy client, and on nothing in C but
//! SQLite.

use std::path::Path;

use crate::step::{self, Verdict};

/// The beginnings of names that only a feature brings in.
const HEAVY: [&str; 5] = ["async-nats", "aws-", "opentelemetry", "openssl", "rdkafka"];

/// Whether the default build is free of them.
pub(crate) fn verdict(root: &Path) -> Verdict {
    let edges = ["--edges", "normal,build", "--prefix", "none", "--format", "{p}"];
    let output = step::cargo(root, &["tree", "--package", "postrider-cli", "--locked"])
        .args(edges)
        .output()
        .map_err(|error| format!("cargo tree did not start: {error}"))?;
    let said = String::from_utf8_lossy(if output.status.success() {
        &output.stdout
    } else {
        return Err(format!("cargo tree: {}", String::from_utf8_lossy(&output.stderr).trim()));
    });
    judge(&said)
}

fn judge(tree: &str) -> Verdict {
    // A list that is not one would have nothing heavy either.
    if !tree.lines().any(|line| line.starts_with("postrider-sqlite ")) {
        return Err("cargo tree lists no dependencies of postrider-cli".to_owned());
    }
    let is_heavy = |line: &&str| HEAVY.iter().any(|name| line.starts_with(name));
    match tree.lines().find(is_heavy) {
        Some(line) => {
            Err(format!("the default build of postrider-cli has {line}: make it a feature"))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heavy_client_is_found() {
        let sound = "postrider-cli v0.1.0 (/p)\npostrider-sqlite v0.1.0 (/p)\nserde v1.0.0\n";
        judge(sound).expect("nothing is heavy");
        for line in ["rdkafka-sys v4.9.0+2.10.0", "aws-sdk-sqs v1.0.0", "async-nats v0.51.0"] {
            let refused = judge(&format!("{sound}{line}\n")).expect_err("it is heavy");
            assert!(refused.contains(line), "{refused}");
        }
        judge("").expect_err("no list");
    }
}
